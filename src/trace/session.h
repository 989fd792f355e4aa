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

#define SESSION_ENV	    "MSMEMSCOPE_SESSION"
#define SESSION_DISABLE_ENV "MSMEMSCOPE_DISABLE"
#define SESSION_FILE	    "session"
#define SESSION_RAW	    ".raw"
#define SESSION_PART	    ".part"
#define SESSION_MAGIC	    "MSCSESS1"
#define SESSION_PATH_MAX    4096u

/* States of recording: the value a hook tests first. DETACHED must be 0: memory wiped by fork means "attach first". */
enum recording {
	RECORDING_DETACHED = 0,
	RECORDING_OFF = 1,
	RECORDING_SHADOW =
		2, /* allocations and frees without stacks, to know what lives when recording starts */
	RECORDING_ON = 3,
	RECORDING_BROKEN = 4,	 /* recording ended early: events are only counted */
	RECORDING_ATTACHING = 5, /* a thread is setting everything up */
};

/* What is recorded besides memory; the bits of --level. */
enum session_level {
	SESSION_LEVEL_OP = 1,	  /* operators */
	SESSION_LEVEL_KERNEL = 2, /* kernels with their names, and when they ran */
};

/* What is written; the bits of --events. */
enum session_events {
	SESSION_ALLOC = 1,
	SESSION_FREE = 2,
	SESSION_LAUNCH = 4,
	SESSION_ACCESS = 8,
};

/* What is looked for; the bits of --analysis. */
enum session_analysis {
	SESSION_LEAKS = 1,
	SESSION_DECOMPOSE = 2,
	SESSION_INEFFICIENT = 4,
	SESSION_OOM = 8,
};

/* Python frames that are recorded with each allocation when no more are asked for, so that a leak has a site. */
#define SESSION_SITE_FRAMES 12u

#define SESSION_STEPS_MAX 1024u
#define SESSION_WATCH_MAX 256u

/* --watch: which operator's outputs are looked at, and until which operator has ended. */
struct session_watch {
	uint32_t on;
	uint32_t full;	 /* 1: the bytes themselves are kept, not only their checksum */
	uint32_t output; /* which output, UINT32_MAX: all */
	uint32_t reserved;
	char start
		[SESSION_WATCH_MAX]; /* name or path of the operator, "": only what the API watches */
	char end[SESSION_WATCH_MAX];
};

struct session {
	char magic[8];
	uint32_t bytes;		 /* sizeof(struct session) */
	uint32_t state;		 /* enum recording that processes start in */
	uint32_t c_depth;	 /* C frames per stack, 0: none */
	int32_t utc_offset_s;	 /* local time minus UTC */
	uint32_t launch_pid;	 /* the pid the user sees */
	uint64_t realtime_ns;	 /* when the launch began */
	uint64_t max_disk_bytes; /* compressed trace of a process at most, 0: no limit */
	uint32_t keep_trace;	 /* 1: trace.msc stays in the project directory */
	uint32_t level;		 /* bits of enum session_level */
	uint32_t events;	 /* bits of enum session_events that are written */
	uint32_t format;	 /* of the dump files: 0 csv, 1 db */
	uint32_t devices;	 /* bit for each device that is written */
	uint32_t all_devices;	 /* 1: every device is */
	uint32_t host;		 /* 1: tensors in host memory are */
	uint32_t analysis;	 /* bits of enum session_analysis */
	uint32_t oom_top;	 /* blocks that analysis oom lists */
	uint32_t log_level;	 /* enum log_level: least serious message of the log */
	uint32_t close_live; /* 1: blocks alive at the end get a free, for viewers that need one */
	uint32_t step_count; /* steps that are written, 0: all */
	uint32_t steps[SESSION_STEPS_MAX];
	uint32_t
		python_shown; /* Python frames that files show, 0: none; then sites of SESSION_SITE_FRAMES are recorded */
	uint32_t traceback; /* 1: calls of Python functions are recorded */
	struct session_watch watch;
	char output[SESSION_PATH_MAX]; /* absolute output directory, where project directories go */
	_Atomic uint32_t
		failed_starts; /* processes that could not create a trace; written by them */
	_Atomic uint32_t failed_errno; /* errno of the first */
	_Atomic uint32_t
		wake; /* grows when a process asks something of the engine, which waits on it (futex) */
};

#endif
