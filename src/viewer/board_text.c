/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A frame, in the order in which a tired person asks: is there a problem, how much is used and how fast it grows, and whose it is.
 *
 *     train.py (pid 4242), 0:12:03, step 128, 3.2 steps/s, 12,345 events/s, RSS 1.2 GiB     live
 *     LEAK: 1 place grows by 4.0 MiB per step
 *
 *     RANK DEVICE POOL                USED       PEAK   RESERVED   ALLOC/s     PER STEP
 *     0    0      PTA             12.3 GiB   14.0 GiB   16.0 GiB     1,204     +4.0 MiB
 *          0      driver   [###############---------------]  17.2 of 32.0 GiB
 *
 *     PLACES                                              HELD    BLOCKS     PER STEP
 *     LEAK   train.py:31 main -> train.py:17 keep      128 MiB       128     +4.0 MiB
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/shown.h"
#include "base/whole.h"
#include "sink/screen.h"
#include "sink/screen_names.h"
#include "viewer/board.h"

#define RED    "\033[1;31m"
#define YELLOW "\033[33m"
#define GREEN  "\033[32m"
#define BOLD   "\033[1m"
#define PLAIN  "\033[0m"

#define COLUMNS_LEAST 40u
#define WIDE	      100u /* columns from which on there is room for the change per second */
#define BAR	      30u

/* ---- pieces of text ---- */

static void add_signed(struct strbuf *out, double bytes)
{
	strbuf_add_char(out, bytes < 0 ? '-' : '+');
	strbuf_add_size(out, whole(bytes < 0 ? -bytes : bytes));
}

/* "12,345". */
static void add_grouped(struct strbuf *out, uint64_t number)
{
	char digits[24];
	size_t length = (size_t)snprintf(digits, sizeof(digits), "%" PRIu64, number), i;

	for (i = 0; i < length; i++) {
		if (i > 0 && (length - i) % 3 == 0)
			strbuf_add_char(out, ',');
		strbuf_add_char(out, digits[i]);
	}
}

/* Brings a line, which begins at `from`, to a column; what is longer gets one blank. */
static void pad_to(struct strbuf *out, size_t from, size_t column)
{
	size_t at = screen_columns(strbuf_str(out) + from);

	do
		strbuf_add_char(out, ' ');
	while (++at < column && !strbuf_failed(out));
}

/* Adds a text so that it ends at a column. */
static void add_right(struct strbuf *out, size_t from, size_t column, const char *text)
{
	size_t width = screen_columns(text);

	pad_to(out, from, column > width ? column - width : 0);
	strbuf_add_str(out, text);
}

/* ---- a frame ---- */

/* The same place of several processes is one. */
struct shared_place {
	struct gauge_place sum;
	uint32_t processes;
	uint32_t findings; /* of its verdict */
	size_t last;	   /* the latest of the processes */
};

struct canvas {
	const struct board *board;
	const struct board_look *look;
	struct strbuf *out;
	size_t columns;
	size_t rows, used; /* lines that it may have, that it has */
	struct strbuf line, field;
	struct shared_place *places; /* worst first */
	size_t place_count;
};

static bool has_room(const struct canvas *frame)
{
	return frame->rows == 0 || frame->used < frame->rows;
}

/* Puts the line into the frame, cut to its columns and in a colour. */
static void end_line(struct canvas *frame, const char *colour)
{
	struct strbuf shown = {0};

	if (has_room(frame)) {
		strbuf_add_shown(&shown, strbuf_str(&frame->line), frame->line.length);
		if (colour != NULL && frame->look->colours)
			strbuf_add_str(frame->out, colour);
		screen_cut(strbuf_str(&shown), frame->columns, frame->out);
		if (colour != NULL && frame->look->colours)
			strbuf_add_str(frame->out, PLAIN);
		strbuf_add_char(frame->out, '\n');
		frame->used++;
	}
	strbuf_fini(&shown);
	strbuf_reset(&frame->line);
}

static const char *field_of(struct canvas *frame)
{
	return strbuf_str(&frame->field);
}

static const char *size_field(struct canvas *frame, uint64_t bytes)
{
	strbuf_reset(&frame->field);
	strbuf_add_size(&frame->field, bytes);
	return field_of(frame);
}

static const char *signed_field(struct canvas *frame, double bytes)
{
	strbuf_reset(&frame->field);
	add_signed(&frame->field, bytes);
	return field_of(frame);
}

static const char *number_field(struct canvas *frame, double number)
{
	strbuf_reset(&frame->field);
	add_grouped(&frame->field, whole(number + 0.5));
	return field_of(frame);
}

/* ---- the head ---- */

struct sums {
	uint64_t events, lost, refused, leaks, suspects, resident;
	double events_rate, steps_rate, growth_bytes, left;
	const struct gauge_forecast *forecast; /* of the device that is full first */
	size_t devices;			       /* that will be full */
	uint32_t step;
	size_t running, waiting, blind, ended, lost_gauges;
	bool judged, by_time, catching_up, answered;
};

static struct sums sum_up(const struct board *board)
{
	struct sums sums = {0};
	size_t i;
	uint32_t k;

	for (i = 0; i < board->count; i++) {
		const struct gauge *gauge = board->gauges[i];
		const struct gauge_judgement *found = gauge->latest;

		sums.running += gauge->state == GAUGE_RUNS;
		sums.waiting += gauge->state == GAUGE_WAITS;
		sums.blind += gauge->state == GAUGE_BLIND;
		sums.ended += gauge->state == GAUGE_ENDED;
		sums.lost_gauges += gauge->state == GAUGE_LOST;
		sums.events += replay_totals(gauge->pass.replay)->events;
		sums.lost += gauge_lost(gauge);
		sums.refused += gauge_refused(gauge);
		sums.resident += gauge_resident(gauge);
		sums.events_rate += gauge->events_rate;
		if (gauge->steps_rate > sums.steps_rate)
			sums.steps_rate = gauge->steps_rate;
		if (gauge->step > sums.step)
			sums.step = gauge->step;
		sums.catching_up |= !gauge->caught_up && gauge->state != GAUGE_BLIND;
		sums.left += (double)gauge->events_left;
		if (found == NULL)
			continue;
		sums.answered = true;
		sums.judged |= found->judged;
		sums.by_time |= found->by_time;
		sums.devices += found->forecast_count;
		if (found->forecast_count > 0 &&
		    (sums.forecast == NULL ||
		     found->forecasts[0].found.seconds < sums.forecast->found.seconds))
			sums.forecast = &found->forecasts[0];
		sums.leaks += found->leaks;
		sums.suspects += found->suspects;
		for (k = 0; k < found->kept; k++) {
			if (found->places[k].verdict == GROWTH_LEAK)
				sums.growth_bytes += found->places[k].growth_bytes;
		}
	}
	return sums;
}

static const char *state_word(const struct board *board, const struct sums *sums)
{
	if (board->ended || (board->count > 0 && sums->ended + sums->lost_gauges == board->count))
		return "ended";
	return sums->catching_up ? "reading" : "live";
}

static void add_title(struct canvas *frame, const struct sums *sums)
{
	const struct board *board = frame->board;
	const struct session *session = board->place.session;
	const char *state = state_word(board, sums);
	struct timespec wall;
	uint64_t seconds = 0;
	struct strbuf *line = &frame->line;

	(void)clock_gettime(CLOCK_REALTIME, &wall);
	if ((uint64_t)wall.tv_sec > session->realtime_ns / 1000000000u)
		seconds = (uint64_t)wall.tv_sec - session->realtime_ns / 1000000000u;
	strbuf_addf(line, "%s (pid %u), ", board_name(board), session->launch_pid);
	if (session->dry[0] != '\0')
		strbuf_addf(line, "dry run on %s, ", session->dry);
	if (board->count > 1)
		strbuf_addf(line, "%zu processes, ", board->count);
	strbuf_addf(line, "%" PRIu64 ":%02" PRIu64 ":%02" PRIu64, seconds / 3600, seconds / 60 % 60,
		    seconds % 60);
	if (sums->step > 0)
		strbuf_addf(line, ", step %u", sums->step);
	if (sums->steps_rate > 0)
		strbuf_addf(line, ", %.1f steps/s", sums->steps_rate);
	strbuf_add_str(line, ", ");
	add_grouped(line, sums->events_rate > 0 ? whole(sums->events_rate + 0.5) : sums->events);
	strbuf_add_str(line, sums->events_rate > 0 ? " events/s" : " events");
	if (sums->resident > 0) {
		strbuf_add_str(line, ", RSS ");
		strbuf_add_size(line, sums->resident);
	}
	/* The state stands at the right edge, also where the rest is too long. */
	if (screen_columns(strbuf_str(line)) + 9 > frame->columns) {
		struct strbuf cut = {0};

		screen_cut(strbuf_str(line), frame->columns - 9, &cut);
		strbuf_reset(line);
		strbuf_add_str(line, strbuf_str(&cut));
		strbuf_fini(&cut);
	}
	add_right(line, 0, frame->columns, state);
	end_line(frame, BOLD);
}

/* What is wrong, worst first; a line each. */
static void add_problems(struct canvas *frame, const struct sums *sums)
{
	struct strbuf *line = &frame->line;
	const char *per = sums->by_time ? " per tenth of the run" : " per step";

	if (sums->refused > 0) {
		strbuf_add_str(line, "OUT OF MEMORY: ");
		strbuf_add_count(line, sums->refused, "request was refused",
				 "requests were refused");
		end_line(frame, RED);
	}
	if (sums->leaks > 0) {
		strbuf_add_str(line, "LEAK: ");
		strbuf_add_count(line, sums->leaks, "call site grows", "call sites grow");
		strbuf_add_str(line, ", ");
		add_signed(line, sums->growth_bytes);
		strbuf_add_str(line, per);
		end_line(frame, RED);
	}
	if (sums->forecast != NULL) {
		if (sums->devices > 1)
			strbuf_addf(line, "first of %zu: ", sums->devices);
		strbuf_add_str(line, sums->forecast->sentence);
		end_line(frame, RED);
	}
	if (sums->suspects > 0) {
		strbuf_add_str(line, "maybe: ");
		strbuf_add_count(line, sums->suspects, "call site may be growing",
				 "call sites may be growing");
		end_line(frame, YELLOW);
	}
	if (sums->lost > 0) {
		strbuf_add_count(line, sums->lost, "event was not recorded",
				 "events were not recorded");
		strbuf_add_str(line, "; msmemscope info says why");
		end_line(frame, YELLOW);
	}
	if (sums->leaks + sums->suspects + sums->refused > 0 || !sums->answered)
		return;
	if (sums->judged)
		strbuf_add_str(line, "No call site grows so far.");
	else
		strbuf_add_str(line,
			       "Too early to judge growth: it takes some steps after the first.");
	end_line(frame, sums->judged ? GREEN : NULL);
}

/* Why figures are missing, if they are. */
static void add_reasons(struct canvas *frame, const struct sums *sums)
{
	struct strbuf *line = &frame->line;

	if (frame->board->count == 0) {
		strbuf_add_str(line, "No process has recorded anything yet.");
		end_line(frame, NULL);
	}
	if (sums->waiting > 0) {
		strbuf_add_count(line, sums->waiting, "process records", "processes record");
		strbuf_add_str(
			line,
			" nothing now: the program has not called start(), or has called stop().");
		end_line(frame, NULL);
	}
	if (sums->blind > 0) {
		strbuf_add_count(line, sums->blind, "process", "processes");
		strbuf_add_str(line,
			       " can only be read after its end: membarrier(2) is not available.");
		end_line(frame, YELLOW);
	}
	if (sums->catching_up && sums->left > 0) {
		strbuf_add_str(line, "Reading the recording so far, about ");
		add_grouped(line, whole(sums->left));
		strbuf_add_str(line, " events left.");
		end_line(frame, NULL);
	}
}

/* ---- pools ---- */

/* A line of the table: a pool of a process, or the driver's figures of a device. */
struct entry {
	const struct gauge *gauge;
	const struct usage *usage;
	size_t index;
	const struct driver_usage *driver; /* instead of the usage */
};

struct entries {
	struct entry *all;
	size_t count, room;
};

static void add_entry(struct entries *entries, struct entry entry)
{
	if (ARRAY_RESERVE(entries->all, entries->room, entries->count + 1) == 0)
		entries->all[entries->count++] = entry;
}

static bool driver_is_known(const struct driver_usage *driver)
{
	return driver != NULL && driver->total_bytes > 0 && driver->device_bytes != UINT64_MAX;
}

/* Ranks in their order, those without one by their pid. */
static int by_rank(const void *a, const void *b)
{
	const struct gauge *x = *(struct gauge *const *)a, *y = *(struct gauge *const *)b;

	return ORDER_UP(x->rank, y->rank) ?: ORDER_UP(x->pid, y->pid);
}

static struct gauge **in_order(const struct board *board)
{
	struct gauge **gauges = calloc(board->count + 1, sizeof(struct gauge *));
	size_t i;

	for (i = 0; gauges != NULL && i < board->count; i++)
		gauges[i] = board->gauges[i];
	if (gauges != NULL && board->count > 1)
		qsort((void *)gauges, board->count, sizeof(struct gauge *), by_rank);
	return gauges;
}

static void list_entries(const struct board *board, struct entries *out)
{
	struct gauge **gauges = in_order(board);
	size_t i, k, count;

	for (i = 0; gauges != NULL && i < board->count; i++) {
		const struct usage *usages = replay_usages(gauges[i]->pass.replay, &count);
		uint64_t devices = 0;

		for (k = 0; k < count; k++) {
			if (usages[k].hidden || usages[k].allocations == 0)
				continue;
			add_entry(out, (struct entry){gauges[i], &usages[k], k, NULL});
		}
		for (k = 0; k < count; k++) {
			const struct driver_usage *driver =
				replay_driver_usage(gauges[i]->pass.replay, usages[k].device);

			if (usages[k].hidden || usages[k].device >= 64 ||
			    (devices >> usages[k].device & 1) != 0 || !driver_is_known(driver))
				continue;
			devices |= UINT64_C(1) << usages[k].device;
			add_entry(out, (struct entry){gauges[i], &usages[k], k, driver});
		}
	}
	free((void *)gauges);
}

/* Where the columns of the pools end. */
enum pool_column {
	RANK_END = 0,
	DEVICE_AT = 8,
	POOL_AT = 15,
	USED_END = 38,
	PEAK_END = 49,
	RESERVED_END = 60,
	RATE_END = 69,
	STEP_END = 80,
	DRIFT_END = 94
};

static void add_pool(struct canvas *frame, const struct entry *entry, bool first)
{
	struct strbuf *line = &frame->line;
	const struct gauge *gauge = entry->gauge;
	const struct usage *usage = entry->usage;
	double growth, drift = entry->index < gauge->rate_count ? gauge->drifts[entry->index] : 0;
	char device[16];

	if (first && gauge->rank >= 0)
		strbuf_addf(line, "%" PRId64, gauge->rank);
	else if (first)
		strbuf_addf(line, "%u", gauge->pid);
	device_text(usage->device, device);
	pad_to(line, 0, DEVICE_AT);
	strbuf_add_str(line, device);
	pad_to(line, 0, POOL_AT);
	if (entry->driver != NULL) {
		uint64_t used = entry->driver->device_bytes, total = entry->driver->total_bytes;
		uint64_t filled = used >= total ? BAR : used * BAR / total, i;

		strbuf_add_str(line, "driver  [");
		for (i = 0; i < BAR; i++)
			strbuf_add_char(line, i < filled ? '#' : '-');
		strbuf_add_str(line, "] ");
		strbuf_add_size(line, used);
		strbuf_add_str(line, " of ");
		strbuf_add_size(line, total);
		end_line(frame, used > total - total / 20 ? RED : NULL);
		return;
	}
	strbuf_add_str(line, pool_event_type(usage->pool));
	add_right(line, 0, USED_END, size_field(frame, gauge_used(usage)));
	add_right(line, 0, PEAK_END, size_field(frame, gauge_peak(usage)));
	add_right(line, 0, RESERVED_END,
		  usage->reserved_bytes == UINT64_MAX ? "-"
						      : size_field(frame, usage->reserved_bytes));
	add_right(line, 0, RATE_END,
		  gauge->seconds > 0 ? number_field(frame, gauge->rates[entry->index]) : "-");
	add_right(line, 0, STEP_END,
		  gauge_growth(gauge, entry->index, &growth) ? signed_field(frame, growth) : "-");
	if (frame->columns >= WIDE)
		add_right(line, 0, DRIFT_END,
			  gauge->seconds > 0 ? signed_field(frame, drift) : "-");
	end_line(frame, NULL);
}

/* A pool that holds most comes first, where not all have room. */
static int by_used(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	uint64_t used_x = gauge_used(x->usage), used_y = gauge_used(y->usage);

	return ORDER_DOWN(used_x, used_y) ?: ORDER_UP(x->index, y->index);
}

static void add_pools(struct canvas *frame, size_t most)
{
	struct entries entries = {0};
	struct strbuf *line = &frame->line;
	bool ranks = false;
	size_t i;

	list_entries(frame->board, &entries);
	for (i = 0; i < entries.count; i++)
		ranks |= entries.all[i].gauge->rank >= 0;
	if (entries.count == 0)
		return;
	end_line(frame, NULL);
	strbuf_add_str(line, ranks ? "RANK" : "PID");
	pad_to(line, 0, DEVICE_AT);
	strbuf_add_str(line, "DEVICE");
	pad_to(line, 0, POOL_AT);
	strbuf_add_str(line, "POOL");
	add_right(line, 0, USED_END, "USED");
	add_right(line, 0, PEAK_END, "PEAK");
	add_right(line, 0, RESERVED_END, "RESERVED");
	add_right(line, 0, RATE_END, "ALLOC/s");
	add_right(line, 0, STEP_END, "PER STEP");
	if (frame->columns >= WIDE)
		add_right(line, 0, DRIFT_END, "PER SECOND");
	end_line(frame, BOLD);
	if (most > 0 && entries.count > most)
		qsort(entries.all, entries.count, sizeof(*entries.all), by_used);
	for (i = 0; i < entries.count && (most == 0 || i < most); i++)
		add_pool(frame, &entries.all[i],
			 i == 0 || entries.all[i].gauge != entries.all[i - 1].gauge);
	if (i < entries.count) {
		strbuf_add_str(line, "... ");
		strbuf_add_count(line, entries.count - i, "smaller pool", "smaller pools");
		end_line(frame, NULL);
	}
	free(entries.all);
}

/* ---- places ---- */

static const char *const colours[SEVERITIES] = {
	[SEVERITY_WARNING] = YELLOW, [SEVERITY_ERROR] = RED};

static int by_weight(const void *a, const void *b)
{
	const struct shared_place *x = a, *y = b;
	int rank_x = x->sum.verdict == GROWTH_LEAK ? 2 : x->sum.verdict != GROWTH_KEPT;
	int rank_y = y->sum.verdict == GROWTH_LEAK ? 2 : y->sum.verdict != GROWTH_KEPT;

	if (rank_x != rank_y)
		return rank_y - rank_x;
	if (x->sum.severity != y->sum.severity)
		return x->sum.severity > y->sum.severity ? -1 : 1;
	if (rank_x > 0 && x->sum.growth_bytes != y->sum.growth_bytes)
		return x->sum.growth_bytes > y->sum.growth_bytes ? -1 : 1;
	if (x->sum.bytes != y->sum.bytes)
		return x->sum.bytes > y->sum.bytes ? -1 : 1;
	return strcmp(x->sum.where, y->sum.where);
}

static struct shared_place *join_places(const struct board *board, size_t *out_count)
{
	struct shared_place *all = NULL;
	size_t count = 0, room = 0, i, m;
	uint32_t k;

	for (i = 0; i < board->count; i++) {
		const struct gauge_judgement *found = board->gauges[i]->latest;

		for (k = 0; found != NULL && k < found->kept; k++) {
			const struct gauge_place *place = &found->places[k];

			for (m = 0; m < count && (all[m].sum.pool != place->pool ||
						  strcmp(all[m].sum.where, place->where) != 0);
			     m++)
				;
			if (m == count) {
				if (ARRAY_RESERVE(all, room, count + 1) < 0)
					break;
				all[count++] = (struct shared_place){
					.sum = *place, .processes = 1, .findings = 1, .last = i};
				continue;
			}
			all[m].processes += all[m].last != i;
			all[m].last = i;
			all[m].sum.bytes += place->bytes;
			all[m].sum.blocks += place->blocks;
			all[m].sum.growth_bytes += place->growth_bytes;
			if (all[m].sum.severity < place->severity)
				all[m].sum.severity = place->severity;
			if (place->verdict == all[m].sum.verdict) {
				all[m].findings++;
			} else if (place->verdict == GROWTH_LEAK ||
				   all[m].sum.verdict == GROWTH_KEPT) {
				all[m].sum.verdict = place->verdict;
				all[m].findings = 1;
			}
		}
	}
	if (count > 0)
		qsort(all, count, sizeof(*all), by_weight);
	*out_count = count;
	return all;
}

static void add_place(struct canvas *frame, const struct shared_place *place, size_t held_end,
		      bool several)
{
	const struct gauge_place *sum = &place->sum;
	struct strbuf *line = &frame->line, where = {0}, pool = {0};
	size_t room = held_end - 17 - (place->processes > 1 ? 6 : 0), taken;
	const char *word = sum->verdict == GROWTH_LEAK	 ? "LEAK"
			   : sum->verdict != GROWTH_KEPT ? "maybe"
							 : "";

	strbuf_add_str(line, word);
	pad_to(line, 0, 6);
	if (several)
		strbuf_addf(&pool, "%s: ", pool_event_type(sum->pool));
	strbuf_add_shown(&where, sum->where, strlen(sum->where));
	/* The number of processes follows it, also where it is short. */
	taken = screen_columns(strbuf_str(&pool));
	strbuf_add_str(line, strbuf_str(&pool));
	screen_name(strbuf_str(&where), sum->frames, NULL, 0, room > taken ? room - taken : 0,
		    line);
	if (place->processes > 1)
		strbuf_addf(line, " x%u", place->processes);
	strbuf_fini(&where);
	strbuf_fini(&pool);
	add_right(line, 0, held_end, size_field(frame, sum->bytes));
	add_right(line, 0, held_end + 9, number_field(frame, (double)sum->blocks));
	if (sum->verdict != GROWTH_KEPT)
		add_right(line, 0, held_end + 21, signed_field(frame, sum->growth_bytes));
	end_line(frame, colours[sum->severity]);
}

static void add_places(struct canvas *frame)
{
	size_t count = frame->place_count,
	       held_end = frame->columns < 60 ? 39 : frame->columns - 21, i, most;
	const struct shared_place *all = frame->places;
	struct strbuf *line = &frame->line;
	bool several = false;

	most = frame->rows == 0		       ? 10
	       : frame->rows > frame->used + 2 ? frame->rows - frame->used - 2
					       : 0;
	for (i = 1; i < count; i++)
		several |= all[i].sum.pool != all[0].sum.pool;
	if (count > 0 && most > 0) {
		end_line(frame, NULL);
		strbuf_add_str(line, "PLACES");
		add_right(line, 0, held_end, "HELD");
		add_right(line, 0, held_end + 9, "BLOCKS");
		add_right(line, 0, held_end + 21, "PER STEP");
		end_line(frame, BOLD);
	}
	for (i = 0; i < count && i < most; i++) {
		if (i + 1 == most && count > most) {
			strbuf_add_str(line, "      ... ");
			strbuf_add_count(line, count - i, "more call site", "more call sites");
			end_line(frame, NULL);
			break;
		}
		add_place(frame, &all[i], held_end, several);
	}
}

/* A place is told once, also where several devices or processes have it; those that were not kept count each. */
static void count_joined(const struct canvas *frame, struct sums *sums)
{
	size_t i;

	for (i = 0; i < frame->place_count; i++) {
		const struct shared_place *place = &frame->places[i];

		if (place->sum.verdict == GROWTH_LEAK)
			sums->leaks -= place->findings - 1;
		else if (place->sum.verdict != GROWTH_KEPT)
			sums->suspects -= place->findings - 1;
	}
}

void board_text(const struct board *board, const struct board_look *look, struct strbuf *out)
{
	struct sums sums = sum_up(board);
	struct canvas frame = {.board = board,
			       .look = look,
			       .out = out,
			       .columns = look->columns < COLUMNS_LEAST ? COLUMNS_LEAST
									: look->columns,
			       .rows = look->rows > 1 ? look->rows - look->keys : look->rows};

	frame.places = join_places(board, &frame.place_count);
	count_joined(&frame, &sums);
	add_title(&frame, &sums);
	add_problems(&frame, &sums);
	add_reasons(&frame, &sums);
	add_pools(&frame, look->rows == 0 ? 0 : look->rows > 14 ? (look->rows - 6) / 2 : 3);
	add_places(&frame);
	if (look->keys) {
		while (frame.used < frame.rows)
			end_line(&frame, NULL);
		frame.rows = look->rows;
		strbuf_addf(&frame.line, "q quits; results: %s", board->place.session->output);
		end_line(&frame, NULL);
	}
	strbuf_fini(&frame.line);
	strbuf_fini(&frame.field);
	free(frame.places);
}

/* ---- JSON ---- */

static void say_pools(const struct gauge *gauge, struct json *json)
{
	const struct usage *usages;
	char device[16];
	size_t count, i;
	double growth;

	usages = replay_usages(gauge->pass.replay, &count);
	json_array(json, "pools");
	for (i = 0; i < count; i++) {
		if (usages[i].hidden || usages[i].allocations == 0)
			continue;
		device_text(usages[i].device, device);
		json_object(json, NULL);
		json_string(json, "device", device);
		json_string(json, "pool", pool_event_type(usages[i].pool));
		json_u64(json, "used_bytes", gauge_used(&usages[i]));
		json_u64(json, "peak_bytes", gauge_peak(&usages[i]));
		json_u64(json, "blocks", usages[i].live_blocks);
		json_u64(json, "allocations", usages[i].allocations);
		json_u64(json, "frees", usages[i].frees);
		if (usages[i].reserved_bytes != UINT64_MAX)
			json_u64(json, "reserved_bytes", usages[i].reserved_bytes);
		if (gauge_growth(gauge, i, &growth))
			json_f64(json, "growth_bytes_per_step", growth, 1);
		json_end(json);
	}
	json_end(json);
}

static void say_forecasts(const struct gauge_judgement *found, struct json *json)
{
	char device[16];
	uint32_t i;

	json_array(json, "forecasts");
	for (i = 0; found != NULL && i < found->forecast_count; i++) {
		const struct gauge_forecast *forecast = &found->forecasts[i];

		device_text(forecast->found.device, device);
		json_object(json, NULL);
		json_string(json, "device", device);
		json_u64(json, "step", forecast->found.step);
		json_u64(json, "full_step", forecast->found.full_step);
		json_u64(json, "full_step_low", forecast->found.full_step_low);
		json_u64(json, "full_step_high", forecast->found.full_step_high);
		json_f64(json, "seconds", forecast->found.seconds, 1);
		json_string(json, "sentence", forecast->sentence);
		json_end(json);
	}
	json_end(json);
}

static void say_places(const struct gauge_judgement *found, struct json *json)
{
	char device[16];
	uint32_t i;

	json_bool(json, "judged", found != NULL && found->judged);
	json_u64(json, "leaks", found == NULL ? 0 : found->leaks);
	json_u64(json, "suspects", found == NULL ? 0 : found->suspects);
	json_array(json, "places");
	for (i = 0; found != NULL && i < found->kept; i++) {
		const struct gauge_place *place = &found->places[i];

		device_text(place->device, device);
		json_object(json, NULL);
		json_string(json, "place", place->where);
		json_string(json, "device", device);
		json_string(json, "pool", pool_event_type(place->pool));
		json_string(json, "verdict",
			    place->verdict == GROWTH_LEAK   ? "leak"
			    : place->verdict != GROWTH_KEPT ? "suspect"
							    : "none");
		json_u64(json, "bytes", place->bytes);
		json_u64(json, "blocks", place->blocks);
		if (place->verdict != GROWTH_KEPT)
			json_f64(json, "growth_bytes_per_step", place->growth_bytes, 1);
		json_end(json);
	}
	json_end(json);
}

void board_json(const struct board *board, struct strbuf *out)
{
	const struct session *session = board->place.session;
	struct json json;
	size_t i;

	json_begin(&json, out);
	json_object(&json, NULL);
	json_u64(&json, "pid", session->launch_pid);
	json_string(&json, "directory", board->place.directory);
	json_string(&json, "results", session->output);
	if (session->dry[0] != '\0')
		json_string(&json, "dry", session->dry);
	json_bool(&json, "ended", board->ended);
	json_array(&json, "processes");
	for (i = 0; i < board->count; i++) {
		const struct gauge *gauge = board->gauges[i];

		json_object(&json, NULL);
		json_u64(&json, "pid", gauge->pid);
		if (gauge->rank >= 0)
			json_i64(&json, "rank", gauge->rank);
		json_string(&json, "name", gauge->name == NULL ? "" : gauge->name);
		json_string(&json, "state", gauge_state_word(gauge->state));
		json_u64(&json, "steps", gauge->step);
		json_u64(&json, "events", replay_totals(gauge->pass.replay)->events);
		json_u64(&json, "lost", gauge_lost(gauge));
		json_u64(&json, "refused", gauge_refused(gauge));
		if (gauge_resident(gauge) != 0)
			json_u64(&json, "resident_bytes", gauge_resident(gauge));
		say_pools(gauge, &json);
		say_places(gauge->latest, &json);
		say_forecasts(gauge->latest, &json);
		json_end(&json);
	}
	json_end(&json);
	json_end(&json);
	strbuf_add_char(out, '\n');
}
