/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plays lists of requests with the twin of PyTorch's allocator. Standard input, or the file that is named, is lines of words:
 *
 *     program                                            a list follows
 *     a ID BYTES STREAM                                  a request
 *     f ID                                               its free; of a request that was refused: nothing
 *     e                                                  empty_cache()
 *     p POOL STREAM                                      until its end, requests of the stream go to this private pool (1 to 7)
 *     q POOL                                             its end
 *     r POOL                                             the graph or MemPool of one beginning no longer uses the pool
 *     run RELEASE DEVICE_BYTES FRACTION|- SETTINGS|-     plays the list; of torch_npu with the release npu2.13
 *     expect HASH NAME=VALUE...                          what the run before must have given
 *
 * Without a file, a run prints a line "EVENT ADDRESS RESERVED" for each request ("EVENT oom 0" if it is refused) and then
 * "figures NAME=VALUE...". With a file, runs are compared: the hash is that of these lines without the figures (FNV-1a, base/hash.h).
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "twin/twin.h"

#define LANES 64u /* of a pool: a stream each */
#define POOLS 8u  /* 0 is the common one */

struct event {
	uint64_t bytes;
	uint32_t id;
	uint32_t stream;
	char kind;
};

struct player {
	struct event *events;
	size_t event_count, event_room;
	uint32_t *blocks;     /* by id; TWIN_NONE: none */
	uint32_t to[LANES];   /* pool that each stream requests from */
	uint32_t uses[POOLS]; /* graphs and MemPools that use a pool */
	size_t block_room;
	uint32_t id_most;
	bool quiet;
	uint64_t hash;
	char run[400];	   /* the last line "run" */
	char figures[400]; /* what it gave */
	unsigned int runs, wrong;
};

static void must(int status, const char *what)
{
	if (status == 0)
		return;
	fprintf(stderr, "twin_player: %s: %d\n", what, status);
	exit(1);
}

MSCOPE_PRINTF(2, 3) static void say(struct player *p, const char *format, ...)
{
	char line[100];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	p->hash = hash_add(p->hash, line, strlen(line));
	if (!p->quiet)
		fputs(line, stdout);
}

static void play_request(struct player *p, struct twin *twin, size_t number)
{
	const struct event *e = &p->events[number];
	uint32_t block;

	must(twin_request(twin, p->to[e->stream] * LANES + e->stream, e->bytes, &block),
	     "twin_request");
	p->blocks[e->id] = block;
	if (block == TWIN_NONE)
		say(p, "%zu oom 0\n", number);
	else
		say(p, "%zu %" PRIx64 " %" PRIu64 "\n", number, twin_address(twin, block),
		    twin_figures(twin)->reserved);
}

/* A stream of a private pool, or its end. */
static void play_pool(struct player *p, struct twin *twin, const struct event *e)
{
	if (e->kind == 'p') {
		p->to[e->stream] = e->id;
		p->uses[e->id]++;
	} else if (e->kind == 'r') {
		p->uses[e->id]--;
	}
	for (uint32_t i = 0; i < LANES; i++) {
		if (e->kind == 'q' && p->to[i] == e->id)
			p->to[i] = 0;
		if (e->kind == 'r' && p->uses[e->id] == 0)
			twin_pool_unused(twin, e->id * LANES + i);
	}
	if (e->kind != 'r')
		twin_capturing(twin, e->kind == 'p');
}

static int64_t play(struct player *p, struct twin *twin)
{
	int64_t first = -1;

	memset(p->to, 0, sizeof(p->to));
	memset(p->uses, 0, sizeof(p->uses));
	for (size_t i = 0; i < p->event_count; i++) {
		const struct event *e = &p->events[i];

		if (strchr("pqr", e->kind) != NULL) {
			play_pool(p, twin, e);
		} else if (e->kind == 'e') {
			must(twin_empty_cache(twin), "twin_empty_cache");
		} else if (e->kind == 'a') {
			play_request(p, twin, i);
			if (p->blocks[e->id] == TWIN_NONE && first < 0)
				first = (int64_t)i;
		} else if (p->blocks[e->id] != TWIN_NONE) {
			must(twin_release(twin, p->blocks[e->id]), "twin_release");
			p->blocks[e->id] = TWIN_NONE;
		}
	}
	return first;
}

static void run(struct player *p, const char *line)
{
	struct twin_conditions c = {0};
	struct mscope_error err = {0};
	char release[32], fraction[32], settings[256];
	struct twin *twin;
	const struct twin_figures *f;
	int64_t first;

	if (sscanf(line, "run %31s %" SCNu64 " %31s %255s", release, &c.device_bytes, fraction,
		   settings) != 4)
		must(-1, line);
	must(twin_release_parse(release + (strncmp(release, "npu", 3) == 0 ? 3 : 0),
				strncmp(release, "npu", 3) == 0, &c.release, &err),
	     err.message);
	must(twin_settings_parse(strcmp(settings, "-") == 0 ? "" : settings, &c.release,
				 &c.settings, &err),
	     err.message);
	c.capacity_bytes = c.device_bytes;
	c.limit_bytes = twin_limit_of_fraction(
		&c.release, strcmp(fraction, "-") == 0 ? -1 : strtod(fraction, NULL),
		c.device_bytes);
	must(twin_new(&c, &twin), "twin_new");
	must(twin_lane(twin, LANES - 1, false), "twin_lane");
	for (uint32_t i = LANES; i < POOLS * LANES; i++)
		must(twin_lane(twin, i, true), "twin_lane");
	must(array_reserve(&p->blocks, &p->block_room, (size_t)p->id_most + 1, sizeof(*p->blocks)),
	     "array");
	memset(p->blocks, 0xff, ((size_t)p->id_most + 1) * sizeof(*p->blocks));
	p->hash = HASH_BEGIN;
	p->runs++;
	first = play(p, twin);
	f = twin_figures(twin);
	snprintf(p->figures, sizeof(p->figures),
		 "reserved_peak=%" PRIu64 " active_peak=%" PRIu64 " allocated_peak=%" PRIu64
		 " requested_peak=%" PRIu64 " reserved=%" PRIu64 " device_alloc=%" PRIu64
		 " device_free=%" PRIu64 " retries=%" PRIu64 " ooms=%" PRIu64 " first_oom=%" PRId64,
		 f->reserved_peak, f->active_peak, f->in_use_peak, f->requested_peak, f->reserved,
		 f->device_allocs, f->device_frees, f->retries, f->refusals, first);
	if (!p->quiet)
		printf("figures %s\n", p->figures);
	snprintf(p->run, sizeof(p->run), "%s", line);
	twin_free(twin);
}

static void expect(struct player *p, const char *line)
{
	char got[500];

	snprintf(got, sizeof(got), "expect %016" PRIx64 " %s\n", p->hash, p->figures);
	if (strcmp(got, line) == 0)
		return;
	p->wrong++;
	printf("%s%s%s", p->run, line, got);
}

static void read_event(struct player *p, const char *line)
{
	struct event e = {.kind = line[0]};

	if ((e.kind == 'a' &&
	     sscanf(line, "a %" SCNu32 " %" SCNu64 " %" SCNu32, &e.id, &e.bytes, &e.stream) != 3) ||
	    (e.kind == 'f' && sscanf(line, "f %" SCNu32, &e.id) != 1) ||
	    (e.kind == 'p' && sscanf(line, "p %" SCNu32 " %" SCNu32, &e.id, &e.stream) != 2) ||
	    ((e.kind == 'q' || e.kind == 'r') && sscanf(line, "%*c %" SCNu32, &e.id) != 1) ||
	    (strchr("pqr", e.kind) != NULL && (e.id == 0 || e.id >= POOLS)) ||
	    strchr("afepqr", e.kind) == NULL || e.stream >= LANES || e.id > 100000000)
		must(-1, line);
	if (e.id > p->id_most)
		p->id_most = e.id;
	must(array_reserve(&p->events, &p->event_room, p->event_count + 1, sizeof(*p->events)),
	     "array");
	p->events[p->event_count++] = e;
}

int main(int argc, char **argv)
{
	struct player p = {.quiet = argc > 1};
	FILE *in = argc > 1 ? fopen(argv[1], "r") : stdin;
	char line[1024];

	if (in == NULL)
		must(-1, argv[1]);
	while (fgets(line, sizeof(line), in) != NULL) {
		if (line[0] == '#')
			continue;
		if (strncmp(line, "program", 7) == 0)
			p.event_count = 0;
		else if (strncmp(line, "run ", 4) == 0)
			run(&p, line);
		else if (strncmp(line, "expect ", 7) == 0)
			expect(&p, line);
		else
			read_event(&p, line);
	}
	if (p.quiet)
		printf("%u of %u runs are as the real allocators did them\n", p.runs - p.wrong,
		       p.runs);
	free(p.events);
	free(p.blocks);
	return p.wrong != 0 || p.runs == 0;
}
