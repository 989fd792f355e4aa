/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames of C and C++ as people read them: function, file and line, and the functions that the compiler inlined.
 *
 *     lines_want()    for each address that will be shown; looks up its symbol
 *     lines_read()    once for all of them; reads debug information, in a process of its own
 *     lines_get()     any number of times
 *
 * Debug information comes from the module's file or from a separate one (symbols/debug_file.h), never from the network; that of the
 * system's own libraries and of the interpreter is not read. It is
 * read by libdw, and names are demangled by libstdc++: neither is safe against damaged files. So lines_read() forks a process
 * that may crash, hang or run out of memory. It answers through a pipe what it has found so far, and is killed when its time is
 * over. What it did not answer is answered from symbols: functions without lines.
 *
 * Each file is read once for all processes that loaded it, and each address once. Memory of debug information is gone with the
 * process; texts stay until lines_free(), each once.
 *
 * The caller has no other threads while lines_read() forks. Not thread-safe.
 */
#ifndef MSCOPE_SYMBOLS_LINES_H
#define MSCOPE_SYMBOLS_LINES_H

#include <stdbool.h>

#include "base/compiler.h"

struct elf_cache;
struct lines;
struct module;
struct strbuf;

/* More addresses are answered from symbols; so is what comes when texts take more than LINES_TEXT_BYTES_MAX. */
#define LINES_ADDRESSES_MAX  (1u << 20)
#define LINES_TEXT_BYTES_MAX (UINT32_C(256) << 20)

/* Frames of one address; deeper inlining is cut. */
#define LINES_FRAMES_MAX 64

/* What lines_read() may take. */
struct lines_limits {
	unsigned int module_ms; /* of a processor, for one module, over all calls */
	unsigned int total_ms;	/* by the clock, over all modules, in one call */
	uint64_t memory_bytes;	/* of the process that reads, besides files */
};

#define LINES_LIMITS_DEFAULT                                                                       \
	{                                                                                          \
		.module_ms = 6000, .total_ms = 8000, .memory_bytes = UINT64_C(2) << 30             \
	}

struct lines_frame {
	/* Demangled, with parameters where they are known; NULL when unknown. */
	const char *function;
	const char *file; /* as the compiler saw it, mostly absolute; NULL when unknown */
	uint32_t line;	  /* 0 when unknown */
};

/*
 * `cache` is borrowed and outlives what is returned; from now on it keeps files open, so that they can be read when they have
 * vanished. Made before modules are pinned. NULL when out of memory.
 */
struct lines *lines_new(struct elf_cache *cache, const struct lines_limits *limits);

void lines_free(struct lines *lines);

/*
 * Those that belong to a cache, made with default limits at the first call and freed with the cache. NULL when the cache
 * wants none, or out of memory.
 */
struct lines *lines_of(struct elf_cache *cache);

/*
 * Asks for an instruction of a module; of a return address the instruction before it is meant, so that callers pass
 * `address - 1`. `root` is that of module_pin(). 0 also when it is known already; -ENOMEM, MSCOPE_E_LIMIT.
 */
int lines_want(struct lines *lines, struct module *module, const char *root, uint64_t address);

/* Reads what was asked for since the last call. A failure is -errno of fork() and the like, and only means fewer lines. */
int lines_read(struct lines *lines);

/*
 * The frames of an address, innermost first: an inlined function with the line inside it, then the function it is inlined into
 * with the line of the call, and so on; the last one is the function that the address belongs to. Returns how many were stored,
 * at most `max`; 0 when not even a symbol is known. Texts are free of control characters, and borrowed until the next
 * lines_read().
 */
size_t lines_get(const struct lines *lines, const struct module *module, uint64_t address,
		 struct lines_frame *frames, size_t max);

/* Whether the time was over before the lines of an address that was asked for were read: they may be had another time. */
bool lines_is_cut(const struct lines *lines, const struct module *module, uint64_t address);

/* Appends a sentence for each thing that kept lines from being read, each ended by a newline; nothing when there was none. */
void lines_note(const struct lines *lines, struct strbuf *out);

#endif
