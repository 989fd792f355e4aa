/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lines.c, which knows the answers, and lines_process.c, which reads them in a process of its own, share. The process is a
 * fork: it finds its task in the memory it inherits, and writes records into memory that both share:
 *
 *     RECORD_NAME    index of an address     demangled name of its symbol
 *     RECORD_MODULE  index of a module       its debug information is read from here on
 *     RECORD_DWARF   index of that module    it has some
 *     RECORD_FRAMES  index of an address     frames
 *     RECORD_FULL    0                       there is no room for more, although there is more to answer
 *     RECORD_END     0                       everything was answered
 *
 * Names come first, so that they are there whatever debug information does to the reader. What was written is there after any
 * end of the process. It may have been taken over by what it reads; nothing that it says is trusted.
 */
#ifndef MSCOPE_SYMBOLS_LINES_WORK_H
#define MSCOPE_SYMBOLS_LINES_WORK_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/index.h"
#include "base/map.h"
#include "base/strbuf.h"
#include "symbols/lines.h"

/* Longest text that is kept; longer ones are cut. */
#define LINES_TEXT_MAX 4100

/* Symbols that may keep the demangler busy; after that no more are tried. */
#define LINES_ENDLESS_MAX 2

enum lines_record_kind {
	RECORD_NAME = 1,
	RECORD_MODULE,
	RECORD_DWARF,
	RECORD_FRAMES,
	RECORD_FULL,
	RECORD_END
};

/* Head of a record; `bytes` of content follow. */
struct lines_record {
	uint32_t kind;
	uint32_t index;
	uint32_t bytes;
};

/* One frame in the content of RECORD_FRAMES; the two texts follow, without NUL. */
struct lines_sent_frame {
	uint32_t line;
	uint16_t function_bytes; /* 0: unknown */
	uint16_t file_bytes;	 /* 0: unknown */
};

#define LINES_RECORD_BYTES_MAX                                                                     \
	(LINES_FRAMES_MAX * (sizeof(struct lines_sent_frame) + 2 * LINES_TEXT_MAX))

/* Memory that both processes see. Pages that are not used cost nothing. */
struct lines_board {
	/* Bytes of `data` that hold whole records; written by the child, with release. */
	_Atomic uint64_t committed;
	char data[(UINT32_C(256) << 20) - sizeof(uint64_t)];
};

/* Why a module is not read (again). */
enum lines_module_state {
	LINES_READABLE,
	LINES_ABSENT,	/* no debug information was found, or none is looked for */
	LINES_TOO_SLOW, /* its time was used up */
	LINES_DAMAGED,	/* the process ended while reading it */
};

struct lines_module {
	char *root;
	char *path;
	uint8_t *build_id;
	size_t build_id_length;
	int fd; /* borrowed from the cache; -1 */
	enum lines_module_state state;
	bool has_dwarf;
	uint64_t spent_ms; /* of a processor */
};

/* One address. */
struct lines_want {
	uint64_t vaddr;
	const char *symbol; /* mangled, borrowed from the cache; NULL */
	uint32_t module;
	uint32_t name; /* offset of the demangled symbol in `texts`, 0: none */
	uint32_t first_frame;
	uint16_t frame_count;
	bool settled; /* its module was read, or will not be */
	bool cut;     /* there was no time to read it */
};

/* As lines_frame, with offsets in `texts`; 0: unknown. */
struct lines_kept_frame {
	uint32_t function;
	uint32_t file;
	uint32_t line;
};

struct lines {
	struct elf_cache *cache;
	struct lines_limits limits;
	size_t unread_count; /* addresses that were left because the time was over */
	bool names_only;     /* there is no time left for modules */
	int status;	     /* of fork() and pipe(), the first failure */
	struct lines_module *modules;
	size_t module_count, module_room;
	struct map module_by_file; /* build id, or address of the struct cached_elf -> index */
	struct lines_want *wants;
	size_t want_count, want_room;
	struct index want_by_address; /* of `wants` */
	size_t named_count;	      /* of wants, from the first on, whose names are done */
	const char *endless[LINES_ENDLESS_MAX]; /* symbols that could not be demangled in time */
	size_t endless_count;
	size_t settled_count; /* of wants, from the first on, that are settled */
	struct lines_kept_frame *frames;
	size_t frame_count, frame_room;
	struct strbuf texts;	 /* NUL-terminated texts; the first one is empty */
	struct map text_by_hash; /* -> offset in `texts` */
};

/* Takes an answer; false when it is not well formed or out of place. */
bool lines_take_record(struct lines *lines, const struct lines_record *record, const char *content);

/* Reads as much as time allows, in as many processes as it takes. 0, or why there could be none. */
int lines_run(struct lines *lines);

/* What the process does that `parent` forked; returns its exit status. */
int lines_answer(const struct lines *lines, struct lines_board *board, pid_t parent);

#endif
