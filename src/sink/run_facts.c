/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/run_facts.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

struct loss {
	const char *name;
	const char *sentence;
};

static const struct loss losses[LOSS_END] = {
#define LOSS(number, name_, sentence_) [number] = {.name = #name_, .sentence = sentence_},
#include "trace/losses.def"
#undef LOSS
};

/* Atomic loads take no const. */
static struct trace_header *header_of(const struct run *run)
{
	return (struct trace_header *)(uintptr_t)run_header(run);
}

uint64_t run_loss(const struct run *run, int cause)
{
	return atomic_load(&header_of(run)->loss[cause]);
}

const char *loss_name(int cause)
{
	return losses[cause].name;
}

const char *loss_sentence(int cause)
{
	return losses[cause].sentence;
}

const char *run_stop_sentence(const struct run *run)
{
	switch (atomic_load(&header_of(run)->stop)) {
	case TRACE_STOP_NO_SPACE:
		return "the disk was full or the trace directory gone";
	case TRACE_STOP_FULL:
		return "the trace reached its largest size";
	case TRACE_STOP_LIMIT:
		return "the trace reached --max-disk and the engine that drops the oldest events "
		       "was gone";
	default:
		return NULL;
	}
}

int run_stop_errno(const struct run *run)
{
	return (int)atomic_load(&header_of(run)->stop_errno);
}

bool run_is_closed(const struct run *run)
{
	return atomic_load(&header_of(run)->state) == TRACE_CLOSED;
}

const char *run_signal(const struct run *run)
{
	static const char *const names[] = {
		[SIGHUP] = "SIGHUP",   [SIGINT] = "SIGINT",   [SIGQUIT] = "SIGQUIT",
		[SIGILL] = "SIGILL",   [SIGTRAP] = "SIGTRAP", [SIGABRT] = "SIGABRT",
		[SIGBUS] = "SIGBUS",   [SIGFPE] = "SIGFPE",   [SIGKILL] = "SIGKILL",
		[SIGUSR1] = "SIGUSR1", [SIGSEGV] = "SIGSEGV", [SIGUSR2] = "SIGUSR2",
		[SIGPIPE] = "SIGPIPE", [SIGALRM] = "SIGALRM", [SIGTERM] = "SIGTERM",
		[SIGXCPU] = "SIGXCPU", [SIGXFSZ] = "SIGXFSZ", [SIGSYS] = "SIGSYS",
	};
	uint32_t signal = run_header(run)->signal;

	if (signal == 0)
		return NULL;
	return signal < MSCOPE_COUNT(names) && names[signal] != NULL ? names[signal]
								     : "another signal";
}

struct run_stalls run_stalls(const struct run *run)
{
	struct trace_header *h = header_of(run);

	return (struct run_stalls){.longest_ns = atomic_load(&h->stall_max_ns),
				   .total_ns = atomic_load(&h->stall_total_ns),
				   .count = atomic_load(&h->stall_count)};
}
