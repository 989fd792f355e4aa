/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/host_question.h"

#include <string.h>
#include <sys/mman.h>

#include "analysis/host.h"
#include "trace/builder.h"
#include "trace/run.h"

#define JUDGE_NS       UINT64_C(500000000)
#define FIRST_PAUSE_NS UINT64_C(4000000000)
/* One that has not answered by then has no interpreter, or does nothing that we notice. */
#define ANSWER_NS    UINT64_C(10000000000)
#define GROWING_MAX  64u
#define RECORD_WORDS (EVENT_BYTES_host_container / 8 + (ASKED_TEXT_MAX + 7) / 8)

static bool belongs(const struct session_run *item, uint32_t pid)
{
	size_t i;

	if (item->process.pid == pid)
		return true;
	for (i = 0; i < item->host.count; i++) {
		if (item->host.members[i].pid == pid)
			return true;
	}
	return false;
}

/* ---- the answer ---- */

/* Texts that do not end are another program's doing. */
static bool is_whole(const struct asked_container *container)
{
	return container->text_bytes > 0 && container->text_bytes <= ASKED_TEXT_MAX &&
	       container->texts[container->text_bytes - 1] == '\0';
}

static void put(const struct runs *runs, const struct host_asked *process, uint32_t rank,
		const struct asked *asked, const struct asked_container *container, uint64_t now_ns)
{
	uint64_t words[RECORD_WORDS] = {0};
	uint32_t payload = (container->text_bytes + 7) / 8;
	struct event_host_container event = {
		.bytes = EVENT_BYTES_host_container + payload * 8,
		.text_bytes = container->text_bytes,
		.pid = process->inner,
		.milliseconds = asked->milliseconds,
		.items = container->items,
		.rank = rank,
		.gained = container->gained,
		.gained_bytes = container->gained_bytes,
		.resident_bytes = asked->resident_bytes,
	};
	size_t i;

	for (i = 0; i < runs->count; i++) {
		struct session_run *item = runs->items[i];

		if (item->done || item->pipeline.finished || !belongs(item, process->pid))
			continue;
		event_host_container_encode(words, &event);
		memcpy(words + EVENT_BYTES_host_container / 8, container->texts,
		       container->text_bytes);
		(void)run_inject(item->pipeline.run, EVENT_host_container, now_ns, words,
				 EVENT_BYTES_host_container / 8 + payload);
	}
}

static void take(struct host_question *question, const struct runs *runs, uint64_t now_ns)
{
	static const struct asked_container none;
	/* A copy: the process may write at any time. */
	struct asked asked;
	uint32_t i;

	memcpy((void *)&asked, (const void *)question->asked, sizeof(asked));
	/* The first look has nothing to compare with. */
	if (asked.milliseconds == 0 || asked.count > ASKED_CONTAINERS)
		return;
	for (i = 0; i < asked.count; i++) {
		if (is_whole(&asked.containers[i]))
			put(runs, question->waits_for, i, &asked, &asked.containers[i], now_ns);
	}
	if (asked.count == 0)
		put(runs, question->waits_for, 0, &asked, &none, now_ns);
}

/* ---- what looking took ---- */

/* The process with this number of its own; `pid` 0: it was not found. */
static struct host_asked find(const struct session_run *item, uint32_t inner)
{
	struct host_asked found = {.inner = inner};
	size_t i;

	if (run_header(item->pipeline.run)->pid == inner) {
		found.pid = item->process.pid;
		found.start_ticks = item->process.start_ticks;
	}
	for (i = 0; i < item->host.count && found.pid == 0; i++) {
		if (item->host.members[i].inner == inner) {
			found.pid = item->host.members[i].pid;
			found.start_ticks = item->host.members[i].start_ticks;
		}
	}
	return found;
}

static void put_look(const struct runs *runs, const struct asked_look *look, uint64_t now_ns)
{
	uint64_t words[EVENT_BYTES_host_container / 8];
	const struct event_host_container event = {
		.bytes = EVENT_BYTES_host_container,
		.pid = look->pid,
		.level_bytes = look->level_bytes,
		.look_bytes = look->look_bytes,
		.look_milliseconds = look->milliseconds,
	};
	size_t i;

	for (i = 0; i < runs->count; i++) {
		struct session_run *item = runs->items[i];

		if (item->done || item->pipeline.finished || find(item, look->pid).pid == 0)
			continue;
		event_host_container_encode(words, &event);
		(void)run_inject(item->pipeline.run, EVENT_host_container, now_ns, words,
				 MSCOPE_COUNT(words));
	}
}

static void take_looks(struct host_question *question, const struct runs *runs, uint64_t now_ns)
{
	const struct asked *asked = question->asked;
	uint32_t looks = atomic_load(&asked->looks);

	if (looks - question->looks_taken > ASKED_LOOKS)
		question->looks_taken = looks - ASKED_LOOKS;
	while (question->looks_taken != looks) {
		const struct asked_look *look = &asked->look[question->looks_taken % ASKED_LOOKS];

		/* Pairs with the store in mscope_looked(). One that was never finished is passed over by later ones. */
		if (atomic_load_explicit(&look->number, memory_order_acquire) !=
		    question->looks_taken + 1)
			break;
		put_look(runs, look, now_ns);
		question->looks_taken++;
	}
}

/* ---- the question ---- */

static void ask(struct host_question *question, struct host_asked *process, uint64_t now_ns)
{
	struct asked *asked = question->asked;

	asked->pid = process->inner;
	asked->start_ticks = process->start_ticks;
	/* Pairs with the load in torch_asked_slow() of the collector. */
	atomic_store_explicit(&asked->number, atomic_load(&asked->number) + 1,
			      memory_order_release);
	process->pause_ns = process->pause_ns == 0 ? FIRST_PAUSE_NS : 2 * process->pause_ns;
	process->next_ns = now_ns + process->pause_ns;
	question->waits_for = process;
	question->since_ns = now_ns;
}

/* That it was asked before; NULL: it was not. */
static struct host_asked *entry_of(struct host_question *question, const struct host_asked *process)
{
	uint32_t i;

	for (i = 0; i < question->count; i++) {
		if (question->all[i].pid == process->pid &&
		    question->all[i].start_ticks == process->start_ticks)
			return &question->all[i];
	}
	return NULL;
}

/* In place of the one that would be asked first, where there is no room: most likely it has ended. */
static struct host_asked *add(struct host_question *question, const struct host_asked *process)
{
	struct host_asked *entry = &question->all[0];
	uint32_t i;

	if (question->count < HOST_ASKED_MAX)
		entry = &question->all[question->count++];
	for (i = 0; i < question->count && entry->pid != 0; i++) {
		if (question->all[i].next_ns < entry->next_ns)
			entry = &question->all[i];
	}
	*entry = *process;
	return entry;
}

/* Of each group of processes one that was asked before, else the first; the first of those that is due. */
static struct host_asked *choose(struct host_question *question, const struct session_run *item,
				 uint64_t now_ns)
{
	struct host_growing growing[GROWING_MAX];
	size_t count = host_growing(&item->pipeline.pass.analyses, item->pipeline.pass.replay,
				    growing, GROWING_MAX),
	       i, k;

	for (i = 0; i < count; i++) {
		struct host_asked first = {0}, *entry = NULL;

		for (k = i; k < count && growing[i].group == i && entry == NULL; k++) {
			struct host_asked process = find(item, growing[k].pid);

			if (growing[k].group != i || process.pid == 0)
				continue;
			entry = entry_of(question, &process);
			first = first.pid == 0 ? process : first;
		}
		if (entry != NULL ? now_ns >= entry->next_ns : first.pid != 0)
			return entry != NULL ? entry : add(question, &first);
	}
	return NULL;
}

void host_question_look(struct host_question *question, const struct runs *runs, uint64_t now_ns)
{
	size_t i;

	if (!question->tried && runs->count > 0) {
		question->tried = true;
		question->asked = session_asked(question->place);
	}
	if (question->asked == NULL)
		return;
	take_looks(question, runs, now_ns);
	if (question->waits_for != NULL) {
		uint32_t number = atomic_load(&question->asked->number);
		/* Pairs with the store in mscope_containers_told(). */
		bool answered = atomic_load_explicit(&question->asked->answered,
						     memory_order_acquire) == number;

		if (answered)
			take(question, runs, now_ns);
		if (answered || now_ns - question->since_ns >= ANSWER_NS)
			question->waits_for = NULL;
	}
	if (question->waits_for != NULL || now_ns < question->judge_ns)
		return;
	question->judge_ns = now_ns + JUDGE_NS;
	for (i = 0; i < runs->count && question->waits_for == NULL; i++) {
		struct session_run *item = runs->items[i];
		struct host_asked *process;

		if (item->done || item->pipeline.finished || item->pipeline.ending ||
		    item->pipeline.pass.replay == NULL)
			continue;
		process = choose(question, item, now_ns);
		if (process == NULL)
			continue;
		log_debug(&item->pipeline.log, "process %u is asked which containers grow",
			  process->inner);
		ask(question, process, now_ns);
	}
}

void host_question_fini(struct host_question *question)
{
	if (question->asked != NULL)
		(void)munmap(question->asked, sizeof(*question->asked));
}
