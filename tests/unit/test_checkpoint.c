/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims about replay/checkpoint.c and what each part saves: a replay that begins with a checkpoint is, in every part, the replay
 * that wrote it, and goes on in the same way. Traces are random ones with every kind of event, those of tests/fixtures, and those
 * that the variable MSCOPE_TEST_TRACES names (packed, separated by ':').
 */
#include "replay/watches.h"
#include "symbols/elf_cache.h"
#include "unit.h"

#include "analysis/analyses.h"
#include "replay_text.h"
#include "trace/builder.h"
#include "trace/session.h"
#include "trace_maker.h"

static void path_in(char out[300], const char *name)
{
	(void)snprintf(out, 300, "%s/%s", unit_directory, name);
}

/* ---- players ---- */

#define LONG(value) ((unsigned long long)(value))

static const char *or_none(const char *text)
{
	return text == NULL ? "-" : text;
}

/* Every member of a row. */
static int keep_row(void *arg, struct replay *replay, const struct row *row)
{
	(void)replay;
	strbuf_addf(arg, "%llu %u %llu %u %u %u %u:%u %s %u %s %u %u%s%s", LONG(row->id), row->kind,
		    LONG(row->time_ns), row->pid, row->tid, row->writer, row->context->pool,
		    row->context->device, or_none(row->name), row->inefficient, or_none(row->owner),
		    row->stack, row->step, row->shadow ? " shadow" : "", row->late ? " late" : "");
	if (row->block != NULL)
		strbuf_addf(arg, " block %llu", LONG(row->block->allocation_id));
	strbuf_addf(arg, " %llx %llx %llx %llx %llx %llx %llx %u %u %u %s %llx %llx %s %s %s\n",
		    LONG(row->range), LONG(row->address), LONG(row->used_bytes),
		    LONG(row->reserved_bytes), LONG(row->process_bytes), LONG(row->device_bytes),
		    LONG(row->total_bytes), row->stream, row->task, row->layer, or_none(row->path),
		    LONG(row->workspace), LONG(row->size_bytes), or_none(row->dtype),
		    or_none(row->shape), or_none(row->format));
	return 0;
}

static int keep_dump(void *arg, struct replay *replay, const struct dump *dump)
{
	(void)replay;
	strbuf_addf(arg, "dump %llu %u %s %llu %u %s %u %llx\n", LONG(dump->time_ns), dump->tid,
		    dump->operation, LONG(dump->number), dump->after, dump->watched, dump->output,
		    LONG(dump->checksum));
	return 0;
}

static int keep_call(void *arg, struct replay *replay, const struct call_row *row)
{
	(void)replay;
	strbuf_addf(arg, "call %s%s %llu %llu %u %u\n", row->prefix, row->text, LONG(row->start_ns),
		    LONG(row->end_ns), row->writer, row->tid);
	return 0;
}

/* One replay of a run, raw or packed, and all that it published. */
struct player {
	struct elf_cache elves;
	struct run *run;
	struct replay *replay;
	struct analyses analyses;
	struct strbuf rows;
	struct pack_writer *pack; /* takes chunks that were read; NULL: they are dropped */
};

static void on_consumed(void *arg, const struct run_chunk *chunk)
{
	struct player *p = arg;
	struct pack_block meta = {.kind = PACK_CHUNK,
				  .raw_bytes = chunk->bytes,
				  .writer = chunk->writer,
				  .sequence = chunk->sequence,
				  .base_ns = chunk->base_ns};

	if (p->pack != NULL)
		assert_int_equal(pack_writer_put(p->pack, &meta, chunk->records), 0);
}

static void player_open(struct player *p, const char *raw, const char *pack, bool live)
{
	static const uint32_t steps[] = {2, 5, 40};

	*p = (struct player){.run = NULL};
	assert_int_equal(run_open(raw, pack, live, &p->run, NULL), 0);
	run_on_consumed(p->run, on_consumed, p);
	assert_int_equal(replay_new(&(struct replay_setup){.run = p->run,
							   .elves = &p->elves,
							   .root = "/nowhere",
							   .row = keep_row,
							   .dump = keep_dump,
							   .call = keep_call,
							   .arg = &p->rows,
							   .steps = steps,
							   .step_count = MSCOPE_COUNT(steps)},
				    &p->replay),
			 0);
	/* All that a launch can ask for; those of the verb analyze never live through a checkpoint. */
	analyses_init(&p->analyses, UINT16_MAX, true, p->replay);
}

/* At most `most` events; how many there were. */
static uint64_t player_play(struct player *p, uint64_t now_ns, bool final, uint64_t most)
{
	struct trace_event event;
	uint64_t count = 0;

	assert_int_equal(run_poll(p->run, now_ns, final), 0);
	while (count < most && run_next(p->run, &event)) {
		assert_int_equal(replay_event(p->replay, &event), 0);
		count++;
	}
	return count;
}

static void player_close(struct player *p)
{
	analyses_fini(&p->analyses);
	replay_free(p->replay);
	run_close(p->run);
	elf_cache_fini(&p->elves);
	strbuf_fini(&p->rows);
	pack_writer_close(p->pack);
}

/* Writes a checkpoint, and from here on what is read behind it. */
static void player_cut(struct player *p, const char *path)
{
	assert_int_equal(pack_writer_open(path, &p->pack, NULL), 0);
	assert_int_equal(replay_checkpoint(p->replay, path, &p->pack, NULL), 0);
}

static void assert_same_text(const char *what, const char *a, const char *b)
{
	const char *line_a = a, *line_b = b;

	if (strcmp(a, b) == 0)
		return;
	for (; *a == *b && *a != '\0'; a++, b++) {
		if (*a == '\n') {
			line_a = a + 1;
			line_b = b + 1;
		}
	}
	fail_msg("%s differ:\n  %.*s\n  %.*s", what, (int)strcspn(line_a, "\n"), line_a,
		 (int)strcspn(line_b, "\n"), line_b);
}

/* The state, and what the analyses make of it. */
static void player_text(struct player *p, struct strbuf *out)
{
	struct findings found = {0};
	struct analysis_view view = {
		.replay = p->replay, .found = &found, .lines = UINT32_MAX, .frames = 3};
	const struct usage *usages;
	size_t count, i;
	uint32_t device;

	replay_text(p->replay, out);
	usages = replay_usages(p->replay, &count);
	for (i = 0; i < count; i++)
		strbuf_addf(out, "pool %u on device %u takes %llu\n", usages[i].pool,
			    usages[i].device,
			    (unsigned long long)driver_pages_taken(&usages[i].pages));
	analyses_judge(&p->analyses, p->replay, 0, &found);
	analyses_text(&p->analyses, &view, out);
	findings_fini(&found);
	for (device = 0; device < 3; device++) {
		const struct driver_usage *driver = replay_driver_usage(p->replay, device);

		if (driver != NULL && driver->name[0] != '\0')
			strbuf_addf(out, "device %u is %s with %d\n", device, driver->name,
				    driver->name[24]);
	}
	/* No sum went below 0. */
	if (strstr(strbuf_str(out), "16777216 TiB") != NULL)
		fail_msg("a figure is below 0:\n%s", strbuf_str(out));
}

static void assert_same_state(struct player *a, struct player *b)
{
	struct strbuf x = {0}, y = {0};

	player_text(a, &x);
	player_text(b, &y);
	assert_same_text("states", strbuf_str(&x), strbuf_str(&y));
	strbuf_fini(&x);
	strbuf_fini(&y);
}

/* Reads the records of the checkpoint alone. */
static void play_checkpoint(struct player *p)
{
	struct trace_event event;

	assert_int_equal(run_poll(p->run, 0, true), 0);
	while (run_next(p->run, &event) && event.writer == CHECKPOINT_WRITER)
		assert_int_equal(replay_event(p->replay, &event), 0);
}

/* The checkpoint that `path` begins with gives back the state whose text is `expected`. */
static void assert_gives_back(const char *path, const char *expected)
{
	struct strbuf text = {0};
	struct player p;

	player_open(&p, NULL, path, false);
	play_checkpoint(&p);
	player_text(&p, &text);
	assert_same_text("states at the checkpoint", expected, strbuf_str(&text));
	assert_int_equal(p.rows.length, 0);
	strbuf_fini(&text);
	player_close(&p);
}

/* Copies all chunks of a packed trace, and the names of its frames. */
static void copy_chunks(const char *from, struct pack_writer *to)
{
	struct pack_index index = {0};
	int fd = open(from, O_RDONLY | O_CLOEXEC);
	uint8_t *bytes;
	size_t i;

	assert_true(fd >= 0);
	assert_int_equal(pack_index_read(fd, &index, NULL), 0);
	for (i = 0; i < index.count; i++) {
		const struct pack_block *block = &index.entries[i].block;

		if ((block->kind != PACK_CHUNK || block->writer == CHECKPOINT_WRITER) &&
		    block->kind != PACK_FRAMES)
			continue;
		bytes = malloc(block->raw_bytes + 1u);
		assert_int_equal(pack_entry_read(fd, &index.entries[i], bytes), 0);
		assert_int_equal(pack_writer_put(to, block, bytes), 0);
		free(bytes);
	}
	pack_index_fini(&index);
	(void)close(fd);
}

/* Plays a trace, raw or packed, with a checkpoint after `at` events, and again from the checkpoint on. */
static void check_at(const char *raw, const char *packed, uint64_t at)
{
	struct strbuf saved = {0};
	struct player whole, cut;
	char path[300];
	size_t before;

	path_in(path, "cut.msc");
	player_open(&whole, raw, packed, false);
	(void)player_play(&whole, 0, true, at);
	player_cut(&whole, path);
	before = whole.rows.length;
	player_text(&whole, &saved);
	assert_int_equal(replay_totals(whole.replay)->dropped_events,
			 replay_totals(whole.replay)->events);
	/* Chunks that were read in part come once more; of a packed trace all do. */
	(void)player_play(&whole, 0, true, UINT64_MAX);
	if (packed != NULL)
		copy_chunks(packed, whole.pack);
	assert_gives_back(path, strbuf_str(&saved));

	player_open(&cut, NULL, path, false);
	(void)player_play(&cut, 0, true, UINT64_MAX);
	assert_same_state(&whole, &cut);
	assert_same_text("rows", strbuf_str(&whole.rows) + before, strbuf_str(&cut.rows));
	assert_int_equal(run_damage(cut.run)->missing_chunks, 0);
	assert_int_equal(replay_totals(cut.replay)->dropped_events,
			 replay_totals(whole.replay)->dropped_events);
	player_close(&cut);
	player_close(&whole);
	strbuf_fini(&saved);
	assert_int_equal(unlink(path), 0);
}

/* ---- random traces ---- */

#define WRITERS	       3
#define CONTEXTS       8u
#define STEPS	       "step start"
#define SHORT_PROGRAMS 100 /* or MSCOPE_TEST_SEEDS */

static uint64_t random_state;

static uint32_t random_below(uint32_t bound)
{
	return (uint32_t)(unit_random(&random_state) % bound);
}

struct scene {
	struct maker maker;
	struct maker_writer w[WRITERS];
	uint64_t now;
	uint32_t stacks[WRITERS], codes[WRITERS];
	uint32_t modules;
	uint64_t ranges;
	uint64_t host_state;
	bool api_steps;
	bool optimizer_steps; /* and no others until late */
};

static void define_contexts(struct scene *s, struct maker_writer *w)
{
	static const struct {
		uint8_t pool, kind;
		uint32_t device;
	} contexts[CONTEXTS] = {
		{POOL_hal, BLOCK_ALLOC, 0},
		{POOL_hal, BLOCK_ALLOC, 1},
		{POOL_pta, BLOCK_ALLOC, 0},
		{POOL_hal, BLOCK_ALLOC, DEVICE_UNKNOWN},
		{POOL_hal, BLOCK_CREATE, 1},
		{POOL_atb, BLOCK_HANDLE, 0},
		{POOL_host, BLOCK_ALLOC, DEVICE_HOST},
		{POOL_host_pinned, BLOCK_REGISTER, DEVICE_HOST},
	};
	uint32_t i;

	for (i = 0; i < CONTEXTS; i++)
		maker_context(w, s->now++, i + 1, contexts[i].pool, contexts[i].kind,
			      contexts[i].device);
}

static void scene_begin(struct scene *s, uint64_t seed)
{
	static const char *const texts[] = {"one", POOL_SETTINGS_START "max_split_size_mb:64",
					    "a longer name", STEPS, "x@y"};
	char path[300];
	uint32_t i, k;

	random_state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	*s = (struct scene){
		.now = 2000, .api_steps = seed % 3 == 2, .optimizer_steps = seed % 4 == 3};
	path_in(path, "raw");
	maker_make(&s->maker, path, MAKER_CHUNK_BYTES, 2048);
	for (i = 0; i < WRITERS; i++) {
		s->w[i] = (struct maker_writer){.maker = &s->maker, .number = i * 2 + 1};
		maker_thread(&s->w[i], s->now++, 70 + i);
		define_contexts(s, &s->w[i]);
		for (k = 0; k < MSCOPE_COUNT(texts); k++)
			maker_text(&s->w[i], s->now++, k + 1, texts[k]);
	}
}

/* Something that defines: texts under old numbers, stacks, functions, modules. */
static void define(struct scene *s, uint32_t who)
{
	struct maker_writer *w = &s->w[who];
	uint64_t frames[4];
	char text[40];
	uint32_t i;

	switch (random_below(6)) {
	case 0:
		(void)snprintf(text, sizeof(text), "text %u", random_below(1000));
		maker_text(w, s->now, 5 + random_below(4), text);
		break;
	case 1:
		(void)snprintf(text, sizeof(text), "once %u", random_below(1000));
		maker_text(w, s->now, TEXT_ONCE | random_below(TEXT_ONCE_SLOTS), text);
		break;
	case 2:
		(void)snprintf(text, sizeof(text), "a.pyf%u", random_below(10));
		maker_code(w, s->now, ++s->codes[who], text, 4, random_below(100));
		break;
	case 3:
		for (i = 0; i < MSCOPE_COUNT(frames); i++)
			frames[i] = 0x10000 + random_below(64) * 0x400;
		maker_stack(w, s->now, ++s->stacks[who], frames, 1 + random_below(4));
		break;
	case 4:
		frames[0] = 0x10000 + random_below(64) * 0x400;
		frames[1] = (1 + random_below(s->codes[who] + 1)) | UINT64_C(2) << 32;
		maker_python_stack(w, s->now, ++s->stacks[who], frames, 1);
		break;
	default:
		if (s->modules > 0 && random_below(2) == 0) {
			MAKER_EVENT(w, s->now, 0, module_unload,
				    .id = 1 + random_below(s->modules));
		} else {
			uint64_t start = 0x10000 + random_below(4) * 0x4000;

			(void)snprintf(text, sizeof(text), "/lib/%u.so", ++s->modules);
			maker_module(w, s->now, s->modules, start, start + 0x4000, text);
		}
	}
}

static void use_memory(struct scene *s, uint32_t who)
{
	struct maker_writer *w = &s->w[who];
	uint32_t context = 1 + random_below(CONTEXTS);
	uint64_t address = 0x100000 + random_below(40) * 0x1000;
	uint32_t stack = random_below(s->stacks[who] + 2);

	switch (random_below(8)) {
	case 0:
	case 1:
	case 2:
		maker_alloc(w, s->now, context, address, 1 + random_below(5000), stack);
		break;
	case 3:
		MAKER_EVENT(w, s->now, 6, region_alloc, .handle = address,
			    .address = address + 0x70000000, .size_bytes = random_below(300));
		break;
	case 4:
		maker_free(w, s->now, context, address);
		break;
	case 5:
		MAKER_EVENT(w, s->now, context, block_free_traced, .address = address,
			    .stack = stack);
		break;
	case 6:
		maker_free(w, s->now, context, address);
		if (random_below(2) == 0) /* from a signal handler */
			maker_alloc(w, s->now, 1, 0x900000 + address * 16, 16, 0);
		maker_undo(w, s->now, context, address);
		break;
	default:
		if (random_below(2) == 0)
			MAKER_EVENT(w, s->now, 3, pool_total, .reserved_bytes = random_below(1000));
		else
			MAKER_EVENT(w, s->now, 0, usage_sample, .device = random_below(3),
				    .total_mib = 64, .process_bytes = random_below(1000),
				    .device_bytes = random_below(2000));
	}
}

/* What the pool was told. */
static void tell_fact(struct scene *s, struct maker_writer *w)
{
	static const double fractions[] = {0.25, 0.5, 1};
	uint32_t kind = 1 + random_below(7);
	uint64_t value = 2 + random_below(3);

	if (kind == POOL_FACT_FRACTION)
		memcpy(&value, &fractions[random_below(3)], sizeof(value));
	MAKER_EVENT(w, s->now, 3, pool_fact, .kind = kind, .value = value,
		    .device_bytes = random_below(2) * 1000, .text = random_below(8));
}

/* A pool that tells its segments, places and frees that wait. */
static void use_pool(struct scene *s, uint32_t who)
{
	struct maker_writer *w = &s->w[who];
	uint64_t address = 0x100000 + random_below(40) * 0x1000, size = 1 + random_below(5000);
	uint64_t stream = random_below(3), first = random_below(2), second = random_below(3);

	switch (random_below(5)) {
	case 0:
	case 1:
		MAKER_EVENT(w, s->now, 3, block_alloc_pool, .address = address, .size_bytes = size,
			    .requested_bytes = random_below((uint32_t)size + 1), .stream = stream,
			    .private_first = first, .private_second = second,
			    .stack = random_below(s->stacks[who] + 2));
		break;
	case 2:
		MAKER_EVENT(w, s->now, 3, pool_segment, .address = address, .size_bytes = size,
			    .stream = stream, .private_first = first, .private_second = second,
			    .kind = 1 + random_below(5));
		break;
	case 3:
		MAKER_EVENT(w, s->now, 3, pool_block, .address = address, .size_bytes = size,
			    .requested_bytes = random_below((uint32_t)size + 1), .stream = stream,
			    .private_first = first, .private_second = second,
			    .kind = 1 + random_below(3));
		break;
	default:
		if (random_below(5) == 0)
			MAKER_EVENT(w, s->now, 0, driver_source, .vendor = random_below(4),
				    .state = 1 + random_below(2));
		else if (random_below(20) == 0)
			MAKER_EVENT(w, s->now, 3, pool_source, .state = 1 + random_below(3));
		else if (random_below(4) == 0)
			tell_fact(s, w);
	}
}

/* Of a generator of its own, so that the rest of a random trace stays as it was. */
static uint32_t host_below(struct scene *s, uint32_t end)
{
	s->host_state = s->host_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (uint32_t)(s->host_state >> 33) % end;
}

/* Memory of the host: of the process, of a few that it started, and the container's limit. */
static void tell_host(struct scene *s, struct maker_writer *w)
{
	switch (host_below(s, 4)) {
	case 2:
		MAKER_EVENT(w, s->now, 0, device_name, .device = host_below(s, 2),
			    .name_1 = 0x6430313968736e41, .name_4 = host_below(s, 2));
		break;
	case 0:
		MAKER_EVENT(w, s->now, 0, usage_sample, .device = DEVICE_HOST,
			    .process_bytes = host_below(s, 1000), .device_bytes = UINT64_MAX);
		break;
	case 1:
		MAKER_EVENT(w, s->now, 0, host_process, .pid = 2 + host_below(s, 4), .parent = 1,
			    .resident_bytes = host_below(s, 1000),
			    .share_bytes = host_below(s, 4) == 0 ? host_below(s, 100) : UINT64_MAX,
			    .name_low = 0x61 + host_below(s, 3),
			    .state =
				    host_below(s, 5) == 0 ? HOST_PROCESS_ENDED : HOST_PROCESS_RUNS);
		break;
	default:
		MAKER_EVENT(w, s->now, 0, host_limit, .limit_bytes = 4096,
			    .used_bytes = host_below(s, 4096), .kills = host_below(s, 40) == 0,
			    .hits = host_below(s, 2));
	}
}

/* Marks, steps and kernels. */
static void use_device(struct scene *s, uint32_t who)
{
	struct maker_writer *w = &s->w[who];
	uint32_t task = random_below(20), stream = 1 + random_below(2);

	if (host_below(s, 4) == 0)
		tell_host(s, w);
	switch (random_below(7)) {
	case 0:
		MAKER_EVENT(w, s->now, 1, mark, .kind = 1, .text = random_below(8));
		break;
	case 1:
		if (s->optimizer_steps || random_below(4) == 0)
			MAKER_EVENT(w, s->now, 0, optimizer_step, .number = 1);
		else if (s->api_steps)
			MAKER_EVENT(w, s->now, 1, step, .number = 1);
		else
			MAKER_EVENT(w, s->now, 1, mark, .kind = 2, .text = 4, .range = ++s->ranges);
		break;
	case 2:
		MAKER_EVENT(w, s->now, 1, mark, .kind = 3,
			    .range = s->ranges == 0 ? 1 : s->ranges - random_below(3));
		break;
	case 3:
	case 4:
		MAKER_EVENT(w, s->now, 1 + random_below(2), kernel_launch, .name = random_below(6),
			    .stream = stream, .task = task);
		break;
	case 5:
		MAKER_EVENT(w, s->now, 1 + random_below(2), kernel_execute,
			    .stream = random_below(2) ? stream : UINT32_MAX, .task = task,
			    .counter = s->now * 2, .kind = 1 + random_below(2));
		break;
	default:
		MAKER_EVENT(w, s->now, 1 + random_below(2), device_clock, .counter = s->now * 2 + 7,
			    .frequency_hz = 50000000 + random_below(100));
	}
}

/* Operators, labels, calls and watched memory. */
static void use_framework(struct scene *s, uint32_t who)
{
	struct maker_writer *w = &s->w[who];
	uint64_t address = 0x100000 + random_below(40) * 0x1000;
	uint32_t text = 1 + random_below(8);

	switch (random_below(6)) {
	case 0:
	case 1:
		MAKER_EVENT(w, s->now, 3, operation, .name = text, .kind = 1 + random_below(2),
			    .layer = 1 + random_below(3),
			    .path = TEXT_ONCE | random_below(TEXT_ONCE_SLOTS));
		break;
	case 2:
		MAKER_EVENT(w, s->now, 3, access, .address = address + 8, .size_bytes = 8,
			    .name = text, .kind = 1 + random_below(3), .layer = 1, .dtype = 1);
		break;
	case 3:
		MAKER_EVENT(w, s->now, 0, label, .kind = 1 + random_below(LABEL_LAYER_POP),
			    .text = text, .address = address + 8);
		break;
	case 4:
		MAKER_EVENT(w, s->now, 0, call, .what = 1 + random_below(s->codes[who] + 4),
			    .at = 1 + random_below(3), .kind = 1 + random_below(9));
		break;
	default:
		if (random_below(4) == 0)
			MAKER_EVENT(w, s->now, 0, watch_seen, .name = text,
				    .flags = random_below(8) == 0 ? random_below(4) : 0);
		MAKER_EVENT(w, s->now, 1, watch_dump, .name = text, .flags = random_below(64),
			    .checksum = random_below(3), .size_bytes = 64,
			    .watched = 1 + random_below(2), .output = random_below(2),
			    .number = random_below(9), .address = 0x1000 * random_below(2),
			    .changed_bytes = random_below(3), .stray_bytes = random_below(3),
			    .first_stray = random_below(64), .last_stray = random_below(64),
			    .stack = random_below(3) == 0 ? 1 : 0,
			    .inside = random_below(3) == 0 ? 1 + random_below(8) : 0);
	}
}

/* What keeps the block at an address, if there is one; with a name or without. */
static void put_keeper(struct maker_writer *w, uint64_t now)
{
	static const char named[] = "local\0list\0items\0local of main()\0\0items[3]\0clear it";
	static const char unnamed[] = "cpp\0\0\0\0\0\0";
	const char *texts = random_below(2) ? named : unnamed;
	size_t bytes = texts == named ? sizeof(named) : sizeof(unnamed);

	uint64_t address = 0x100000 + random_below(40) * 0x1000;

	MAKER_VARIABLE(w, now, texts, bytes, keeper, .text_bytes = bytes, .address = address,
		       .items = bytes, .full = bytes & 1, .held = address >> 12 & 31, .looked = 32,
		       .most = bytes * 3, .renewed = address >> 12 & 1);
}

/* What changes the run itself. */
static void change_run(struct scene *s, uint32_t who)
{
	struct maker_writer *w = &s->w[who];

	switch (random_below(7)) {
	case 5:
		put_keeper(w, s->now);
		break;
	case 0:
		MAKER_EVENT(w, s->now, 0, state,
			    .state = random_below(2) ? RECORDING_ON : RECORDING_SHADOW);
		break;
	case 1:
		MAKER_EVENT(w, s->now, 0, state, .state = RECORDING_ON);
		break;
	case 2:
		MAKER_EVENT(w, s->now, 0, settings, .events = SESSION_ALLOC,
			    .analysis = random_below(16), .c_depth = random_below(9));
		break;
	case 3:
		maker_note(w, s->now, "a word to the reader");
		break;
	case 4:
		maker_thread(w, s->now, 70 + random_below(6));
		break;
	default:
		if (random_below(4) == 0) /* the source of steps that is ignored */
			MAKER_EVENT(w, s->now, 1, step, .number = 1);
		else
			MAKER_EVENT(w, s->now, 1, system, .kind = 1);
	}
}

static void act(struct scene *s, uint32_t events)
{
	while (events-- > 0) {
		uint32_t who = random_below(WRITERS), what = random_below(40);

		if (what < 6)
			define(s, who);
		else if (what < 16)
			use_memory(s, who);
		else if (what < 20)
			use_pool(s, who);
		else if (what < 28)
			use_device(s, who);
		else if (what < 39)
			use_framework(s, who);
		else
			change_run(s, who);
		s->now += random_below(3); /* some at the same time */
	}
}

static void check_random_trace(uint64_t seed)
{
	struct player p;
	struct scene s;
	uint64_t count;
	int i;

	scene_begin(&s, seed);
	act(&s, 1500);
	s.optimizer_steps = false;
	act(&s, 500);
	if (seed % 2 == 0)
		MAKER_EVENT(&s.w[0], s.now, 0, ended, .kind = END_EXIT);
	act(&s, 1000);
	player_open(&p, s.maker.path, NULL, false);
	count = player_play(&p, 0, true, UINT64_MAX);
	assert_true(count > 3000);
	player_close(&p);
	for (i = 0; i < 12; i++)
		check_at(s.maker.path, NULL, 1 + random_below((uint32_t)count));
	check_at(s.maker.path, NULL, count);
	maker_fini(&s.maker);
}

/* MSCOPE_TEST_SEEDS: how many random traces there are (40), or the first and the last of them (30-40). False: it is not set. */
static bool read_seeds(uint64_t *first, uint64_t *last)
{
	const char *more = getenv("MSCOPE_TEST_SEEDS");
	char *end = NULL;

	if (more == NULL)
		return false;
	*last = strtoull(more, &end, 10);
	if (*end == '-') {
		*first = *last;
		*last = strtoull(end + 1, NULL, 10);
	}
	return true;
}

static void every_part_comes_back_from_any_point_of_a_random_trace(void **state)
{
	/*
	 * Blocks of one address and size in two pools; a pool that nothing uses after the cut; labels of blocks that came after
	 * stop(); a watched operator without a name; two events of one time in two chunks; an analysis that begins in the middle;
	 * memory of the driver that was freed before a pool reported it.
	 */
	static const uint64_t found[] = {36, 128, 161, 179, 188, 191, 335};
	bool chosen;
	uint64_t first = 1, last = 10, seed;
	size_t i;

	(void)state;
	chosen = read_seeds(&first, &last);
	for (seed = first; seed <= last; seed++)
		check_random_trace(seed);
	for (i = 0; !chosen && i < MSCOPE_COUNT(found); i++)
		check_random_trace(found[i]);
}

/* The state at a cut has who else freed a block: what follows decides which of the frees it was. */
static void frees_of_one_block_by_several_threads_come_back(void **state)
{
	/* One letter for each event: threads A, B and C free, a, b and c undo. */
	static const char *const orders[] = {"ABab", "ABba", "ABa",   "ABb",	"ABCab",  "ABCba",
					     "ACBb", "ABCc", "ABbBa", "ABbBba", "ABCbcBa"};
	uint64_t count, address = 0x1000;
	struct player p;
	struct scene s;
	size_t i;

	(void)state;
	scene_begin(&s, 1);
	for (i = 0; i < MSCOPE_COUNT(orders); i++, address += 0x1000) {
		const char *at;

		maker_alloc(&s.w[0], s.now++, 1, address, 10, 0);
		for (at = orders[i]; *at != '\0'; at++, s.now++) {
			if (*at < 'a')
				maker_free(&s.w[*at - 'A'], s.now, 4, address);
			else
				maker_undo(&s.w[*at - 'a'], s.now, 4, address);
		}
	}
	player_open(&p, s.maker.path, NULL, false);
	count = player_play(&p, 0, true, UINT64_MAX);
	assert_int_equal(replay_block_count(p.replay), 3); /* ABab, ABba and ABbBba */
	assert_int_equal(replay_totals(p.replay)->oddities.undone_unknown, 0);
	player_close(&p);
	for (i = 1; i <= count; i++)
		check_at(s.maker.path, NULL, i);
	maker_fini(&s.maker);
}

/* A cut amid events of one time that are in two chunks: those of the chunk that is gone are not counted for the next. */
static void events_of_one_time_may_lie_in_several_chunks(void **state)
{
	uint64_t count, i;
	struct player p;
	struct scene s;

	(void)state;
	scene_begin(&s, 1);
	for (i = 0; i < 200; i++)
		maker_alloc(&s.w[0], s.now, 1, 0x1000 * (i + 1), 16, 0);
	player_open(&p, s.maker.path, NULL, false);
	count = player_play(&p, 0, true, UINT64_MAX);
	player_close(&p);
	for (i = count - 200; i <= count; i++)
		check_at(s.maker.path, NULL, i);
	maker_fini(&s.maker);
}

static void begin_decomposing(struct scene *s)
{
	MAKER_EVENT(&s->w[0], s->now++, 0, settings, .events = SESSION_ALLOC,
		    .analysis = SESSION_DECOMPOSE);
	MAKER_EVENT(&s->w[0], s->now++, 0, state, .state = RECORDING_ON);
}

static void label_tensor(struct scene *s, uint32_t text, uint64_t address)
{
	MAKER_EVENT(&s->w[0], s->now++, 0, label, .kind = LABEL_TENSOR, .text = text,
		    .address = address);
}

/* Blocks that were counted later than they were allocated: their labels change nothing before that. */
static void labels_of_blocks_that_came_late_or_back_are_counted_once(void **state)
{
	uint64_t count, i;
	struct player p;
	struct scene s;

	(void)state;
	scene_begin(&s, 1);
	begin_decomposing(&s);
	maker_alloc(&s.w[0], s.now++, 3, 0x1000, 10, 0);
	MAKER_EVENT(&s.w[0], s.now++, 0, label, .kind = LABEL_TENSOR, .text = 3, .address = 0x1000);
	maker_alloc(&s.w[0], s.now++, 3, 0x2000, 5000, 0);
	/* The peak is without the first block. */
	maker_free(&s.w[0], s.now++, 3, 0x1000);
	maker_alloc(&s.w[1], s.now++, 3, 0x3000, 7000, 0);
	maker_free(&s.w[1], s.now++, 3, 0x3000);
	maker_undo(&s.w[0], s.now++, 3, 0x1000);
	MAKER_EVENT(&s.w[0], s.now++, 0, label, .kind = LABEL_TENSOR, .text = 1, .address = 0x1000);
	MAKER_EVENT(&s.w[0], s.now++, 0, state, .state = RECORDING_SHADOW);
	maker_alloc(&s.w[0], s.now++, 7, 0x4000, 300, 0);
	MAKER_EVENT(&s.w[0], s.now++, 0, label, .kind = LABEL_TENSOR, .text = 3, .address = 0x4000);
	maker_free(&s.w[0], s.now++, 3, 0x2000);
	MAKER_EVENT(&s.w[0], s.now++, 0, state, .state = RECORDING_ON);
	MAKER_EVENT(&s.w[0], s.now++, 0, label, .kind = LABEL_TENSOR, .text = 1, .address = 0x4000);
	player_open(&p, s.maker.path, NULL, false);
	count = player_play(&p, 0, true, UINT64_MAX);
	player_close(&p);
	for (i = count - 15; i <= count; i++)
		check_at(s.maker.path, NULL, i);
	maker_fini(&s.maker);
}

/* What analysis decompose says of a trace of which `s` has begun, at each cut of it. */
static void assert_decomposed(struct scene *s, uint64_t cuts, const char *const *lines,
			      size_t line_count)
{
	struct strbuf text = {0};
	uint64_t count, i;
	struct player p;

	player_open(&p, s->maker.path, NULL, false);
	count = player_play(&p, 0, true, UINT64_MAX);
	player_text(&p, &text);
	for (i = 0; i < line_count; i++) {
		if (strstr(strbuf_str(&text), lines[i]) == NULL)
			fail_msg("no line \"%s\" in:\n%s", lines[i], strbuf_str(&text));
	}
	player_close(&p);
	strbuf_fini(&text);
	for (i = count - cuts; i <= count; i++)
		check_at(s->maker.path, NULL, i);
	maker_fini(&s->maker);
}

/* The newest allocation of all came back after a peak that is without it: its label is not of that peak. */
static void the_newest_block_may_come_back_after_a_peak(void **state)
{
	static const char *const lines[] = {"        160 B        100 B  PTA itself\n",
					    "        160 B        130 B  total\n"};
	struct scene s;

	(void)state;
	scene_begin(&s, 1);
	begin_decomposing(&s);
	maker_alloc(&s.w[0], s.now++, 3, 0x1000, 100, 0);
	maker_free(&s.w[0], s.now++, 3, 0x1000);
	maker_alloc(&s.w[0], s.now++, 3, 0x2000, 60, 0);
	maker_alloc(&s.w[0], s.now++, 3, 0x3000, 30, 0);
	label_tensor(&s, 1, 0x3000);
	maker_free(&s.w[0], s.now++, 3, 0x3000);
	maker_undo(&s.w[0], s.now++, 3, 0x1000);
	maker_free(&s.w[0], s.now++, 3, 0x2000); /* the peak, 160 B, is over */
	maker_undo(&s.w[0], s.now++, 3, 0x3000);
	label_tensor(&s, 3, 0x3000);
	assert_decomposed(&s, 12, lines, MSCOPE_COUNT(lines));
}

/* What a step ended with is copied when the next block comes, which has its number by then. */
static void the_first_block_after_a_step_is_not_of_the_step(void **state)
{
	static const char *const lines[] = {
		"        303 B        303 B          201 B          201 B  PTA@one\n",
		"        303 B        303 B          201 B          201 B  total\n"};
	uint32_t i;
	struct scene s;

	(void)state;
	scene_begin(&s, 1);
	begin_decomposing(&s);
	for (i = 0; i < 3; i++) {
		maker_alloc(&s.w[0], s.now++, 3, 0x1000 * (i + 1), 100 + i, 0);
		label_tensor(&s, 1, 0x1000 * (i + 1));
		MAKER_EVENT(&s.w[0], s.now++, 1, step, .number = 1);
	}
	assert_decomposed(&s, 11, lines, MSCOPE_COUNT(lines));
}

/*
 * One event of a short program: few addresses, so that blocks are often freed, brought back and labelled again. Without `allocs`,
 * frees and labels are often of the newest allocation.
 */
static void act_short(struct scene *s, bool allocs)
{
	struct maker_writer *w = &s->w[random_below(8) == 0];
	uint64_t address = 0x1000 * (1 + random_below(4));

	switch (random_below(allocs ? 12 : 8)) {
	case 0:
	case 1:
		label_tensor(s, 1 + random_below(3), address);
		break;
	case 2:
	case 3:
		maker_free(w, s->now, 3, address);
		break;
	case 4:
	case 5:
		maker_undo(w, s->now, 3, address);
		break;
	case 6:
		MAKER_EVENT(w, s->now, 1, step, .number = 1);
		break;
	case 7:
		if (random_below(5) == 0)
			MAKER_EVENT(w, s->now, 0, state,
				    .state = random_below(2) ? RECORDING_ON : RECORDING_SHADOW);
		break;
	default:
		maker_alloc(w, s->now, 3, address, 1 + random_below(1000), 0);
	}
	s->now += 1 + random_below(2);
}

/* No figure is below 0 at any moment, nor from a cut on. */
static void short_programs_are_decomposed(void **state)
{
	uint64_t first = 1, last = SHORT_PROGRAMS, seed, count;
	struct strbuf text = {0};
	struct player p;
	struct scene s;
	int i;

	(void)state;
	(void)read_seeds(&first, &last);
	for (seed = first; seed <= last; seed++) {
		scene_begin(&s, seed);
		begin_decomposing(&s);
		for (i = 0; i < 80; i++)
			act_short(&s, i / 10 % 2 == 0);
		player_open(&p, s.maker.path, NULL, false);
		for (count = 0; player_play(&p, 0, true, 1) > 0; count++) {
			strbuf_reset(&text);
			player_text(&p, &text);
		}
		player_close(&p);
		check_at(s.maker.path, NULL, 1 + random_below((uint32_t)count));
		maker_fini(&s.maker);
	}
	strbuf_fini(&text);
}

/* A checkpoint of a replay that began with one: the engine writes many. */
static void a_checkpoint_may_follow_another(void **state)
{
	struct player whole, cut, again;
	char first[300], second[300];
	struct scene s;

	(void)state;
	scene_begin(&s, 77);
	act(&s, 3000);
	path_in(first, "first.msc");
	path_in(second, "second.msc");
	player_open(&whole, s.maker.path, NULL, false);
	(void)player_play(&whole, 0, true, 1000);
	player_cut(&whole, first);
	(void)player_play(&whole, 0, true, UINT64_MAX);
	player_open(&cut, NULL, first, false);
	play_checkpoint(&cut);
	player_close(&cut);
	player_open(&cut, NULL, first, false);
	(void)player_play(&cut, 0, true, 2500);
	player_cut(&cut, second);
	copy_chunks(first, cut.pack);
	(void)player_play(&cut, 0, true, UINT64_MAX);
	assert_same_state(&whole, &cut);
	player_open(&again, NULL, second, false);
	(void)player_play(&again, 0, true, UINT64_MAX);
	assert_same_state(&whole, &again);
	assert_true(replay_totals(again.replay)->dropped_events >
		    replay_totals(whole.replay)->dropped_events);
	player_close(&again);
	player_close(&cut);
	player_close(&whole);
	maker_fini(&s.maker);
}

/* Copies a packed trace, with a few words of its checkpoint that are wrong. */
static void copy_damaged(const char *from, const char *path)
{
	struct pack_index index = {0};
	struct pack_writer *to;
	int fd = open(from, O_RDONLY | O_CLOEXEC);
	uint64_t wrong;
	uint32_t flips;
	uint8_t *bytes;
	size_t i;

	assert_true(fd >= 0);
	assert_int_equal(pack_index_read(fd, &index, NULL), 0);
	assert_int_equal(pack_writer_open(path, &to, NULL), 0);
	for (i = 0; i < index.count; i++) {
		const struct pack_block *block = &index.entries[i].block;

		if (block->kind == PACK_END)
			continue;
		bytes = malloc(block->raw_bytes + 8u);
		assert_int_equal(pack_entry_read(fd, &index.entries[i], bytes), 0);
		for (flips = block->writer == CHECKPOINT_WRITER ? 1 + random_below(4) : 0;
		     flips > 0; flips--) {
			wrong = random_below(2) == 0 ? random_below(20)
						     : unit_random(&random_state);
			memcpy(bytes + 8 * (size_t)random_below(block->raw_bytes / 8), &wrong, 8);
		}
		assert_int_equal(pack_writer_put(to, block, bytes), 0);
		free(bytes);
	}
	pack_writer_close(to);
	pack_index_fini(&index);
	(void)close(fd);
}

/* What it says may be wrong; reading it ends, and touches nothing else. */
static void a_damaged_checkpoint_does_no_harm(void **state)
{
	uint64_t first = 1, last = 20, seed, now;
	char path[300], damaged[300];
	struct findings found = {0};
	struct player p;
	struct scene s;
	int i;

	(void)state;
	(void)read_seeds(&first, &last);
	path_in(path, "cut.msc");
	path_in(damaged, "damaged.msc");
	for (seed = first; seed <= last; seed++) {
		scene_begin(&s, seed);
		act(&s, 600);
		now = s.now;
		player_open(&p, s.maker.path, NULL, false);
		(void)player_play(&p, now, true, 1 + random_below(600));
		player_cut(&p, path);
		(void)player_play(&p, now, true, UINT64_MAX);
		player_close(&p);
		for (i = 0; i < 10; i++) {
			copy_damaged(path, damaged);
			player_open(&p, NULL, damaged, false);
			(void)player_play(&p, 0, true, UINT64_MAX);
			analyses_judge(&p.analyses, p.replay, 0, &found);
			findings_fini(&found);
			player_close(&p);
			assert_int_equal(unlink(damaged), 0);
		}
		assert_int_equal(unlink(path), 0);
		maker_fini(&s.maker);
	}
}

static void check_packed(const char *path)
{
	struct player p;
	uint64_t count;
	int i;

	player_open(&p, NULL, path, false);
	count = player_play(&p, 0, true, UINT64_MAX);
	player_close(&p);
	for (i = 0; i < 10 && count > 0; i++)
		check_at(NULL, path, 1 + random_below((uint32_t)count));
}

static void every_part_comes_back_from_any_point_of_a_real_trace(void **state)
{
	const char *more = getenv("MSCOPE_TEST_TRACES");
	char *list, *path, *rest = NULL;

	(void)state;
	random_state = 42;
	check_packed(FIXTURES "/v1.msc");
	list = strdup(more == NULL ? "" : more);
	for (path = strtok_r(list, ":", &rest); path != NULL; path = strtok_r(NULL, ":", &rest)) {
		print_message("%s\n", path);
		check_packed(path);
	}
	free(list);
}

/* ---- what an engine sees ---- */

static void checkpoint_that_cannot_be_written_changes_nothing(void **state)
{
	struct pack_writer *pack, *before;
	struct mscope_error err = {0};
	char path[300], blocker[320];
	struct player p;
	struct scene s;

	(void)state;
	scene_begin(&s, 1);
	act(&s, 10);
	path_in(path, "part");
	(void)snprintf(blocker, sizeof(blocker), "%s.new", path);
	assert_int_equal(mkdir(blocker, 0700), 0);
	assert_int_equal(pack_writer_open(path, &pack, NULL), 0);
	before = pack;
	player_open(&p, s.maker.path, NULL, true);
	(void)player_play(&p, s.now, false, UINT64_MAX);
	assert_true(replay_checkpoint(p.replay, path, &pack, &err) < 0);
	assert_ptr_equal(pack, before);
	assert_int_not_equal(err.code, 0);
	assert_int_equal(replay_totals(p.replay)->dropped_events, 0);
	assert_int_equal(pack_writer_put(pack, &(struct pack_block){.kind = PACK_END}, ""), 0);
	pack_writer_close(pack);
	player_close(&p);
	maker_fini(&s.maker);
}

/* A live run: chunks that are open are read once more behind the checkpoint. */
static void checkpoint_is_small_and_gives_back_what_lived_under_the_same_numbers(void **state)
{
	uint64_t frames[] = {0x10100, 0x10200};
	uint64_t python[] = {0x10300, 2 | UINT64_C(6) << 32, 1 | UINT64_C(8) << 32};
	uint64_t later[] = {0x10400, 1};
	struct player whole, cut;
	char path[300];
	struct scene s;
	uint64_t i;

	(void)state;
	scene_begin(&s, 1);
	path_in(path, "part");
	player_open(&whole, s.maker.path, NULL, true);
	maker_module(&s.w[0], s.now++, 1, 0x10000, 0x20000, "/lib/a.so");
	maker_stack(&s.w[0], s.now++, 1, frames, 2);
	maker_code(&s.w[0], s.now++, 1, "a.pymain", 4, 10);
	maker_code(&s.w[0], s.now++, 2, "b.pywork", 4, 20);
	maker_python_stack(&s.w[0], s.now++, 2, python, 2);
	for (i = 0; i < 1000; i++) {
		maker_alloc(&s.w[0], s.now++, 1, 0x1000 + i * 16, 16, 0);
		if (i % 8 != 0)
			maker_free(&s.w[1], s.now++, 4, 0x1000 + i * 16);
	}
	maker_alloc(&s.w[0], s.now++, 1, 0xabcdef, 99, 1);
	maker_alloc(&s.w[0], s.now++, 1, 0xbcdef0, 98, 2);
	(void)player_play(&whole, s.now, false, UINT64_MAX);
	player_cut(&whole, path);
	assert_true(pack_writer_bytes(whole.pack) < 20000);
	maker_free(&s.w[1], s.now++, 4, 0xabcdef);
	maker_alloc(&s.w[0], s.now++, 1, 0xabcdef, 77, 1); /* a stack that was defined before */
	maker_alloc(&s.w[0], s.now++, 1, 0xcdef01, 76, 2); /* and one with Python frames */
	maker_python_stack(&s.w[0], s.now++, 3, later, 1); /* of a function from before */
	maker_alloc(&s.w[0], s.now++, 1, 0xdef012, 75, 3);
	(void)player_play(&whole, s.now, true, UINT64_MAX);

	player_open(&cut, NULL, path, false);
	assert_true(run_is_checkpointed(cut.run));
	(void)player_play(&cut, 0, true, UINT64_MAX);
	assert_same_state(&whole, &cut);
	assert_int_equal(replay_totals(cut.replay)->oddities.bad_definitions, 0);
	assert_int_equal(replay_totals(cut.replay)->threads, WRITERS);
	assert_int_equal(run_damage(cut.run)->missing_chunks, 0);
	assert_int_equal(replay_block_count(cut.replay), 125 + 4);
	player_close(&cut);
	player_close(&whole);
	maker_fini(&s.maker);
}

/* ---- older forms ---- */

/* A checkpoint without states of parts, as versions before wrote it: definitions of each writer, then the live blocks. */
static void put_older_form(struct builder *b)
{
	struct context context = {.pool = POOL_pta, .vendor = VENDOR_ASCEND};
	static const uint64_t frame = 0x10100;

	BUILDER_PUT(b, checkpoint, 0, .rows = 7, .allocations = 5, .dropped = 20, .time_ns = 5000,
		    .steps = 3, .launches = 4, .step_source = STEPS_RANGES, .last_writer = 1,
		    .last_events = 2, .last_sequence = 1);
	BUILDER_BEGIN(b, module_load, 0, .id = 1, .start = 0x10000, .end = 0x20000,
		      .path_bytes = 9);
	builder_payload(b, "/lib/a.so", 9);
	builder_end(b);
	BUILDER_PUT(b, as_writer, 0, .writer = 1);
	BUILDER_PUT(b, thread, 0, .tid = 70);
	builder_put_context(b, 9, &context);
	builder_put_text(b, 1, STEPS, strlen(STEPS));
	BUILDER_PUT(b, as_writer, 0, .writer = 0);
	builder_put_context(b, 1, &context);
	BUILDER_PUT(b, pool_total, 1, .reserved_bytes = 4096);
	BUILDER_BEGIN(b, stack_def, 0, .id = 1, .c_frames = 1);
	builder_payload(b, &frame, sizeof(frame));
	builder_end(b);
	BUILDER_PUT(b, state, 0, .state = RECORDING_SHADOW);
	BUILDER_PUT(b, live_block, 1, .address = 0x1000, .key = 0x1000, .size_bytes = 64, .tid = 70,
		    .allocation_id = 2, .time_ns = 3000, .outside = 1, .hidden = 1);
	BUILDER_PUT(b, state, 0, .state = RECORDING_ON);
	BUILDER_PUT(b, live_block, 1, .address = 0x2000, .key = 0x2000, .size_bytes = 36, .tid = 70,
		    .stack = 1, .allocation_id = 4, .time_ns = 4000, .step = 3, .inside = 3);
	BUILDER_PUT(b, state, 0, .state = RECORDING_ON);
}

static void an_older_form_is_read_from_the_cut_on(void **state)
{
	struct trace_header *preamble = preamble_new("host=none", 10);
	struct builder b = {.writer = CHECKPOINT_WRITER}, w = {.writer = 1};
	const struct usage *usage;
	const struct block *block;
	struct player p;
	char path[300];
	size_t usages;

	(void)state;
	path_in(path, "old.msc");
	preamble->monotonic_ns = preamble->realtime_ns = 1000;
	assert_int_equal(pack_writer_open(path, &b.pack, NULL), 0);
	w.pack = b.pack;
	assert_int_equal(preamble_put(b.pack, preamble), 0);
	put_older_form(&b);
	builder_flush(&b);
	/* What was read before the cut is in the checkpoint. */
	w.time_ns = 4500;
	builder_put_text(&w, 2, "later", 5);
	BUILDER_PUT(&w, block_free, 9, .address = 0x2000);
	w.time_ns = 6000;
	BUILDER_PUT(&w, block_alloc, 9, .address = 0x3000, .size_bytes = 10);
	BUILDER_PUT(&w, mark, 9, .kind = 3, .range = 103);
	builder_flush(&w);
	assert_int_equal(b.error, 0);
	assert_int_equal(w.error, 0);
	pack_writer_close(b.pack);

	player_open(&p, NULL, path, false);
	(void)player_play(&p, 0, true, UINT64_MAX);
	assert_int_equal(replay_totals(p.replay)->dropped_events, 20);
	assert_int_equal(replay_totals(p.replay)->events, 2);
	assert_int_equal(replay_totals(p.replay)->rows, 9);
	assert_int_equal(replay_totals(p.replay)->threads, 1);
	assert_int_equal(replay_totals(p.replay)->launches, 4);
	assert_int_equal(replay_totals(p.replay)->oddities.bad_definitions, 0);
	assert_int_equal(replay_steps(p.replay), 3);
	assert_int_equal(replay_open_step(p.replay, 0), 0);
	assert_non_null(strstr(replay_note(p.replay, 0), "figures count from the cut on"));
	assert_null(replay_note(p.replay, 1));
	usage = replay_usages(p.replay, &usages);
	assert_int_equal(usages, 1);
	assert_int_equal(usage->live_bytes, 110);
	assert_int_equal(usage->allocations, 3);
	assert_int_equal(usage->reserved_bytes, 4096);
	block = replay_block_at(p.replay, 0, 0x2000);
	assert_int_equal(block->allocation_id, 4);
	assert_int_equal(block->latest_step, 3);
	assert_false(block->hidden);
	block = replay_block_at(p.replay, 0, 0x1000);
	assert_true(block->hidden && block->outside_window);
	assert_int_equal(replay_block_at(p.replay, 0, 0x3000)->allocation_id, 6);
	player_close(&p);
	builder_fini(&b);
	builder_fini(&w);
	free(preamble);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, unit_make_directory, unit_remove_directory)
	const struct CMUnitTest tests[] = {
		TEST(every_part_comes_back_from_any_point_of_a_random_trace),
		TEST(every_part_comes_back_from_any_point_of_a_real_trace),
		TEST(frees_of_one_block_by_several_threads_come_back),
		TEST(events_of_one_time_may_lie_in_several_chunks),
		TEST(labels_of_blocks_that_came_late_or_back_are_counted_once),
		TEST(the_newest_block_may_come_back_after_a_peak),
		TEST(the_first_block_after_a_step_is_not_of_the_step),
		TEST(short_programs_are_decomposed),
		TEST(a_checkpoint_may_follow_another),
		TEST(a_damaged_checkpoint_does_no_harm),
		TEST(checkpoint_that_cannot_be_written_changes_nothing),
		TEST(checkpoint_is_small_and_gives_back_what_lived_under_the_same_numbers),
		TEST(an_older_form_is_read_from_the_cut_on),
	};

	return cmocka_run_group_tests_name("checkpoint", tests, NULL, NULL);
}
