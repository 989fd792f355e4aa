/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When the process looks for what keeps its memory, and what it says then. The engine judges call sites (engine/keeper_question.c)
 * and only this process can see its Python objects (python/msmemscope/_keeper.py), so one asks the other:
 *
 *     a step has ended    mscope_due(): memory has grown for some steps, by what PyTorch's allocators say themselves; a program that
 *                         does not grow gets no further than this. Then after twice as many steps, and so on.
 *     mscope_judge()      the engine reads what was recorded so far and judges
 *     mscope_question()   the call sites that leak or may leak, with addresses of some of their blocks
 *     mscope_keeper()     the answer for one of them, a record of the trace
 *
 * Where the allocators do not say how much they have handed out (an NPU, a program without preload), the engine is asked all the same,
 * and nobody waits for it: the answer comes with a later step.
 *
 * A program without steps asks nothing. The engine judges it by itself, ever more rarely (engine/keeper_question.c), and where it finds
 * that a call site leaks or may leak, the question stands in the header. The next allocation of any thread notices it, by a comparison.
 * The answer is then given where the interpreter lets foreign code run (python/who.c): not in the hook.
 *
 * In the same way a process whose host memory grows, with or without a trace, is asked which of its containers grow (trace/asked.h,
 * engine/host_question.c, python/msmemscope/_containers.py).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collector/api.h"
#include "collector/process/process.h"
#include "collector/python/who.h"
#include "collector/quiet.h"
#include "collector/record/hot.h"
#include "collector/record/refused.h"
#include "collector/sys.h"
#include "collector/torch/torch.h"
#include "trace/asked.h"

/* Steps before the engine is asked for the first time: what it says of fewer is "suspect" at best. */
#define FIRST_STEP 4u
/* Memory grows if its level rose to a new height in at least this many of the last steps; with fewer steps, in all but one. */
#define RISES_OF  8u
#define RISES_MIN 6u
/* From here on a level that is higher than at half of the steps counts as well: leaks that are slower than every step. */
#define SLOW_STEPS 32u

#define TEXTS_MAX 3072u

/* The main thread has so long to answer, before another one does: it may sleep, or wait for its threads until they end. */
#define MAIN_NS UINT64_C(1000000000)

_Atomic uint32_t torch_question_taken;

/* Steps are ended by one thread at a time; a race costs a question, and nothing else. */
static struct {
	const struct trace_header *header; /* whose steps are counted */
	uint32_t steps;
	uint32_t next;	  /* step from which on the engine may be asked again */
	uint64_t highest; /* level at the end of a step */
	uint64_t at_half; /* level when half of `next` steps had ended */
	uint32_t rises;	  /* a bit for each of the last steps */
} keeping;

static bool is_growing(uint64_t level)
{
	uint32_t least = keeping.steps < RISES_OF ? keeping.steps - 1 : RISES_MIN;
	bool rose = level > keeping.highest;

	if (rose)
		keeping.highest = level;
	keeping.rises = keeping.rises << 1 | rose;
	if (level == 0)
		return true; /* the allocators do not say */
	return (uint32_t)__builtin_popcount(keeping.rises & ((1u << RISES_OF) - 1)) >= least ||
	       (keeping.steps >= SLOW_STEPS && level > keeping.at_half);
}

MSCOPE_EXPORT uint32_t mscope_due(void)
{
	const struct trace_header *header = collector.header;
	uint64_t level;
	bool grows;

	if (recording_now() != RECORDING_ON || header == NULL)
		return DUE_NOTHING;
	if (keeping.header != header) {
		memset(&keeping, 0, sizeof(keeping));
		keeping.header = header;
		keeping.next = FIRST_STEP;
		atomic_store_explicit(&torch_question_taken, 0, memory_order_relaxed);
	}
	keeping.steps++;
	level = torch_level();
	grows = is_growing(level);
	if (atomic_load_explicit(&header->question.number, memory_order_relaxed) !=
	    atomic_load_explicit(&torch_question_taken, memory_order_relaxed))
		return DUE_ANSWER;
	if (keeping.steps < keeping.next || !grows)
		return DUE_NOTHING;
	keeping.next = 2 * keeping.steps;
	keeping.at_half = level;
	/* Nobody waits where it is not known that memory grows. */
	if (level == 0) {
		(void)control_request_within(TRACE_REQUEST_JUDGE, 0);
		return DUE_NOTHING;
	}
	return DUE_ASK;
}

/* A kind of question. */
struct asking {
	enum answer_to to;
	_Atomic uint32_t *taken; /* number of the one that was answered, or cannot be */
	/* The one that the interpreter was asked for last, and when. */
	_Atomic uint32_t asked;
	_Atomic uint64_t asked_ns;
};

/* The interpreter is asked to answer, or was and has not yet. Several threads may come. */
static void pass_on(struct asking *asking, uint32_t number)
{
	int r;

	if (refused_lately())
		return;
	if (atomic_exchange(&asking->asked, number) != number) {
		atomic_store(&asking->asked_ns, clock_ns());
		r = python_ask_answer(asking->to);
		if (r == -EBUSY)
			atomic_store(&asking->asked, 0);
		else if (r < 0)
			atomic_store(asking->taken, number);
		return;
	}
	switch (python_answer_turn()) {
	case TURN_NOBODY: /* it was answered, or could not be */
		atomic_store(asking->taken, number);
		return;
	case TURN_MAIN:
		if (clock_ns() - atomic_load(&asking->asked_ns) >= MAIN_NS)
			python_answer_aside();
		return;
	case TURN_TAKEN:
		return;
	}
}

MSCOPE_COLD void torch_question_slow(void)
{
	const struct trace_header *header = collector.header;
	uint32_t number = atomic_load_explicit(&header->question.number, memory_order_acquire);
	static struct asking asking = {.to = ANSWER_KEEPERS, .taken = &torch_question_taken};
	int saved_errno = errno;

	/* Odd: the engine is still writing it. Where steps end, each of them looks. */
	if (recording_now() != RECORDING_ON || number % 2 != 0 || collector.pid != sys_getpid() ||
	    atomic_load(&collector.steps) != 0 || atomic_load(&collector.optimizer_steps) != 0)
		return;
	if (number == 0)
		atomic_store(&torch_question_taken, 0);
	else
		pass_on(&asking, number);
	errno = saved_errno;
}

/* ---- which containers grow ---- */

_Atomic uint32_t torch_asked_taken;

/* As the engine reads it. The main thread's file: qemu-user answers for /proc/self/stat itself, with a start time of its own. */
static uint64_t start_ticks(uint32_t pid)
{
	char text[1024], *at;
	ssize_t got = -1;
	int fd, field;

	(void)snprintf(text, sizeof(text), "/proc/self/task/%u/stat", pid);
	fd = sys_open(text, O_RDONLY | O_CLOEXEC, 0);
	if (fd >= 0) {
		got = sys_read(fd, text, sizeof(text) - 1);
		sys_close(fd);
	}
	text[got > 0 ? got : 0] = '\0';
	/* The name in the second field may hold anything: the start time is the 20th after it. */
	at = strrchr(text, ')');
	for (field = 2; field < 22 && at != NULL; field++)
		at = strchr(at + 1, ' ');
	return at == NULL ? 0 : strtoull(at, NULL, 10);
}

static bool is_asked(const struct asked *asked, uint32_t pid)
{
	return asked->pid == pid &&
	       (asked->start_ticks == 0 || asked->start_ticks == start_ticks(pid));
}

MSCOPE_COLD void torch_asked_slow(void)
{
	static struct asking asking = {.to = ANSWER_CONTAINERS, .taken = &torch_asked_taken};
	const struct asked *asked = collector.asked;
	/* Pairs with the store in ask() of the engine's host_question.c. */
	uint32_t number = atomic_load_explicit(&asked->number, memory_order_acquire);
	uint32_t pid = quiet_is_on() ? 0 : sys_getpid();
	int saved_errno = errno;

	if (pid != 0 && asked->pid == pid &&
	    (atomic_load(&asking.asked) == number || is_asked(asked, pid)))
		pass_on(&asking, number);
	else
		atomic_store(&torch_asked_taken, number);
	errno = saved_errno;
}

MSCOPE_EXPORT void mscope_looked(uint64_t level_bytes, uint64_t look_bytes, uint32_t milliseconds)
{
	struct asked *asked = collector.asked;
	struct asked_look *look;
	uint32_t number;

	if (asked == NULL)
		return;
	number = atomic_fetch_add(&asked->looks, 1);
	look = &asked->look[number % ASKED_LOOKS];
	look->pid = sys_getpid();
	look->milliseconds = milliseconds;
	look->level_bytes = level_bytes;
	look->look_bytes = look_bytes;
	/* Pairs with the load in take_looks() of the engine's host_question.c. */
	atomic_store_explicit(&look->number, number + 1, memory_order_release);
}

MSCOPE_EXPORT int32_t mscope_container(uint32_t index, uint64_t items, uint64_t gained,
				       uint64_t gained_bytes, const char *texts, uint32_t bytes)
{
	struct asked *asked = collector.asked;
	struct asked_container *out;

	if (asked == NULL || index >= ASKED_CONTAINERS || bytes > ASKED_TEXT_MAX ||
	    asked->pid != sys_getpid())
		return -EINVAL;
	out = &asked->containers[index];
	out->items = items;
	out->gained = gained;
	out->gained_bytes = gained_bytes;
	out->text_bytes = bytes;
	memcpy(out->texts, texts, bytes);
	return 0;
}

MSCOPE_EXPORT int32_t mscope_containers_told(uint32_t count, uint32_t milliseconds,
					     uint64_t resident_bytes)
{
	struct asked *asked = collector.asked;

	if (asked == NULL || count > ASKED_CONTAINERS || asked->pid != sys_getpid())
		return -EINVAL;
	asked->count = count;
	asked->milliseconds = milliseconds;
	asked->resident_bytes = resident_bytes;
	/* Pairs with the load in take() of the engine's host_question.c. */
	atomic_store_explicit(&asked->answered,
			      atomic_load_explicit(&asked->number, memory_order_relaxed),
			      memory_order_release);
	return 0;
}

MSCOPE_EXPORT int32_t mscope_judge(uint32_t most_ms)
{
	/* Not by itself a reason to begin a trace. */
	if (recording_now() != RECORDING_ON || atomic_load(&collector.writers) == 0)
		return -ENOENT;
	return control_request_within(TRACE_REQUEST_JUDGE, (uint64_t)most_ms * 1000000);
}

MSCOPE_EXPORT int32_t mscope_question(char *out, uint32_t bytes)
{
	const struct trace_question *question;
	uint32_t number, words = 0, i, k, count;

	if (collector.header == NULL)
		return 0;
	question = &collector.header->question;
	/* Pairs with the stores in keeper_question(). */
	number = atomic_load_explicit(&question->number, memory_order_acquire);
	if (number == atomic_load_explicit(&torch_question_taken, memory_order_relaxed) ||
	    number % 2 != 0)
		return 0;
	for (i = 0; i < question->sites && i < QUESTION_SITES; i++) {
		count = question->site[i].count < QUESTION_BLOCKS ? question->site[i].count
								  : QUESTION_BLOCKS;
		if ((words + 1 + count) * 8 > bytes)
			break;
		for (k = 0; k <= count; k++) {
			uint64_t word = k == 0 ? count : question->site[i].addresses[k - 1];

			memcpy(out + (size_t)words++ * 8, &word, sizeof(word));
		}
	}
	atomic_thread_fence(memory_order_acquire);
	if (atomic_load_explicit(&question->number, memory_order_relaxed) != number)
		return 0;
	atomic_store_explicit(&torch_question_taken, number, memory_order_relaxed);
	return (int32_t)words;
}

MSCOPE_EXPORT int32_t mscope_keeper(uint64_t address, uint64_t items, uint64_t most, uint32_t full,
				    uint32_t renewed, uint32_t held, uint32_t looked,
				    const char *texts, uint32_t bytes)
{
	struct event_keeper event = {.text_bytes = bytes,
				     .address = address,
				     .items = items,
				     .most = most,
				     .full = full,
				     .renewed = renewed,
				     .held = held,
				     .looked = looked};
	uint64_t words[EVENT_BYTES_keeper / 8];
	const void *part = texts;
	int saved_errno = errno;
	struct writer *w;

	if (recording_now() != RECORDING_ON)
		return -ENOENT;
	if (bytes > TEXTS_MAX)
		return -E2BIG;
	w = writer_enter();
	if (w != NULL) {
		event_keeper_encode(words, &event);
		(void)writer_put(w, EVENT_keeper, 0, words, MSCOPE_COUNT(words), &part, &bytes, 1);
		writer_leave(w);
	}
	errno = saved_errno;
	return w == NULL ? -EBUSY : 0;
}
