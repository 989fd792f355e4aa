/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The session directory: where the processes of one launch leave their raw traces and where the engine finds them.
 *
 *     DIR/session            struct session: settings, written by the command before anything starts
 *     DIR/PID-RUNID.raw      one per process image that recorded; a name with a leading dot is not ready yet
 *     DIR/PID-RUNID.part     compressed copy of consumed chunks, growing; engine only
 *
 * The environment variable MSMEMSCOPE_SESSION carries DIR to every process of the launch.
 */
#ifndef MSCOPE_TRACE_SESSION_H
#define MSCOPE_TRACE_SESSION_H

#include <stdatomic.h>

#include "base/compiler.h"
#include "options/words.h"
#include "trace/settings.def"

#define SESSION_ENV	    "MSMEMSCOPE_SESSION"
#define SESSION_DISABLE_ENV "MSMEMSCOPE_DISABLE"
#define SESSION_FILE	    "session"
#define SESSION_RAW	    ".raw"
#define SESSION_PART	    ".part"
#define SESSION_MAGIC	    "MSCSESS2"
#define SESSION_PATH_MAX    4096u

/* States of recording: the value a hook tests first. DETACHED must be 0: memory wiped by fork means "attach first". */
enum recording {
	RECORDING_DETACHED = 0,
	RECORDING_OFF = 1,
	/* Allocations and frees without stacks, to know what lives when recording starts. */
	RECORDING_SHADOW = 2,
	RECORDING_ON = 3,
	RECORDING_BROKEN = 4,	 /* recording ended early: events are only counted */
	RECORDING_ATTACHING = 5, /* a thread is setting everything up */
	/* No session yet: live blocks are kept in a table (record/early.h). For all but memory it is off, and so is the low byte. */
	RECORDING_EARLY = 0x100 | RECORDING_OFF,
};

/* What is recorded besides memory; the bits of --level. */
enum session_level {
	SESSION_LEVEL_OP = 1 << OPT_LEVEL_OP, /* operators */
	SESSION_LEVEL_KERNEL =
		1 << OPT_LEVEL_KERNEL, /* kernels with their names, and when they ran */
};

/* What is written; the bits of --events. */
enum session_events {
	SESSION_ALLOC = 1 << OPT_EVENTS_ALLOC,
	SESSION_FREE = 1 << OPT_EVENTS_FREE,
	SESSION_LAUNCH = 1 << OPT_EVENTS_LAUNCH,
	SESSION_ACCESS = 1 << OPT_EVENTS_ACCESS,
};

/* What is looked for; the bits of --analysis. */
enum session_analysis {
	SESSION_LEAKS = 1 << OPT_ANALYSIS_LEAKS,
	SESSION_DECOMPOSE = 1 << OPT_ANALYSIS_DECOMPOSE,
	SESSION_INEFFICIENT = 1 << OPT_ANALYSIS_INEFFICIENT,
	SESSION_OOM = 1 << OPT_ANALYSIS_OOM,
	/* Of the verb analyze alone; no words of --analysis. */
	SESSION_LAUNCHES = 1 << 16,
	SESSION_MARKS = 1 << 17,
	SESSION_TIMELINE = 1 << 18, /* of the store */
};

/* When other settings of PyTorch's pool are tried; the words of --whatif. */
enum session_whatif {
	SESSION_WHATIF_OFF = OPT_WHATIF_OFF,
	SESSION_WHATIF_AUTO = OPT_WHATIF_AUTO,
	SESSION_WHATIF_ALWAYS = OPT_WHATIF_ALWAYS,
};

/* What analysis inefficient looks for; bits of --inefficient, and of enum inefficiency in replay/facts.h. */
enum session_waste {
	SESSION_WASTE_EARLY = 1 << OPT_WASTE_EARLY,
	SESSION_WASTE_LATE = 1 << OPT_WASTE_LATE,
	SESSION_WASTE_IDLE = 1 << OPT_WASTE_IDLENESS,
	SESSION_WASTE_ALL = SESSION_WASTE_EARLY | SESSION_WASTE_LATE | SESSION_WASTE_IDLE,
};

/*
 * Python frames that are recorded with each allocation when no more are asked for, so that a leak has a site; and those that are looked
 * at for it, since PyTorch has three frames for each module, of which two only call on.
 */
#define SESSION_SITE_FRAMES 12u
#define SESSION_SITE_WALK   40u

#define SESSION_STEPS_MAX  1024u
#define SESSION_WATCH_MAX  256u
#define SESSION_LAUNCH_MAX (SESSION_STEPS_MAX * 11u + 1024u)
#define SESSION_ID_MAX	   64u
#define SESSION_ID_KEY	   "launch_id" /* of the member `launch_id` in the identity of a trace */
#define SESSION_LAUNCH_KEY "launch"    /* of the member `launch` in the identity of a trace */
#define SESSION_DRY_MAX	   32u
#define SESSION_DRY_KEY	   "dry" /* of the member `dry` in the identity of a trace */

/* --watch: which operator's outputs are looked at, and until which operator has ended. */
struct session_watch {
	uint32_t on;
	uint32_t full;	 /* 1: the bytes themselves are kept, not only their checksum */
	uint32_t output; /* which output, UINT32_MAX: all */
	uint32_t reserved;
	/* Name or path of the operator, "": only what the API watches. */
	char start[SESSION_WATCH_MAX];
	char end[SESSION_WATCH_MAX];
};

/* Expands its arguments for the kinds of options that are one number: flags, and single words. */
#define SESSION_OPTION_flag(...) __VA_ARGS__
#define SESSION_OPTION_word(...) __VA_ARGS__
#define SESSION_OPTION_set(...)
#define SESSION_OPTION_path(...)
#define SESSION_OPTION_size(...)
#define SESSION_OPTION_number(...)
#define SESSION_OPTION_numbers(...)
#define SESSION_OPTION_conditions(...)
#define SESSION_OPTION_watch(...)
#define SESSION_OPTION_pair(...)
#define SESSION_OPTION_text(...)
#define SESSION_OPTION_texts(...)

struct session {
	char magic[8];
	uint32_t bytes;	      /* sizeof(struct session) */
	uint32_t state;	      /* enum recording that processes start in */
	int32_t utc_offset_s; /* local time minus UTC */
	uint32_t launch_pid;  /* the pid the user sees */
	uint64_t realtime_ns; /* when the launch began */
	/* Of all processes together, 0: no limit: traces, dumps and reports; compressed traces alone. */
	uint64_t max_disk_bytes, max_trace_bytes;
	uint64_t min_free_bytes; /* free space of the disk that dumps leave */
				 /* Settings that a window may change: see settings.def. */
#define SETTING(name, ...) uint32_t name;
	SETTINGS(SETTING)
#undef SETTING
	/* Flags and single words of options.def, each by the name it has there. */
#define OPTION(kind, field, ...) SESSION_OPTION_##kind(uint32_t field;)
#include "options/options.def"
	/* 1: a window of the API that names no device records CPU tensors too: there is no NPU and no GPU. */
	uint32_t host_by_default;
	uint32_t step_count; /* steps that are written, 0: all */
	uint32_t steps[SESSION_STEPS_MAX];
	struct session_watch watch;
	char launch_id[SESSION_ID_MAX];	 /* the run's name in a store, if nobody names it */
	char launch[SESSION_LAUNCH_MAX]; /* the settings as a text; see launch.h */
	char dry[SESSION_DRY_MAX];     /* device of a dry run, such as npu:64G; "": it is not one */
	char output[SESSION_PATH_MAX]; /* absolute output directory, where project directories go */
	/* Processes that could not create a trace; written by them. */
	_Atomic uint32_t failed_starts;
	_Atomic uint32_t failed_errno; /* errno of the first */
	/* Segment where processes count that cannot come here, and its cookie; see unrecorded.h. -1: none. */
	int32_t unrecorded;
	uint64_t unrecorded_cookie;
	/* Grows when a process asks something of the engine, which waits on it (futex). */
	_Atomic uint32_t wake;
	/* 1: the process that asked for this session has ended it and lives on; that process. */
	_Atomic uint32_t left;
};

#endif
