/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims about analysis/inefficient.c: which blocks it finds, and what of the peak they cost. Random programs are judged a second
 * time here, by a model that knows all events at once and follows the manual's table word for word:
 *
 *     early_allocation     between the operator that allocates and that of the first access lies one that frees
 *     late_deallocation    between the operator of the last access and the one that frees the block lies one that allocates
 *     temporary_idleness   more than so many operators between two accesses
 *
 * where an event outside of operators counts as an operator of its own. Mended, a block begins with the operator of its first access,
 * ends with that of its last, and is away in between. The model takes its bytes off there, moment by moment.
 */
#include "base/json.h"
#include "base/word_list.h"
#include "replay/facts.h"
#include "symbols/elf_cache.h"
#include "unit.h"

#include "analysis/inefficient.h"
#include "trace/builder.h"
#include "trace/session.h"
#include "trace_maker.h"

#define PTA	    1u
#define EVENTS_MAX  600u
#define BLOCKS_MAX  400u
#define CLASSES	    40u
#define CHUNK_BYTES 65536u
#define STEP	    1u
#define NAME	    2u

enum what { ALLOC, FREE, USE, BEGIN, END, STEP_BEGIN };

struct event {
	enum what what;
	uint32_t block;
	uint64_t used; /* live bytes behind it */
	uint32_t tick; /* of the outermost operator, or its own */
	uint32_t op;   /* outermost operator, from 1; 0: outside */
	uint32_t step; /* steps that have begun */
};

struct made {
	uint64_t size;
	uint32_t place; /* bits of its size */
	bool alive;
	uint16_t found;
};

struct play {
	struct event events[EVENTS_MAX];
	uint32_t count;
	struct made blocks[BLOCKS_MAX];
	uint32_t block_count;
	uint32_t op_begin[EVENTS_MAX], op_end[EVENTS_MAX]; /* indices of events, by op */
	uint32_t ops;
	/* What is looked for. */
	struct event_settings settings;
	/* taken[place][i]: bytes of its blocks that need not have been there behind event i. */
	uint64_t taken[CLASSES][EVENTS_MAX];
	uint64_t seed;
};

static uint32_t dice(struct play *p, uint32_t sides)
{
	return (uint32_t)(unit_random(&p->seed) % sides);
}

/* ---- a random program ---- */

static struct event *add(struct play *p, enum what what, uint32_t block, uint32_t op,
			 uint32_t *tick)
{
	struct event *event = &p->events[p->count];
	const struct event *before = p->count == 0 ? NULL : event - 1;

	*event = (struct event){.what = what,
				.block = block,
				.op = op,
				.used = before == NULL ? 0 : before->used,
				.step = before == NULL ? 0 : before->step};
	if (op == 0 && (what == ALLOC || what == FREE || what == USE))
		++*tick;
	event->tick = *tick;
	p->count++;
	return event;
}

static uint32_t pick(struct play *p)
{
	uint32_t tries;

	for (tries = 0; tries < 50 && p->block_count > 0; tries++) {
		uint32_t block = dice(p, p->block_count);

		if (p->blocks[block].alive)
			return block;
	}
	return UINT32_MAX;
}

static void make(struct play *p, uint32_t steps)
{
	uint32_t depth = 0, tick = 0, op = 0, block;
	uint32_t length = 20 + dice(p, EVENTS_MAX - 60), places = 1 + dice(p, 8);

	while (p->count < length || depth > 0) {
		uint32_t choice = p->count >= length ? 9 : dice(p, 11);
		struct event *event;

		if (choice <= 2 && p->block_count < BLOCKS_MAX) {
			struct made *made = &p->blocks[p->block_count];
			uint32_t bits =
				11 + dice(p, places) * 2; /* smaller ones are shown as one */

			*made = (struct made){.size = (UINT64_C(1) << (bits - 1)) + dice(p, 15),
					      .place = bits,
					      .alive = true};
			event = add(p, ALLOC, p->block_count++, depth > 0 ? op : 0, &tick);
			event->used += made->size;
		} else if (choice <= 4 && (block = pick(p)) != UINT32_MAX) {
			p->blocks[block].alive = false;
			event = add(p, FREE, block, depth > 0 ? op : 0, &tick);
			event->used -= p->blocks[block].size;
		} else if (choice <= 7 && (block = pick(p)) != UINT32_MAX) {
			(void)add(p, USE, block, depth > 0 ? op : 0, &tick);
		} else if (choice == 8 && depth < 3) {
			if (depth++ == 0) {
				op = ++p->ops;
				tick++;
				p->op_begin[op] = p->count;
			}
			(void)add(p, BEGIN, 0, op, &tick);
		} else if (choice == 9 && depth > 0) {
			(void)add(p, END, 0, op, &tick);
			if (--depth == 0)
				p->op_end[op] = p->count - 1;
		} else if (choice == 10 && depth == 0 && steps > 0 && dice(p, 3) == 0) {
			steps--;
			add(p, STEP_BEGIN, 0, 0, &tick)->step++;
		}
	}
}

/* ---- what is true of it ---- */

/* An operator, or a lone event, that does `what` and lies between two ticks. */
static bool lies_between(const struct play *p, enum what what, uint32_t after, uint32_t before)
{
	uint32_t i;

	for (i = 0; i < p->count; i++) {
		if (p->events[i].what == what && p->events[i].tick > after &&
		    p->events[i].tick < before)
			return true;
	}
	return false;
}

static void take(struct play *p, uint32_t block, enum inefficiency kind, uint32_t from, uint32_t to)
{
	struct made *made = &p->blocks[block];
	uint32_t i;

	if ((p->settings.waste_kinds != 0 && !(p->settings.waste_kinds & kind)) ||
	    made->size < p->settings.waste_bytes)
		return;
	made->found = (uint16_t)(made->found | kind);
	for (i = from; i < to; i++)
		p->taken[made->place][i] += made->size;
}

static uint32_t begin_of(const struct play *p, uint32_t i)
{
	return p->events[i].op == 0 ? i : p->op_begin[p->events[i].op];
}

static uint32_t end_of(const struct play *p, uint32_t i)
{
	return p->events[i].op == 0 ? i : p->op_end[p->events[i].op];
}

static void judge(struct play *p, uint32_t block)
{
	uint64_t idle = p->settings.waste_idle == 0 ? 3000 : p->settings.waste_idle;
	uint32_t i, made_at = 0, used_at = UINT32_MAX;

	for (i = 0; i < p->count; i++) {
		const struct event *event = &p->events[i];

		if (event->block != block || event->what == BEGIN || event->what == END ||
		    event->what == STEP_BEGIN)
			continue;
		if (event->what == ALLOC)
			made_at = i;
		if (event->what == USE) {
			if (used_at == UINT32_MAX &&
			    lies_between(p, FREE, p->events[made_at].tick, event->tick))
				take(p, block, INEFFICIENT_EARLY, made_at, begin_of(p, i));
			if (used_at != UINT32_MAX && event->tick - p->events[used_at].tick > idle)
				take(p, block, INEFFICIENT_IDLE, end_of(p, used_at),
				     begin_of(p, i));
			used_at = i;
		}
		if (event->what == FREE && used_at != UINT32_MAX &&
		    lies_between(p, ALLOC, p->events[used_at].tick, event->tick))
			take(p, block, INEFFICIENT_LATE, end_of(p, used_at), i);
	}
}

/* The peak in some steps, without what places of a mask waste. */
static uint64_t peak_without(const struct play *p, uint64_t places, uint32_t first, uint32_t last)
{
	uint64_t most = 0;
	uint32_t i, k;

	for (i = 0; i < p->count; i++) {
		uint64_t used = p->events[i].used;

		for (k = 0; k < CLASSES; k++)
			used -= places >> k & 1 ? p->taken[k][i] : 0;
		if (p->events[i].step >= first && p->events[i].step <= last && used > most)
			most = used;
	}
	return most;
}

/* ---- what is told ---- */

static uint64_t number_behind(const char *at, const char *key)
{
	const char *found = strstr(at, key);

	assert_non_null(found);
	return strtoull(found + strlen(key), NULL, 10);
}

static void check_places(const struct play *p, const char *at, const char *steps)
{
	uint64_t before = UINT64_MAX, peak = peak_without(p, 0, 0, UINT32_MAX);
	uint32_t told = 0, k, places = 0;

	for (at = strstr(at, "{\"text\":"); at != NULL; at = strstr(at + 1, "{\"text\":")) {
		uint64_t saved = number_behind(at, "\"saved_bytes\":"), most = 0;
		uint32_t place = p->blocks[number_behind(at, "\"first_allocation_id\":") - 1].place;
		const char *group = steps;

		assert_int_equal(saved,
				 peak - peak_without(p, UINT64_C(1) << place, 0, UINT32_MAX));
		assert_true(saved <= before);
		before = saved;
		/* The steps where it saves most. */
		while ((group = strstr(group, "{\"first\":")) != NULL && group < at) {
			uint32_t first = (uint32_t)number_behind(group, "{\"first\":");
			uint32_t last = (uint32_t)number_behind(group, "\"last\":");
			uint64_t less = peak_without(p, 0, first, last) -
					peak_without(p, UINT64_C(1) << place, first, last);

			most = less > most ? less : most;
			group++;
		}
		assert_int_equal(number_behind(at, "\"step_saved_bytes\":"), most);
		told++;
	}
	for (k = 0; k < CLASSES; k++) {
		uint32_t i;

		for (i = 0; i < p->block_count; i++) {
			if (p->blocks[i].place == k && p->blocks[i].found != 0) {
				places++;
				break;
			}
		}
	}
	assert_int_equal(told, places);
}

static void check_steps(const struct play *p, const char *at, const char *end)
{
	while ((at = strstr(at, "{\"first\":")) != NULL && at < end) {
		uint32_t first = (uint32_t)number_behind(at, "{\"first\":");
		uint32_t last = (uint32_t)number_behind(at, "\"last\":");
		uint64_t peak = peak_without(p, 0, first, last);

		assert_int_equal(number_behind(at, "\"peak_bytes\":"), peak);
		assert_int_equal(number_behind(at, "\"saved_bytes\":"),
				 peak - peak_without(p, UINT64_MAX, first, last));
		at++;
	}
}

static void check(const struct play *p, const struct facts *facts, const char *json)
{
	uint64_t peak = peak_without(p, 0, 0, UINT32_MAX);
	const char *steps = strstr(json, "\"steps\":"), *places = strstr(json, "\"places\":");
	uint16_t any = 0;
	uint32_t i;

	for (i = 0; i < p->block_count; i++) {
		assert_int_equal(facts_get(facts, i + 1).inefficient, p->blocks[i].found);
		any |= p->blocks[i].found;
	}
	assert_int_equal(any != 0, steps != NULL);
	if (any == 0)
		return;
	assert_int_equal(number_behind(json, "\"peak_bytes\":"), peak);
	assert_int_equal(number_behind(json, "\"saved_bytes\":"),
			 peak - peak_without(p, UINT64_MAX, 0, UINT32_MAX));
	check_steps(p, steps, places);
	check_places(p, places, steps);
}

/* ---- through the tool ---- */

static void text_def(struct maker_writer *w, uint64_t now, uint32_t id, const char *text)
{
	struct event_text_def event = {.id = id, .text_bytes = strlen(text)};
	uint64_t words[EVENT_BYTES_text_def / 8];

	event_text_def_encode(words, &event);
	maker_variable(w, now, EVENT_text_def, words, sizeof(words), text, (uint32_t)strlen(text));
}

static void write_events(const struct play *p, struct maker_writer *w)
{
	uint64_t now = 2000, ranges = 0;
	uint32_t i;

	maker_thread(w, now++, 70);
	maker_context(w, now++, PTA, POOL_pta, BLOCK_ALLOC, 0);
	text_def(w, now++, STEP, STEP_MESSAGE);
	text_def(w, now++, NAME, "aten.mul");
	for (i = 0; i < p->count; i++, now++) {
		const struct event *event = &p->events[i];
		uint64_t address = 0x100000u * ((uint64_t)event->block + 1);

		switch (event->what) {
		case ALLOC:
			maker_alloc(w, now, PTA, address, p->blocks[event->block].size, 0);
			break;
		case FREE:
			maker_free(w, now, PTA, address);
			break;
		case USE:
			MAKER_EVENT(w, now, PTA, access, .address = address, .kind = ACCESS_READ,
				    .layer = LAYER_ATEN);
			break;
		case BEGIN:
		case END:
			MAKER_EVENT(w, now, PTA, operation, .name = NAME,
				    .kind = event->what == BEGIN ? OPERATION_BEGINS
								 : OPERATION_ENDED,
				    .layer = LAYER_ATEN);
			break;
		case STEP_BEGIN:
			MAKER_EVENT(w, now, PTA, mark, .kind = 2, .text = STEP, .range = ++ranges);
			MAKER_EVENT(w, ++now, PTA, mark, .kind = 3, .range = ranges);
			break;
		}
	}
}

/* As a checkpoint does in the middle of a run. */
static void save_and_load(struct analyses *analyses, const struct replay *replay,
			  const struct event_settings *settings)
{
	void *state = analyses->state[ANALYSIS_ID_inefficient];
	struct strbuf saved = {0};
	struct words words;

	assert_int_equal(inefficient_keep(state, replay, &(struct words){.out = &saved}), 0);
	words = (struct words){.at = (const uint8_t *)saved.data, .left = saved.length / 8};
	assert_int_equal(inefficient_keep(state, replay, &words), 0);
	assert_false(words.failed);
	assert_int_equal(words.left, 0);
	analyses_settings(analyses, settings, true);
	strbuf_fini(&saved);
}

/* The same with a few words that are wrong. False: it was refused. */
static bool save_and_load_damaged(struct play *p, struct analyses *analyses,
				  const struct replay *replay)
{
	void *state = analyses->state[ANALYSIS_ID_inefficient];
	struct strbuf saved = {0};
	struct words words;
	uint32_t flips;
	bool good;

	assert_int_equal(inefficient_keep(state, replay, &(struct words){.out = &saved}), 0);
	for (flips = 1 + dice(p, 3); flips > 0; flips--) {
		uint64_t wrong = dice(p, 2) == 0 ? dice(p, 20) : unit_random(&p->seed) << 8;

		memcpy(saved.data + 8 * (size_t)dice(p, (uint32_t)(saved.length / 8)), &wrong, 8);
	}
	words = (struct words){.at = (const uint8_t *)saved.data, .left = saved.length / 8};
	good = inefficient_keep(state, replay, &words) == 0 && !words.failed;
	/* As analyses.c does. */
	analyses->failed[ANALYSIS_ID_inefficient] = !good;
	analyses_settings(analyses, &p->settings, true);
	strbuf_fini(&saved);
	return good;
}

static void replay_and_check(struct play *p, bool damage)
{
	char path[300];
	struct maker maker;
	struct maker_writer w = {.maker = &maker, .number = 1};
	struct elf_cache elves = {0};
	struct facts facts;
	struct analyses analyses;
	struct strbuf out = {0};
	struct trace_event event;
	struct json json;
	struct replay_setup setup = {.elves = &elves, .root = "/nowhere", .facts = &facts};
	struct findings found = {0};
	struct analysis_view view = {.lines = UINT32_MAX, .frames = 2, .found = &found};

	(void)snprintf(path, sizeof(path), "%s/raw", unit_directory);
	maker_make(&maker, path, CHUNK_BYTES, 4);
	write_events(p, &w);
	assert_int_equal(run_open(path, NULL, false, &setup.run, NULL), 0);
	assert_int_equal(facts_init(&facts, unit_directory, NULL), 0);
	assert_int_equal(replay_new(&setup, &view.replay), 0);
	analyses_init(&analyses, SESSION_INEFFICIENT, false, view.replay);
	analyses_settings(&analyses, &p->settings, true);
	assert_int_equal(run_poll(setup.run, 0, true), 0);
	while (run_next(setup.run, &event)) {
		assert_int_equal(replay_event(view.replay, &event), 0);
		if (!damage && dice(p, 100) == 0)
			save_and_load(&analyses, view.replay, &p->settings);
		if (damage && dice(p, 100) == 0 &&
		    !save_and_load_damaged(p, &analyses, view.replay))
			break;
	}
	analyses_judge(&analyses, view.replay, 0, &found);
	json_begin(&json, &out);
	json_object(&json, NULL);
	analyses_json_of(&analyses, ANALYSIS_ID_inefficient, &view, &json);
	json_end(&json);
	if (!damage)
		check(p, &facts, strbuf_str(&out));
	strbuf_fini(&out);
	findings_fini(&found);
	analyses_fini(&analyses);
	replay_free(view.replay);
	run_close(setup.run);
	facts_fini(&facts);
	elf_cache_fini(&elves);
	maker_fini(&maker);
}

/* ---- claims ---- */

#define PROGRAMS 200u

static void try_programs(bool damage)
{
	struct play *p = malloc(sizeof(*p));
	const char *many = getenv("MSCOPE_TEST_PROGRAMS");
	uint32_t programs = many == NULL ? PROGRAMS : (uint32_t)atoi(many), i, k;

	assert_non_null(p);
	for (i = 0; i < programs; i++) {
		memset(p, 0, sizeof(*p));
		p->seed = i + UINT64_C(1);
		p->settings.waste_idle = 1 + dice(p, 40);
		if (dice(p, 3) == 0)
			p->settings.waste_kinds = dice(p, 8);
		if (dice(p, 4) == 0)
			p->settings.waste_bytes = 1u << dice(p, 16);
		make(p, dice(p, 2) == 0 ? 0 : dice(p, 60));
		for (k = 0; k < p->block_count; k++)
			judge(p, k);
		replay_and_check(p, damage);
	}
	free(p);
}

static void random_programs_are_priced_as_the_model_says(void **state)
{
	(void)state;
	try_programs(false);
}

/* What comes out is anything; nothing else may happen. */
static void damaged_checkpoints_do_no_harm(void **state)
{
	(void)state;
	try_programs(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_programs_are_priced_as_the_model_says),
		cmocka_unit_test(damaged_checkpoints_do_no_harm),
	};

	return cmocka_run_group_tests(tests, unit_make_directory, unit_remove_directory);
}
