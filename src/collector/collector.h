/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The injected library: its state, and what its files offer each other. Nothing here is seen by the traced program.
 *
 * The law: the traced program behaves as if we were not there. No abort, no exit, no output, errno as it was. When something
 * breaks, recording ends once, the reason stands in the trace header, and the hooks pass everything through and count.
 *
 * Threads: a hook runs on any thread at any time, also before our own start and after the thread's teardown. Each thread
 * writes through a struct writer of its own; what is shared is atomic. Memory comes from mmap alone, never from malloc.
 */
#ifndef MSCOPE_COLLECTOR_H
#define MSCOPE_COLLECTOR_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/compiler.h"
#include "trace/chunk.h"
#include "trace/context.h"
#include "trace/record.h"
#include "trace/session.h"

#define COLLECTOR_WRITERS_MAX	 65536u
#define COLLECTOR_CONTEXTS	 64u   /* slots of a writer's context table, a power of two */
#define COLLECTOR_CONTEXT_PROBES 16u   /* of these, looked at for one context */
#define COLLECTOR_STACKS	 4096u /* slots of a writer's stack table, a power of two */
#define COLLECTOR_TEXTS		 1024u /* slots of a writer's text table, a power of two */
#define COLLECTOR_TEXT_PROBES	 8u    /* of these, for one text; more than a record has texts */
#define COLLECTOR_TEXT_MAX	 4096u /* bytes of a text that are kept */
#define COLLECTOR_FRAMES_MAX	 1000u
#define COLLECTOR_NOTES_MAX	 4u
#define COLLECTOR_SETTINGS_WORDS (EVENT_BYTES_settings / 8)

/* Pages are wiped by the kernel as a whole, so the words that must not survive a fork have one to themselves. */
#if defined(__aarch64__)
#define COLLECTOR_PAGE 65536u
#else
#define COLLECTOR_PAGE 4096u
#endif

/*
 * The switch. Zero, which is also what a child finds after a fork, means "look". Every hook tests `recording` first, so it
 * has the whole page to itself.
 */
union collector_switch {
	struct {
		_Atomic uint32_t recording; /* enum recording */
		_Atomic uint32_t c_depth;   /* C frames to record now, 0: none; 0 in shadow */
		_Atomic uint32_t
			python_depth; /* Python frames to record with an allocation, 0: none; 0 in shadow */
		_Atomic uint32_t
			python_shown; /* and with anything else: only what was asked for, no sites */
		_Atomic uint32_t
			generation; /* of the writers that may be used, 0: none; a forked thread still holds its parent's */
	};
	char page[COLLECTOR_PAGE];
};

extern union collector_switch collector_switch;

struct context_slot {
	uint64_t key;
	uint32_t source;
	uint32_t id; /* 0: empty */
};

struct stack_slot {
	uint64_t hash; /* 0: empty */
	uint32_t id;
	uint32_t epoch; /* collector.unload_epoch when it was defined */
};

struct text_slot {
	uint64_t hash;
	uint32_t id;	 /* 0: empty; kept when another text takes the slot */
	uint32_t record; /* writer.records when it was last asked for; such a slot is not taken */
};

/* A Python frame as it was found. */
struct python_frame {
	const void *code;
	uint64_t offset; /* of the instruction in the code, in bytes; UINT32_MAX: not begun */
};

/* Frames of our own package that are passed over at most to find those of the program. */
#define COLLECTOR_OWN_FRAMES 8u

/* What a thread writes with. Ordered by heat: the first cache line is touched by each event. */
struct writer {
	uint8_t *chunk; /* mapped chunk, NULL: none yet */
	uint32_t used;	/* bytes of it that are filled, header included */
	uint32_t
		limit; /* bytes of it that are faulted in; `used + RECORD_ROOM <= limit` means there is room */
	uint64_t base_ns; /* time base of the next delta */
	uint32_t
		inside; /* 1 while our code runs on this thread: nested events are counted, not recorded */
	uint32_t generation; /* collector_switch.generation that it belongs to; a child's differs */
	uint32_t unwinding;  /* 1 while the unwinder runs, which may hold a lock of its own then */
	uint32_t number;     /* writer number in the trace, from 1 */
	uint32_t sequence;   /* of the next chunk */
	uint32_t next_context;
	uint32_t next_stack;
	uint32_t next_text;
	uint32_t records; /* so far, of those that may have texts */
	uint32_t next_code;
	uint32_t tid;		    /* of the last thread record */
	uint32_t parked;	    /* next parked writer's number, while parked */
	const char *kernel;	    /* name of the last kernel that was launched, NULL: unknown */
	struct stack_slot *stacks;  /* COLLECTOR_STACKS slots, NULL until the first stack */
	struct python_codes *codes; /* NULL until the first Python function */
	struct python_calls *calls; /* NULL until the first call that is traced */
	uint32_t calls_generation;  /* of the tracing that this thread takes part in, 0: none */
	uint32_t
		calls_left_out; /* functions entered that are not recorded: a __torch_dispatch__ and inside */
	struct context_slot contexts[COLLECTOR_CONTEXTS];
	struct text_slot texts[COLLECTOR_TEXTS];
	void *frames[COLLECTOR_FRAMES_MAX + 16]; /* where a stack is captured */
	struct python_frame python_frames[COLLECTOR_FRAMES_MAX + COLLECTOR_OWN_FRAMES];
};

/* What the process writes to. Set up by look(), replaced in a forked child. */
struct collector {
	struct trace_header *header; /* mapping of the whole raw file, NULL: none */
	uint64_t mapped_bytes;
	uint32_t chunks_mapped; /* chunks that the mapping has room for */
	uint32_t
		generation; /* grows with each look(), so that what a child inherited is recognised */
	uint32_t pid;
	struct event_settings chosen; /* settings in force: of the window, else of the session */
	uint32_t
		wanted_state; /* enum recording chosen through the API, 0: the session's; a forked child goes on with it */
	bool window;	     /* start() was called and stop() was not */
	bool own_session;    /* no command made the session, start() did */
	bool unwinder_stuck; /* forked while a thread was unwinding: no C stacks here */
	bool settings_given; /* through the API: `settings` count instead of the session's */
	uint64_t settings
		[COLLECTOR_SETTINGS_WORDS]; /* record of them, as event_settings_encode() makes it */
	uint64_t session_settings[COLLECTOR_SETTINGS_WORDS]; /* the same of the session */
	_Atomic uint32_t
		settings_pending; /* 1: the first writer of a forked child puts them down */
	_Atomic uint32_t steps;	  /* that the API counted */
	uint32_t c_depth;	  /* frames that are asked for, as in the session */
	uint32_t python_depth;
	uint32_t python_shown;
	_Atomic uint32_t unload_epoch; /* grows with each dlclose() */
	_Atomic uint64_t
		parked; /* number of the first parked writer, and a tag against reuse in the upper half */
	struct writer **writers;       /* by number - 1 */
	_Atomic uint32_t modules_lock; /* 1 while a thread writes the module map */
	_Atomic uint64_t
		modules_adds; /* loader's count of loads the module map stands at, + 1; 0: never written */
	_Atomic uint64_t modules_subs;
	int (*backtrace)(void **frames, int count); /* libunwind's or glibc's, NULL: none */
	_Atomic uint32_t note_count;
	char notes[COLLECTOR_NOTES_MAX][256]; /* for the first writer to put down */
	char session[SESSION_PATH_MAX]; /* directory, as the environment said at the first look */
	char raw_path[SESSION_PATH_MAX + 64];
	/*
	 * Room for paths and texts: the program's threads may have stacks of 16 KiB. The first two belong to whoever is looking,
	 * the others to the holder of the module lock.
	 */
	char path_scratch[SESSION_PATH_MAX + 128];
	char text_scratch[SESSION_PATH_MAX];
	char module_path[SESSION_PATH_MAX];
	char module_text[SESSION_PATH_MAX + 512];
};

extern struct collector collector;

/* One pointer per thread, in the static TLS block: a writer, or one of these. */
#define WRITER_NONE	((struct writer *)0)
#define WRITER_BUILDING ((struct writer *)1) /* our own code is setting one up on this thread */
#define WRITER_GONE                                                                                \
	((struct writer *)2) /* the thread is being torn down; nothing is built any more */

extern __thread struct writer *collector_writer
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

/*
 * Decodes one foreign context. `key` is what the adapter's hook passed; called once per writer and distinct key.
 */
typedef void context_decode(uint64_t key, struct context *out);

/* life.c */

/*
 * Finds out whether to record and sets everything up; the first hook of a process or of a forked child comes here.
 * Returns the state to act on. Threads that come meanwhile wait for it; the thread itself, when it comes again, does not.
 */
uint32_t collector_look_slow(void);

/* Registers what runs around fork(). Calling it again does nothing. */
void collector_fork_handlers(void);

/* True when the user has switched us off. */
bool collector_is_disabled(void);

/* What the session in `directory` wants of Python code; false when it is none or we are switched off. Looks and leaves nothing. */
bool collector_wants_of(const char *directory, uint32_t *out_wants);

/* Whether the session wants tensors in host memory, without a look and thus without a trace of this process. */
bool collector_host_is_wanted(void);

/* Ends recording for good: the reason goes into the header, hooks only count from now on. */
void collector_break(enum trace_stop reason, int error);

void collector_count_loss(enum loss_cause cause);

/* Text for the trace that comes before there is a writer. It waits for a thread that becomes one, or for collector_put_notes(). */
void collector_note(const char *format, ...) MSCOPE_PRINTF(1, 2);
void collector_put_notes(void);
void writer_put_notes(struct writer *w); /* for who is inside already */

/* Settings of a session, mapped for reading and writing; NULL when there are none. To be unmapped by the caller. */
struct session *collector_session_map(char *path, size_t path_bytes, const char *directory);

/* Called by the thread library when a thread that has recorded ends. */
void collector_thread_exit(void *writer);

/* control.c */

/* Remembers what the session says; it counts until the API says otherwise. */
void control_read(const struct session *session);

/* What a session wants of Python code, enum python_wants. */
uint32_t control_wants(const struct session *session);

/* Makes the settings of the API, else those of the session, the collector's. Returns how deep C stacks are to be. */
uint32_t control_apply(void);

/* For the first writer of a forked child: puts down what the parent had chosen. */
void control_put_settings(struct writer *w);

/* Asks the engine and waits for it, at most `limit_ms` without a sign of life. 0, -ESRCH: there is no engine, -ETIMEDOUT. */
int control_request(enum trace_request kind, uint32_t limit_ms);

/* writers.c */

/*
 * The calling thread's writer, entered; NULL when the event cannot be recorded, which is then already counted. Every way
 * that is not "this thread has a writer and is not inside": first event, nested event, teardown, fork, broken.
 */
struct writer *writer_enter_slow(void);

/* Gives back a writer that writer_enter_slow() lent to a thread in teardown. */
void writer_leave_slow(struct writer *w);

/* Makes room for `bytes` more by opening the next chunk. False: no room, counted, recording broken or full. */
bool writer_next_chunk_slow(struct writer *w, uint32_t bytes);

/* 0 when the program's own limit lets its trace grow to `end` bytes, else -EFBIG. */
int raw_fits_limit(uint64_t end);

/* Number of the context, after writing its definition. 0 when there is no room. */
uint32_t writer_context_slow(struct writer *w, uint32_t source, uint64_t key,
			     context_decode *decode);

void writer_park(struct writer *w);

/* Appends a record that consists of `fixed` words (word 0 is filled in here) and a payload. */
bool writer_put(struct writer *w, uint32_t type, uint32_t context, const uint64_t *fixed,
		uint32_t fixed_words, const void *const *parts, const uint32_t *part_bytes,
		uint32_t part_count);

/*
 * Number of a text, defined when it is new; 0 for NULL or when there is no room. Good for the record that is made next: after that
 * another text may have the number.
 */
uint32_t writer_text(struct writer *w, const char *text);
uint32_t writer_text_part(struct writer *w, const char *text, size_t bytes);

/* For who keeps texts in slots of his own: a number that means this text until the same slot is used again. The same results. */
uint32_t writer_text_owned(struct writer *w, uint32_t slot, const char *text);

/* For a text that hardly comes twice: a number that means it until the same slot is used again. The same results. */
uint32_t writer_text_once(struct writer *w, uint32_t slot, const char *text);

/* Adds to the header's figures about how long our slow paths held a thread. */
void stall_end(uint64_t start_ns);

/* stacks.c */

/*
 * Id of the present call stack: C frames from `caller` outwards and Python frames, at most so many of each; defined when new. 0: none.
 */
uint32_t stack_capture(struct writer *w, const void *caller, uint32_t c_depth,
		       uint32_t python_depth);

/* Sets how deep stacks are from now on: as deep as the session asks, or none. */
void stack_switch(bool on);

/* For slow paths: an interpreter may have been loaded since the first look. */
void stack_look_again(void);

/*
 * For a forked child, with its parent's writers: false when a thread of the parent was unwinding at the fork. The lock that it may
 * have held is never released here, so this process records without stacks.
 */
bool stack_unwinder_is_free(struct writer *const *writers, uint32_t count);

/* Finds the unwinder. Called by look() when stacks are asked for. */
void stack_setup(void);

/* modules.c */

/* Writes what has been loaded and unloaded since the last call. Before any stack that may point into it. */
void modules_refresh(struct writer *w);

/* lookup.c */

/* Finds the original of a hook among the loaded objects. NULL when there is none; not searched again until more is loaded. */
void *hook_lookup_slow(unsigned int hook);

/* The first definition of `name` among the loaded objects, this library and its copies excepted; NULL when there is none. */
void *lookup_symbol(const char *name);

/* The same, and how many bytes the object has. */
void *lookup_symbol_sized(const char *name, size_t *out_bytes);

/* True when another copy of this library serves the process; this one then passes everything on to it. */
bool lookup_is_passive_quiet(void);

/* The same, and a note in the trace about copies; for look(). */
bool lookup_is_passive(void);

/* True when both addresses lie in what the loader mapped of one and the same object. */
bool lookup_is_same_object(const void *a, const void *b);

/* Directory of this library's own file with a trailing slash, from the loader. */
void lookup_own_directory(char *out, size_t bytes);

/* Adapters: forget what belongs to a parent, in a forked child; called by look(). */
void ascend_reset(void);
void torch_reset(void);

/* Adapters: the process ends by itself; take what is still to be had, quickly. */
void ascend_exit(void);

/* identity.c */

/* Fills the identity text; returns its length. */
uint32_t identity_write(char *out, uint32_t bytes);

/* Start time of this process as in /proc/self/stat, 0 when unknown. */
uint64_t identity_start_ticks(void);

#endif
