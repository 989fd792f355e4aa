# SPDX-License-Identifier: Apache-2.0
# Helpers used by every folder: warnings, sanitizers, where things are staged.

set(MSCOPE_WARNINGS -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef
    -Wwrite-strings -Wpointer-arith -Wformat=2)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  # It warns of cut paths also where the cut is checked for.
  list(APPEND MSCOPE_WARNINGS -Wno-format-truncation)
endif()
if(MSCOPE_WERROR)
  list(APPEND MSCOPE_WARNINGS -Werror)
endif()

# Warnings for one target; everything of ours gets them.
function(mscope_warnings target)
  target_compile_options(${target} PRIVATE ${MSCOPE_WARNINGS} ${ARGN})
endfunction()

# Sanitizers for one target and all that links it. Never called for the injected library or the simulated NPU, which live
# in processes that are not ours.
function(mscope_sanitize target)
  if(MSCOPE_SANITIZE)
    target_compile_options(${target} PUBLIC -fsanitize=${MSCOPE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${target} PUBLIC -fsanitize=${MSCOPE_SANITIZE})
  endif()
endfunction()

# mscope_library(name sources...): an internal static library below src/, included as "folder/header.h".
function(mscope_library name)
  add_library(${name} STATIC ${ARGN})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE)
  mscope_warnings(${name} -Wconversion)
  mscope_sanitize(${name})
endfunction()

# Keeps a target within glibc 2.17: simnpu/glibc_floor.h has the old versions of functions, and these are the libraries that had them.
function(mscope_glibc_floor target)
  target_compile_options(${target} PRIVATE -include ${CMAKE_SOURCE_DIR}/simnpu/glibc_floor.h)
  target_link_options(${target} PRIVATE -Wl,--push-state,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2 -Wl,--pop-state)
endfunction()

# The same for a program; see simnpu/glibc_start.c.
function(mscope_glibc_floor_program target)
  mscope_glibc_floor(${target})
  target_sources(${target} PRIVATE ${CMAKE_SOURCE_DIR}/simnpu/glibc_start.c)
  target_link_options(${target} PRIVATE -Wl,--wrap=__libc_start_main)
endfunction()
