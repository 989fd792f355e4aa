/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The injected library: the state that its parts share. Nothing here is seen by the traced program.
 *
 * The law: the traced program behaves as if we were not there. No abort, no exit, no output, errno as it was. When something
 * breaks, recording ends once, the reason stands in the trace header, and the hooks pass everything through and count.
 *
 * Threads: a hook runs on any thread at any time, also before our own start and after the thread's teardown. Each thread
 * writes through a struct writer of its own; what is shared is atomic. Memory comes from mmap alone, never from malloc.
 *
 * The folders, each of which may include those above it (tests/lint/check_includes.py):
 *
 *     .         this state; lock, memory and system calls; the table of vendors
 *     loader    the loader's list of objects, the originals of hooks        unwind   walking a thread's stack
 *     interp    the memory of a Python interpreter, read and never called
 *     record    writers, records and what they refer to: stacks, modules, code objects
 *     python    what runs inside the interpreter        watch   reading watched memory
 *     process   how recording begins, survives forks and ends; windows and steps
 *     torch     PyTorch, on the devices of any vendor
 *     ascend    and one more folder for each vendor; see vendor.h
 */
#ifndef MSCOPE_COLLECTOR_H
#define MSCOPE_COLLECTOR_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/compiler.h"
#include "collector/lock.h"
#include "trace/chunk.h"
#include "trace/control.h"
#include "trace/record.h"
#include "trace/session.h"

#define COLLECTOR_NOTES_MAX	 4u
#define COLLECTOR_SETTINGS_WORDS (EVENT_BYTES_settings / 8)

/* Pages are wiped by the kernel as a whole, so the words that must not survive a fork have one to themselves. */
#if defined(__aarch64__)
#define COLLECTOR_PAGE 65536u
#else
#define COLLECTOR_PAGE 4096u
#endif

/*
 * The switch. Zero, which is also what a child finds after a fork, means that this process is not attached to a session yet.
 * Every hook tests `recording` first, so it has the whole page to itself.
 */
union collector_switch {
	struct {
		_Atomic uint32_t recording; /* enum recording */
		/* C frames to record now, 0: none; 0 in shadow. */
		_Atomic uint32_t c_depth;
		/* Python frames to record with an allocation, 0: none; 0 in shadow. */
		_Atomic uint32_t python_depth;
		/* Python frames to record with anything else: only what was asked for, no sites. */
		_Atomic uint32_t python_shown;
		/* Of the writers that may be used, 0: none. A forked thread still holds its parent's. */
		_Atomic uint32_t generation;
		/* The process that this memory belongs to, 0: not known. A child of vfork() has its parent's. */
		_Atomic uint32_t owner;
	};
	char page[COLLECTOR_PAGE];
};

extern MSCOPE_HIDDEN union collector_switch collector_switch;

/* What the process writes to. Set up by collector_attach_slow(), replaced in a forked child. */
struct collector {
	struct trace_header *header; /* mapping of the whole raw file, NULL: none */
	/* What the engine asks of any process of the session, NULL: no session was seen. A forked child has its parent's. */
	struct asked *asked;
	uint64_t mapped_bytes;
	uint32_t chunks_mapped; /* chunks that the mapping has room for */
	uint32_t salt;		/* trace_header.salt, which the program may overwrite */
	uint32_t generation;	/* grows with each attach: tells what a child inherited */
	uint32_t pid;
	/*
	 * What a stray store of the program into the mapping cannot change, besides `salt`. The header has copies of some, for the
	 * engine; what is read there is checked against these.
	 */
	_Atomic uint64_t losses[TRACE_LOSSES_MAX]; /* as in the header, counted by this process */
	_Atomic uint32_t stop;			   /* enum trace_stop */
	_Atomic uint32_t writers;		   /* ever created */
	_Atomic uint32_t chunks_taken; /* no chunk of this number or above was seen in use */
	_Atomic uint32_t chunks_there; /* chunks that the file was seen to have space for */
	struct event_settings chosen;  /* settings in force: of the window, else of the session */
	/* enum recording chosen through the API, 0: the session's. A forked child goes on with it. */
	uint32_t wanted_state;
	bool window;	  /* start() was called and stop() was not */
	bool own_session; /* no command made the session, start() did */
	bool left;	  /* the trace was ended by the program: `header` is no parent's */
	bool confined;	  /* gave up rights: files may not open any more */
	bool counts_only; /* forked under a seccomp filter: events are losses of the parent's trace */
	bool host_by_default; /* as in the session */
	bool settings_given;  /* through the API: `settings` count instead of the session's */
	/* The settings as a record, as event_settings_encode() makes it. */
	uint64_t settings[COLLECTOR_SETTINGS_WORDS];
	uint64_t session_settings[COLLECTOR_SETTINGS_WORDS]; /* the same of the session */
	_Atomic uint32_t settings_pending; /* 1: the first writer of a forked child writes them */
	_Atomic uint32_t steps;		   /* that the API counted */
	_Atomic uint32_t optimizer_steps;  /* that the framework's optimizers took */
	_Atomic uint32_t ended;		   /* 1: a record tells that the program's own code has */
	uint32_t c_depth;		   /* frames that are asked for, as in the session */
	uint32_t python_depth;
	uint32_t python_shown;
	_Atomic uint64_t early_losses; /* counted before there was a header */
	struct lock notes_lock;	       /* guards the notes */
	_Atomic uint32_t note_count;
	char notes[COLLECTOR_NOTES_MAX][256]; /* for the next writer to write */
	char session[SESSION_PATH_MAX];	      /* directory; as the environment had it first */
	char session_path[SESSION_PATH_MAX +
			  16]; /* the session's file; its lock tells whether the engine lives */
	char raw_path[SESSION_PATH_MAX + 64];
	/* Room for the thread that attaches: the program's threads may have stacks of 16 KiB. */
	char path_scratch[SESSION_PATH_MAX + 128];
	char text_scratch[SESSION_PATH_MAX];
};

extern MSCOPE_HIDDEN struct collector collector;

MSCOPE_INLINE uint32_t recording_now(void)
{
	return atomic_load_explicit(&collector_switch.recording, memory_order_relaxed);
}

/* Off for everything but memory. */
MSCOPE_INLINE bool recording_is_off(void)
{
	return (uint8_t)recording_now() == RECORDING_OFF;
}

/*
 * Finds out whether to record and sets everything up; the first hook of a process or of a forked child comes here. Returns the
 * state to act on. Threads that come meanwhile wait for it; the thread itself, when it comes again, does not.
 * A call upwards: defined in process/life.c, because the first event of a process sets up all the parts.
 */
uint32_t collector_attach_slow(void);

/* Another process has set CONTROL_ASKED: does what it asks for. Not inside an event. The other call upwards: process/serve.c. */
void collector_serve_slow(void);

/* The generation without that bit. */
MSCOPE_INLINE uint32_t collector_generation(void)
{
	return atomic_load(&collector_switch.generation) & ~CONTROL_ASKED;
}

/* Ends recording for good: the reason goes into the header, hooks only count from now on. */
void collector_break(enum trace_stop reason, int error);

void collector_count_loss(enum loss_cause cause);

/* The process ends: puts what it has counted into the header once more, in place of what a stray store may have left there. */
void collector_tell_losses(void);

/* One more event after recording ended early, or where it could not begin. */
void collector_count_stopped(void);

/* Why an event is not recorded that finds no chunk. There is a trace. */
enum loss_cause collector_stop_cause(void);

/* False when no process holds the session's lock, or the session is removed: the engine is gone. System calls; changes errno. */
bool collector_engine_lives(void);

/* Text for the trace. It waits for the next thread that gets a writer, or for collector_write_notes() (record/writer.h). */
void collector_note(const char *format, ...) MSCOPE_PRINTF(1, 2);

#endif
