# SPDX-License-Identifier: Apache-2.0
# The page of the viewer as one file: cmake -DWEB=DIR -DOUT=FILE -P bundle.cmake. Modules are put behind each other in the order of
# what they import, without their imports and exports; page.html has the places where style and script go. -DPAGE=store: the page of a
# store, store.html.
set(modules format axis places data draw live page pointer whatif timeline blocks ranks compare flame segments table moment findings main)
if(NOT PAGE)
  set(PAGE page)
elseif(PAGE STREQUAL "store")
  set(modules format axis places data draw store)
endif()
file(READ ${WEB}/${PAGE}.html page)
file(READ ${WEB}/style.css style)
set(script "\"use strict\";\n(() => {\n")
foreach(module ${modules})
  file(READ ${WEB}/${module}.js text)
  string(REGEX REPLACE "(^|\n)import [^\n]*" "" text "${text}")
  string(REGEX REPLACE "(^|\n)export " "\\1" text "${text}")
  string(APPEND script "${text}")
endforeach()
string(APPEND script "})();\n")
string(REPLACE "@STYLE@" "${style}" page "${page}")
string(REPLACE "@SCRIPT@" "${script}" page "${page}")
file(WRITE ${OUT} "${page}")
