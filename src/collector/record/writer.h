/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a thread writes with, and the slow paths of writing. hot.h has what runs for each event.
 *
 * A struct writer belongs to one thread at a time. Functions that take one are called by that thread, between writer_enter() and
 * writer_leave(), and leave errno as it was where they say nothing else.
 */
#ifndef MSCOPE_COLLECTOR_RECORD_WRITER_H
#define MSCOPE_COLLECTOR_RECORD_WRITER_H

#include "collector/collector.h"
#include "collector/interp/interpreter.h"
#include "collector/unwind/known_walks.h"
#include "trace/context.h"
#include "trace/record.h"

#define WRITERS_MAX	      65536u
#define WRITER_CONTEXTS	      64u   /* slots of the context table, a power of two */
#define WRITER_CONTEXT_PROBES 16u   /* of these, tried for one context */
#define WRITER_STACKS	      4096u /* slots of the stack table, a power of two */
#define WRITER_TEXTS	      1024u /* slots of the text table, a power of two */
#define WRITER_KNOWN_TEXTS    1024u /* slots of the table of their keys, a power of two */
#define WRITER_TEXT_PROBES    8u    /* of these, tried for one text; more than a record has texts */
#define WRITER_TEXT_MAX	      4096u /* bytes of a text that are kept */
#define WRITER_RANGES	      32u   /* open ranges of a thread whose ends are known */
#define WRITER_FRAMES_MAX     1000u /* frames of a stack, of C and of Python each */

/* A range that a thread pushed, and will pop. */
struct open_range {
	uint32_t range;
	uint32_t domain; /* number that its interface gives to its domain, 0: the default one */
};

struct context_slot {
	uint64_t key;
	uint32_t source;
	uint32_t id; /* 0: empty */
};

struct stack_slot {
	uint64_t hash; /* 0: empty */
	uint32_t id;
	uint32_t epoch; /* modules_epoch when it was defined */
};

struct text_slot {
	uint64_t hash;
	uint32_t id;	 /* 0: empty; kept when another text takes the slot */
	uint32_t record; /* writer.records when it was last asked for; such a slot is not taken */
};

/* A text that was asked for by a key, which is not the text. */
struct known_text {
	uint64_t key;
	uint64_t hash; /* of the text; another one in its slot: it was evicted */
	uint32_t slot;
};

struct known_codes;
struct call_state;
struct torch_operator;
struct torch_call;

/*
 * Ordered by heat: the first cache line is touched by each event, the second one by each with a C stack, a third one, of a context, by
 * each that has one.
 */
struct writer {
	uint8_t *chunk; /* mapped chunk, NULL: none yet */
	uint32_t used;	/* bytes of it that are filled, header included */
	/* Bytes of a chunk, 0 without one; `used + RECORD_ROOM <= limit` means there is room. */
	uint32_t limit;
	uint64_t base_ns; /* time base of the next delta */
	/*
	 * The stack pointer of our code while it runs on this thread, else 0. Nested events are counted, not recorded; one that
	 * finds this frame gone goes on with another writer.
	 */
	uint64_t entered;
	uint32_t generation; /* collector_switch.generation that it belongs to; a child's differs */
	uint32_t made;	     /* records in this chunk */
	struct stack_slot *stacks; /* WRITER_STACKS slots, NULL until the first stack */
	struct call_state *calls;  /* NULL until the first call that is traced */
	uint32_t calls_generation; /* of the tracing that this thread takes part in, 0: none */
	/* Functions entered that are not recorded: a __torch_dispatch__ and inside. */
	uint32_t calls_left_out;
	_Alignas(64) struct known_walks walks;
	struct own_stack stack; /* of the thread that has the writer */
	_Alignas(64) struct context_slot contexts[WRITER_CONTEXTS];
	uint32_t number;   /* writer number in the trace, from 1 */
	uint32_t sequence; /* of the next chunk */
	uint32_t next_context;
	uint32_t next_stack;
	uint32_t next_text;
	uint32_t records;     /* so far, of those that may have texts */
	uint64_t made_before; /* records in the chunks before it */
	uint64_t opened_ns;   /* base time of the chunk */
	uint32_t next_code;
	uint32_t tid;		   /* of the last thread record */
	uint32_t parked;	   /* next parked writer's number, while parked */
	const char *kernel;	   /* name of the last kernel that was launched, NULL: unknown */
	struct known_codes *codes; /* NULL until the first Python function */
	/* Record of the framework's operator that this thread is in, NULL: none; the operator, NULL: not recorded; its device. */
	const void *operator_record;
	const struct torch_operator *op;
	uint64_t operator_key;
	bool operator_alone; /* nobody else is told of that operator */
	bool asked_alone;    /* nor of the next one */
	/* The place that the framework's next record comes from, NULL: unknown; and a record that has dispatch keys and no inputs. */
	struct torch_call *asked;
	const void *keys_record;
	uint64_t keys;
	struct open_range ranges[WRITER_RANGES]; /* pushed and not popped, outermost first */
	uint32_t range_count;			 /* with those beyond WRITER_RANGES */
	struct text_slot texts[WRITER_TEXTS];
	struct known_text known_texts[WRITER_KNOWN_TEXTS];
	void *frames[WRITER_FRAMES_MAX + 16]; /* where a stack is captured */
	struct interp_frame python_frames[WRITER_FRAMES_MAX + INTERP_OWN_FRAMES];
};

_Static_assert(offsetof(struct writer, walks) == 64, "the first cache line");
_Static_assert(offsetof(struct writer, stack) + offsetof(struct own_stack, reads) == 128,
	       "the second one");

/* One pointer per thread, in the static TLS block: a writer, or one of these. */
#define WRITER_NONE	((struct writer *)0)
#define WRITER_BUILDING ((struct writer *)1) /* our own code is setting one up on this thread */
#define WRITER_GONE	((struct writer *)2) /* the thread is torn down: nothing is built any more */
/* What only writer_enter_memory() returns: there is no session yet, and live blocks are kept in a table (early.h). */
#define WRITER_EARLY ((struct writer *)3)

extern MSCOPE_HIDDEN __thread struct writer *collector_writer
	__attribute__((tls_model("initial-exec")));

/* Which decoder a context key belongs to. Those of a vendor's own are SOURCE_OF_VENDOR(vendor) and up. */
enum context_source {
	SOURCE_DEVICE = 1,
	SOURCE_TORCH = 2,
};
#define SOURCE_OF_VENDOR(vendor) ((uint32_t)(vendor) << 8)

/* Decodes one foreign context. `key` is what the adapter's hook passed; called once per writer and distinct key. */
typedef void context_decode(uint64_t key, struct context *out);

/* Before the first event of a process or of a forked child: no writers yet. -ENOMEM. */
int writers_setup(void);

/*
 * The calling thread's writer, entered; NULL when the event cannot be recorded, which is then already counted. Every way
 * that is not "this thread has a writer and has not entered it": first event, nested event, teardown, fork, broken.
 */
struct writer *writer_enter_slow(void);

/* The same for memory, with WRITER_EARLY. */
struct writer *writer_enter_memory_slow(void);

/*
 * A writer for the thread that attaches, before the switch is on, and back: what it writes comes before the events of all threads.
 * NULL: none.
 */
struct writer *writer_borrow(void);
void writer_give_back(struct writer *w);

/* When recording is off: waits until no thread is inside an event, 0.1 s at most. Not for events of threads that were left. */
void writers_drain(void);

/* Takes back a writer that writer_enter_slow() lent to a thread in teardown. */
void writer_leave_slow(struct writer *w);

/* Makes room for `bytes` more by opening the next chunk. False: no room, counted, recording broken or full. */
bool writer_next_chunk_slow(struct writer *w, uint32_t bytes);

/* Records that all writers have made. */
uint64_t writers_made(void);

/* Number of the context, after writing its definition. 0 when there is no room. */
uint32_t writer_context_slow(struct writer *w, uint32_t source, uint64_t key,
			     context_decode *decode);

/* The same for something that happens on a device and is no memory; the key is a device_key(). */
uint32_t writer_device(struct writer *w, uint64_t key);

/* Appends a record that consists of `fixed` words (word 0 is filled in here) and a payload. False: no room, counted. */
bool writer_put(struct writer *w, uint32_t type, uint32_t context, const uint64_t *fixed,
		uint32_t fixed_words, const void *const *parts, const uint32_t *part_bytes,
		uint32_t part_count);

/*
 * Number of a text, defined when it is new; 0 for NULL or when there is no room. Good for the record that is made next: after that
 * another text may have the number.
 */
uint32_t writer_text(struct writer *w, const char *text);
uint32_t writer_text_part(struct writer *w, const char *text, size_t bytes);

/*
 * The same for a text that a key stands for, always: the address of a text that stays, or a hash of what it is made from with the
 * highest bit set. writer_text_known() gives 0 where it does not know the key, and writer_text_learn() gets the text then.
 */
MSCOPE_INLINE uint32_t writer_text_known(struct writer *w, uint64_t key)
{
	const struct known_text *known = &w->known_texts[key * UINT64_C(0x9e3779b97f4a7c15) >> 54 &
							 (WRITER_KNOWN_TEXTS - 1)];
	struct text_slot *slot = &w->texts[known->slot];

	if (known->key != key || slot->hash != known->hash)
		return 0;
	slot->record = w->records;
	return slot->id;
}
uint32_t writer_text_learn(struct writer *w, uint64_t key, const char *text, size_t bytes);

/* For a caller that keeps texts in slots of its own: a number that means this text until the slot is used again. 0 as above. */
uint32_t writer_text_owned(struct writer *w, uint32_t slot, const char *text);

/* For a text that hardly comes twice: a number that means it until the same slot is used again. 0 as above. */
uint32_t writer_text_once(struct writer *w, uint32_t slot, const char *text);

/* Writes the notes that wait; the second is for a caller that has entered no writer. */
void writer_put_notes(struct writer *w);
void collector_write_notes(void);

/* Writes collector.settings. */
void writer_put_settings(struct writer *w);

/* Adds to the header's figures about how long our slow paths held a thread. */
void writer_stall_end(uint64_t start_ns);

#endif
