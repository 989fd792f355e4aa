/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the PyTorch adapters share.
 *
 *     c10.c        memory, as PyTorch's own allocators report it
 *     pool.c       what the pool on CUDA tells about it besides
 *     callback.c   operators and the tensors that they take and give, as PyTorch tells its observers
 *     operators.c, schema.c, objects.c   what it needs for that: which operator, what it reads and writes, where objects have it
 *     ops.c        the same, as our Python code reports it where the callback cannot be used
 *     marks.c      the same, as the Python code of older tools reports it: in texts of mstx marks
 */
#ifndef MSCOPE_COLLECTOR_TORCH_H
#define MSCOPE_COLLECTOR_TORCH_H

#include "collector/loader/hook.h"
#include "collector/record/hot.h"
#include "collector/torch/marks.h"
#include "collector/vendor.h"
#include "trace/asked.h"

struct c10_device;

#define HOOK HOOK_DECLARE
#include "collector/torch/hooks.def"
#undef HOOK
#define SLOT SLOT_DECLARE
#include "collector/torch/slots.def"
#undef SLOT

/* For SOURCE_TORCH; the key is a device_key(). Tensors of the host are in no pool, those of any device in PyTorch's. */
void torch_decode(uint64_t key, struct context *out);

/* Whether this process has seen a report of PyTorch's pool on CUDA. */
bool torch_pool_has_reported(void);

/*
 * An operator of this thread begins or ended (enum operation_kind), and takes or gives a tensor, on the device of the key. Nothing
 * is written while recording is not on.
 */
void torch_operation(uint32_t kind, uint64_t key, struct text_span name, const void *caller);
void torch_tensor_access(uint64_t key, const struct torch_access *access, const void *caller);

/* Tensors in one batch. With the name of the operator they have fewer texts than a writer keeps for one record. */
#define TORCH_BATCH_TENSORS 3u

/* A tensor that an operator takes or gives. What it points to stays until it is recorded. */
struct torch_touch {
	uint64_t key; /* device_key() */
	uint64_t address;
	uint64_t size_bytes;
	uint32_t kind;	   /* enum access_kind */
	const char *dtype; /* a text that stays */
	const int64_t *sizes;
	uint64_t dims;
};

/* What happens of an operator at one moment: its beginning, or tensors, or its end. */
struct torch_batch {
	uint64_t key;	  /* device_key() of the operator */
	const char *name; /* a text that stays */
	uint32_t name_bytes;
	uint32_t begins : 1, ended : 1;
	uint32_t count; /* of tensors */
	struct torch_touch touches[TORCH_BATCH_TENSORS];
};

/* Records it with one reading of the clock, and the tensors not again: `count` and `begins` are 0 then. */
void torch_batch_put(struct torch_batch *batch, const void *caller);

/*
 * True when the message was one of these: then it is recorded as what it says, and is no mark. NULL is none. The devices that it
 * is about are the vendor's; one that names none is about the device that this thread has set.
 */
bool aten_mark_take(const char *message, enum vendor vendor, const void *caller);

/* What PyTorch's allocators have handed out in all, as they say; 0: they have not said anything. */
uint64_t torch_level(void);

/* keeping.c: number of the engine's question that was taken last; and what is to be done about a later one. */
extern MSCOPE_HIDDEN _Atomic uint32_t torch_question_taken;
void torch_question_slow(void);

/* The same of its question about containers, to any process of the session. */
extern MSCOPE_HIDDEN _Atomic uint32_t torch_asked_taken;
void torch_asked_slow(void);

/* Where frameworks allocate memory, of the host too: this is where that question is noticed. */
MSCOPE_INLINE void torch_notice_asked(void)
{
	const struct asked *asked = collector.asked;

	if (MSCOPE_UNLIKELY(asked != NULL &&
			    atomic_load_explicit(&asked->number, memory_order_relaxed) !=
				    atomic_load_explicit(&torch_asked_taken, memory_order_relaxed)))
		torch_asked_slow();
}

/* After an allocation of any framework's pool: in a program without steps this is where a question of the engine is noticed. */
MSCOPE_INLINE void torch_notice_question(void)
{
	const struct trace_header *header = collector.header;

	if (MSCOPE_UNLIKELY(
		    header != NULL &&
		    atomic_load_explicit(&header->question.number, memory_order_relaxed) !=
			    atomic_load_explicit(&torch_question_taken, memory_order_relaxed)))
		torch_question_slow();
	torch_notice_asked();
}

#endif
