/* SPDX-License-Identifier: Apache-2.0 */
#include "twin/batches.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "twin/pairing.h"

#define GAPS_MOST  0.02 /* of the requests: more, and the runs do different things */
#define MOVED_MOST 0.02 /* of the bytes */
#define HELD_OUT_MOST                                                                              \
	0.02 /* difference of a recorded peak from the one that is played in its place */
#define NOT_LINEAR_MOST 0.2  /* of the peak: what may have sizes of another rule */
#define ODD_LEAST	0.01 /* of the peak: less does not matter */
#define SQUARE_MOST	0.01
#define BATCH_MOST	1000000u /* where the search for the largest batch ends */

/* A pairing of all runs, and what it makes of a batch. */
struct model {
	const struct batch_choice *choice;
	struct batches *out;
	struct requests requests[BATCH_RUNS_MOST];
	struct pairing pairings[BATCH_RUNS_MOST]; /* with the last run; of the last itself: none */
	bool *odd;		/* of each request of the last run: its size is kept */
	struct program program; /* of the last run, with sizes of a batch */
	struct twin_conditions conditions;
	double odd_power; /* sizes that are kept grow with this power of the batch */
};

void batches_fini(struct batches *batches)
{
	for (size_t i = 0; i < batches->run_count; i++)
		what_if_fini(&batches->runs[i]);
	free(batches->rows);
	*batches = (struct batches){0};
}

static void model_fini(struct model *m)
{
	for (size_t i = 0; i < BATCH_RUNS_MOST; i++) {
		requests_fini(&m->requests[i]);
		free(m->pairings[i].partner);
	}
	free(m->odd);
	free(m->program.events);
}

static size_t last_of(const struct model *m)
{
	return m->choice->run_count - 1;
}

/* Bytes of request `j` of the last run in run `i`. */
static uint64_t bytes_in(const struct model *m, size_t i, size_t j)
{
	return i == last_of(m) ? m->requests[i].all[j].bytes
			       : m->requests[i].all[m->pairings[i].partner[j]].bytes;
}

static bool is_paired(const struct model *m, size_t j)
{
	for (size_t i = 0; i < last_of(m); i++)
		if (m->pairings[i].partner[j] == PAIRING_NONE)
			return false;
	return true;
}

/* A request whose size is not linear in the batch: several powers of the batch are tried. */
static uint64_t odd_size_for(const struct model *m, size_t j, double batch)
{
	double growth = batch / (double)m->choice->run_batches[last_of(m)], size;

	for (size_t i = 0; i < m->choice->run_count && is_paired(m, j); i++)
		if (batch == (double)m->choice->run_batches[i])
			return bytes_in(m, i, j);
	size = (double)m->requests[last_of(m)].all[j].bytes;
	if (m->odd_power >= 1)
		size *= growth;
	if (m->odd_power >= 2)
		size *= growth;
	return size < 1 ? 1 : (uint64_t)(size + 0.5);
}

/* The size of a request for a batch: the curve through what the runs have. */
static uint64_t size_for(const struct model *m, size_t j, double batch)
{
	double sum = 0;

	if (m->odd[j])
		return odd_size_for(m, j, batch);
	for (size_t i = 0; i < m->choice->run_count; i++) {
		double share = (double)bytes_in(m, i, j);

		for (size_t k = 0; k < m->choice->run_count; k++)
			if (k != i)
				share *= (batch - (double)m->choice->run_batches[k]) /
					 ((double)m->choice->run_batches[i] -
					  (double)m->choice->run_batches[k]);
		sum += share;
	}
	return sum < 1 ? 1 : (uint64_t)(sum + 0.5);
}

static void set_batch(struct model *m, uint64_t batch)
{
	const struct program *from = &m->out->runs[last_of(m)].program;

	for (size_t i = 0; i < from->event_count; i++)
		if (from->events[i].kind == PROGRAM_REQUEST)
			m->program.events[i].bytes = size_for(m, from->events[i].id, (double)batch);
}

/* ---- pairing ---- */

static int pair_all(struct model *m)
{
	struct batches *out = m->out;
	size_t last = last_of(m);
	int status = 0;

	for (size_t i = 0; i <= last && status == 0; i++)
		status = requests_of(&out->runs[i].program, &m->requests[i]);
	for (size_t i = 0; i < last && status == 0; i++) {
		const struct requests *small = &m->requests[i], *big = &m->requests[last];
		double gaps, moved;

		status = pairing_make(small, m->choice->run_batches[i], big,
				      m->choice->run_batches[last], &m->pairings[i]);
		if (status != 0)
			return status;
		gaps = (double)m->pairings[i].gaps / (double)(small->count + big->count);
		moved = pairing_moved(&m->pairings[i], small, big);
		out->gaps = gaps > out->gaps ? gaps : out->gaps;
		out->moved = moved > out->moved ? moved : out->moved;
	}
	if (status != 0)
		return status;
	out->requests = m->requests[last].count;
	m->odd = calloc(out->requests + 1, sizeof(*m->odd));
	if (m->odd == NULL)
		return -ENOMEM;
	for (size_t j = 0; j < out->requests; j++) {
		m->odd[j] = !is_paired(m, j);
		out->paired += !m->odd[j];
	}
	return 0;
}

/* ---- sizes that are no line ---- */

struct sums {
	uint64_t *now; /* of each site */
	uint64_t *most;
	uint64_t *requests;
	uint64_t square_now, square_most; /* of what grows with the square of the batch */
	uint64_t odd_now, odd_most;	  /* of all sizes that are not linear */
};

static enum growth growth_in(const struct model *m, size_t j)
{
	size_t last = last_of(m);

	return growth_of(bytes_in(m, 0, j), bytes_in(m, last, j), m->choice->run_batches[0],
			 m->choice->run_batches[last]);
}

/* Whether the curve through the runs holds: a line through two, of second degree through three. */
static bool is_curve(const struct model *m, size_t j)
{
	enum growth growth = growth_in(m, j);

	return growth == GROWTH_NONE || growth == GROWTH_FULL || growth == GROWTH_PARTLY ||
	       (growth == GROWTH_SQUARE && m->choice->run_count > 2);
}

static void count_odd(struct sums *sums, uint32_t site, uint64_t bytes, bool square, bool more)
{
	sums->now[site] += more ? bytes : -bytes;
	sums->odd_now += more ? bytes : -bytes;
	sums->square_now += !square ? 0 : more ? bytes : -bytes;
	if (sums->now[site] > sums->most[site])
		sums->most[site] = sums->now[site];
	if (sums->odd_now > sums->odd_most)
		sums->odd_most = sums->odd_now;
	if (sums->square_now > sums->square_most)
		sums->square_most = sums->square_now;
	sums->requests[site] += more;
}

/* Follows what is in use of requests that are no line, and marks them. */
static void find_odd(struct model *m, struct sums *sums)
{
	const struct program *p = &m->out->runs[last_of(m)].program;
	const struct requests *big = &m->requests[last_of(m)];

	for (size_t i = 0; i < p->event_count; i++) {
		const struct program_event *e = &p->events[i];
		const struct request *r = &big->all[e->id];
		bool request = e->kind == PROGRAM_REQUEST;
		bool square;

		if (!request && e->kind != PROGRAM_FREE)
			continue;
		if (is_paired(m, e->id) && is_curve(m, e->id))
			continue;
		square = is_paired(m, e->id) && growth_in(m, e->id) == GROWTH_SQUARE;
		count_odd(sums, r->site_id, r->bytes, square, request);
		m->odd[e->id] = true;
	}
}

/* The largest first. */
static void name_sites(struct batches *out, const struct pool_history *h, const struct sums *sums)
{
	for (size_t n = 0; n < BATCH_SITES_MOST; n++) {
		size_t best = SIZE_MAX;

		for (size_t site = 0; site <= h->site_count; site++)
			if (sums->most[site] > 0 &&
			    (best == SIZE_MAX || sums->most[site] > sums->most[best]))
				best = site;
		if (best == SIZE_MAX)
			return;
		out->sites[out->site_count++] =
			(struct batch_site){.name = best == 0 ? "" : h->sites[best - 1].name,
					    .bytes = sums->most[best],
					    .requests = sums->requests[best]};
		sums->most[best] = 0;
	}
}

static int judge_sizes(struct model *m)
{
	struct batches *out = m->out;
	const struct what_if *last = &out->runs[last_of(m)];
	size_t sites = last->history->site_count + 1;
	struct sums sums = {calloc(sites, 8), calloc(sites, 8), calloc(sites, 8), 0, 0, 0, 0};
	int status = sums.now == NULL || sums.most == NULL || sums.requests == NULL ? -ENOMEM : 0;

	if (status == 0) {
		find_odd(m, &sums);
		name_sites(out, last->history, &sums);
	}
	if ((double)sums.square_most > SQUARE_MOST * (double)last->requested_peak)
		snprintf(out->refusal, sizeof(out->refusal),
			 "Up to %.0f %% of the memory grows with the square of the batch%s%.150s, "
			 "which two runs cannot prove. Give a third run with another batch.",
			 100.0 * (double)sums.square_most / (double)last->requested_peak,
			 out->site_count > 0 && out->sites[0].name[0] != '\0' ? ", first of all at "
									      : "",
			 out->site_count > 0 ? out->sites[0].name : "");
	else if ((double)sums.odd_most > NOT_LINEAR_MOST * (double)last->requested_peak)
		snprintf(out->refusal, sizeof(out->refusal),
			 "The sizes of up to %.0f %% of the memory are not a line over the batch, "
			 "so nothing can be said about other batches.",
			 100.0 * (double)sums.odd_most / (double)last->requested_peak);
	out->odd_bytes = sums.odd_most;
	out->has_odd = (double)sums.odd_most > ODD_LEAST * (double)last->requested_peak;
	free(sums.now);
	free(sums.most);
	free(sums.requests);
	return status;
}

/* ---- playing ---- */

static void widen(struct batch_row *row, uint64_t peak)
{
	if (row->high == 0)
		row->reserved_peak = row->low = row->high = peak;
	row->low = peak < row->low ? peak : row->low;
	row->high = peak > row->high ? peak : row->high;
}

static int play_batch(struct model *m, struct batch_row *row)
{
	static const double powers[] = {1, 0, 2};
	uint32_t orders = what_if_orders(m->program.event_count, m->choice->batch_count + 3);
	size_t variants = m->out->has_odd ? MSCOPE_COUNT(powers) : 1;
	struct program_result result;
	int status = 0;

	for (size_t v = 0; v < variants && status == 0; v++) {
		m->odd_power = powers[v];
		set_batch(m, row->batch);
		for (uint32_t k = 0; k < orders && status == 0; k++) {
			struct twin_conditions c = m->conditions;

			what_if_order(&c, k);
			status = program_play(&m->program, &c, PROGRAM_AS_RECORDED, false, &result);
			widen(row, result.figures.reserved_peak);
			if (!result.ties)
				break;
		}
	}
	m->odd_power = powers[0];
	return status;
}

static int fits(struct model *m, uint64_t batch, bool *out)
{
	struct twin_conditions c = m->conditions;
	struct program_result result = {.refused_at = SIZE_MAX};
	int status;

	set_batch(m, batch);
	c.limit_bytes = m->choice->limit_bytes;
	status = program_play(&m->program, &c, PROGRAM_AS_RECORDED, true, &result);
	*out = result.refused_at == SIZE_MAX;
	return status;
}

/* The largest batch that fits, by halving: more samples need more memory. */
static int find_largest(struct model *m)
{
	uint64_t low = 0, high = 1;
	bool fit = true;
	int status = 0;

	while (status == 0 && fit && high < BATCH_MOST) {
		status = fits(m, high, &fit);
		if (fit) {
			low = high;
			high *= 2;
		}
	}
	while (status == 0 && high - low > 1) {
		uint64_t middle = low + (high - low) / 2;

		status = fits(m, middle, &fit);
		if (fit)
			low = middle;
		else
			high = middle;
	}
	m->out->largest = low;
	return status;
}

/* The largest run with sizes of a smaller one must reserve what that one did. */
static int check_held_out(struct model *m)
{
	struct batches *out = m->out;

	for (size_t i = 0; i < last_of(m); i++) {
		const struct what_if *run = &out->runs[i];
		struct batch_row row = {.batch = m->choice->run_batches[i]};
		double recorded = (double)run->reserved_peak;
		int status = play_batch(m, &row);

		if (status != 0)
			return status;
		if ((double)row.low > recorded * (1 + HELD_OUT_MOST) ||
		    (double)row.high < recorded * (1 - HELD_OUT_MOST)) {
			snprintf(out->refusal, sizeof(out->refusal),
				 "The runs do not do the same: with the sizes of batch %" PRIu64
				 ", the run of batch %" PRIu64
				 " would reserve %+.1f %% of what was recorded.",
				 m->choice->run_batches[i], m->choice->run_batches[last_of(m)],
				 100.0 * ((double)row.reserved_peak - recorded) / recorded);
			return 0;
		}
	}
	return 0;
}

static uint64_t odd_bytes_for(const struct model *m, uint64_t batch)
{
	double growth = (double)batch / (double)m->choice->run_batches[last_of(m)];

	return m->out->has_odd ? (uint64_t)(growth * (double)m->out->odd_bytes) : 0;
}

static int predict(struct model *m)
{
	struct batches *out = m->out;
	const struct batch_choice *choice = m->choice;
	int status = 0;

	out->rows = calloc(choice->batch_count + 1, sizeof(*out->rows));
	if (out->rows == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < choice->batch_count && status == 0; i++) {
		struct batch_row *row = &out->rows[out->row_count++];

		row->batch = choice->batches[i];
		status = play_batch(m, row);
		/* Requests that come and go as a library chooses may be there or not. */
		row->low = less_u64(row->low, odd_bytes_for(m, row->batch));
		row->high += odd_bytes_for(m, row->batch);
		if (status == 0 && choice->limit_bytes != 0)
			status = fits(m, row->batch, &row->fits);
	}
	return status == 0 && choice->limit_bytes != 0 ? find_largest(m) : status;
}

/* ---- the whole ---- */

static void refuse_pairing(struct batches *out)
{
	if (out->gaps > GAPS_MOST)
		snprintf(out->refusal, sizeof(out->refusal),
			 "The runs do not make the same requests: %.1f %% of them are in one run "
			 "only. Their number must not depend on the batch.",
			 100 * out->gaps);
	else if (out->moved > MOVED_MOST)
		snprintf(out->refusal, sizeof(out->refusal),
			 "The runs do not free at the same moments: %.1f %% of the memory is freed "
			 "earlier or later, as in a loop whose cache grows.",
			 100 * out->moved);
}

static int replay_runs(struct batches *out, const struct batch_choice *choice,
		       struct mscope_error *err)
{
	static const char *const none[] = {""};
	struct what_if_choice own = {.settings = none, .torch = choice->torch};

	for (size_t i = 0; i < choice->run_count; i++) {
		struct what_if *run = &out->runs[i];
		int status = what_if_answer(run, choice->runs[i], &own, err);

		out->run_count = i + 1;
		if (status != 0)
			return status;
		if (run->refusal[0] != '\0') {
			snprintf(out->refusal, sizeof(out->refusal), "Batch %" PRIu64 ": %.360s",
				 choice->run_batches[i], run->refusal);
			return 0;
		}
	}
	return 0;
}

static int make_program(struct model *m, struct mscope_error *err)
{
	const struct what_if *last = &m->out->runs[last_of(m)];
	struct program_event *copy =
		malloc((last->program.event_count + 1) * sizeof(*last->program.events));

	m->program = last->program;
	m->program.events = copy;
	if (copy == NULL)
		return -ENOMEM;
	memcpy(copy, last->program.events, last->program.event_count * sizeof(*copy));
	m->conditions = what_if_conditions(last);
	/* A memory fraction was set for the batch of that run. */
	m->conditions.limit_bytes = UINT64_MAX;
	return twin_settings_parse(last->history->settings, &last->release, &m->conditions.settings,
				   err);
}

int batches_answer(struct batches *out, const struct batch_choice *choice, struct mscope_error *err)
{
	struct model m = {.choice = choice, .out = out};
	int status;

	*out = (struct batches){0};
	status = replay_runs(out, choice, err);
	if (status == 0 && out->refusal[0] == '\0') {
		status = pair_all(&m);
		if (status == 0)
			refuse_pairing(out);
	}
	if (status == 0 && out->refusal[0] == '\0')
		status = judge_sizes(&m);
	if (status == 0 && out->refusal[0] == '\0')
		status = make_program(&m, err);
	if (status == 0 && out->refusal[0] == '\0')
		status = check_held_out(&m);
	if (status == 0 && out->refusal[0] == '\0' && choice->settings != NULL)
		status = twin_settings_parse(choice->settings, &m.conditions.release,
					     &m.conditions.settings, err);
	if (status == 0 && out->refusal[0] == '\0')
		status = predict(&m);
	model_fini(&m);
	return status;
}
