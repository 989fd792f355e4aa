/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client_mstx [--threads=N] [--rounds=N] [--memory]: a program that marks where it is, as the manuals show it and as people do
 * beyond that: ranges inside ranges, ranges that end in another order or on another thread, domains, no message at all, and
 * messages that a careless writer of csv or JSON would spoil. It needs no device unless --memory is said: then a step takes
 * some, and leaves every third block behind.
 */
#include "client.h"

#include "mstx/ms_tools_ext.h"

static const char *const messages[] = {
	NULL,
	"",
	"plain",
	"with, comma",
	"with \"quotes\" and 'others'",
	"two\nlines",
	"tab\tinside",
	"训练第一步",
	"emoji \xf0\x9f\x9a\x80",
	"=1+1",
	"+sum",
	"-minus",
	"@at",
	"{braces:1,addr:0x0}",
	"back\\slash",
	"N/A",
	" leading and trailing ",
	"bell \x07 and escape \x1b[31m",
};

enum { MESSAGE_COUNT = sizeof(messages) / sizeof(messages[0]) };

static unsigned rounds_count;
static bool takes_memory;
static mstxDomainHandle_t domain;
static const char domain_name[] = "client";

static void mark(struct log *log, const char *message, bool in_domain)
{
	if (in_domain)
		mstxDomainMarkA(domain, message, NULL);
	else
		mstxMarkA(message, NULL);
	log_begin(log, "mark", 0);
	log_string(log, in_domain ? domain_name : NULL);
	log_string(log, message);
	log_end(log);
}

static uint64_t range_start(struct log *log, const char *message, bool in_domain)
{
	uint64_t id = in_domain ? mstxDomainRangeStartA(domain, message, NULL)
				: mstxRangeStartA(message, NULL);

	log_begin(log, "range_start", id);
	log_string(log, in_domain ? domain_name : NULL);
	log_string(log, message);
	log_end(log);
	return id;
}

static void range_end(struct log *log, uint64_t id, bool in_domain)
{
	if (in_domain)
		mstxDomainRangeEnd(domain, id);
	else
		mstxRangeEnd(id);
	log_begin(log, "range_end", id);
	log_string(log, in_domain ? domain_name : NULL);
	log_end(log);
}

/* The manual's example, with work inside. */
static void step(struct log *log, unsigned round)
{
	struct segment segment;
	uint64_t id;

	mark(log, "MarkA", false);
	id = range_start(log, "step start", false);
	if (takes_memory) {
		segment = segment_alloc(log, (round + 1) * 4096, 0);
		if (round % 3 != 2)
			segment_free(log, &segment);
	}
	range_end(log, id, false);
}

static void *work(void *argument)
{
	struct log *log = log_new();
	uint64_t outer;
	uint64_t inner;

	for (unsigned round = 0; round < rounds_count; round++) {
		step(log, round);
		outer = range_start(log, "outer", false);
		inner = range_start(log, "inner", false);
		for (unsigned i = 0; i < MESSAGE_COUNT; i++)
			mark(log, messages[i], i % 4 == 1);
		range_end(log, inner, false);
		range_end(log, outer, false);
		/* Crossed: the one that began first ends first. */
		outer = range_start(log, "crossed", true);
		inner = range_start(log, messages[round % MESSAGE_COUNT], false);
		range_end(log, outer, true);
		range_end(log, inner, false);
	}
	/* The main thread ends it. */
	*(uint64_t *)argument = range_start(log, "ends elsewhere", false);
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned threads_count = option_number(argc, argv, "--threads", 1);
	pthread_t *threads = calloc(threads_count, sizeof(*threads));
	uint64_t *ranges = calloc(threads_count, sizeof(*ranges));
	struct log *log = log_new();

	rounds_count = option_number(argc, argv, "--rounds", 5);
	takes_memory = option_set(argc, argv, "--memory");
	target_check(threads != NULL && ranges != NULL, "no memory");
	domain = mstxDomainCreateA(domain_name);
	for (unsigned i = 0; i < threads_count; i++)
		target_check(pthread_create(&threads[i], NULL, work, &ranges[i]) == 0,
			     "pthread_create failed");
	for (unsigned i = 0; i < threads_count; i++) {
		pthread_join(threads[i], NULL);
		range_end(log, ranges[i], false);
	}
	mstxDomainDestroy(domain);
	log_write("mstx", threads_count > 0 && ranges[0] != 0);
	return 0;
}
