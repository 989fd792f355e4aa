/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/comparison.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analysis/segments.h"
#include "findings/say.h"
#include "findings/site.h"
#include "base/io.h"
#include "base/shown.h"
#include "dump/csv_text.h"
#include "sink/report.h"
#include "sink/screen.h"
#include "sink/screen_names.h"
#include "sink/sink.h"

#define FLUSH_BYTES (256u << 10)

static const char head[] = ",,,Base,Compare\n"
			   "Event,Name,Device Id,Allocated Memory(byte),Allocated "
			   "Memory(byte),Diff Memory(byte)\n";

/* ---- csv ---- */

static void csv_bytes(struct strbuf *sb, const struct compare *compare,
		      const struct compare_row *row, int side)
{
	int64_t bytes;

	strbuf_add_char(sb, ',');
	if (compare_bytes(compare, row, side, &bytes))
		strbuf_add_i64(sb, bytes);
	else
		strbuf_add_str(sb, "N/A");
}

static int write_rows(const struct compare *compare, int fd)
{
	struct strbuf sb = {0};
	char device[16];
	size_t i;
	int r = 0;

	for (i = 0; i < compare->row_count && r == 0; i++) {
		const struct compare_row *row = &compare->rows[i];
		const char *name = compare_name(compare, row);

		if (i == 0 || row->device != compare->rows[i - 1].device)
			project_device_text(row->device, device);
		strbuf_add_str(&sb, compare_event(compare, row));
		strbuf_add_char(&sb, ',');
		csv_add_text(&sb, name, strlen(name));
		strbuf_add_char(&sb, ',');
		strbuf_add_str(&sb, device);
		csv_bytes(&sb, compare, row, 0);
		csv_bytes(&sb, compare, row, 1);
		strbuf_add_char(&sb, ',');
		strbuf_add_i64(&sb, compare_difference(compare, row));
		strbuf_add_char(&sb, '\n');
		if (sb.length >= FLUSH_BYTES)
			r = io_flush(fd, &sb);
	}
	if (r == 0)
		r = io_flush(fd, &sb);
	strbuf_fini(&sb);
	return r;
}

static int file_fail(struct comparison_file *file, int r, struct mscope_error *err)
{
	io_close(&file->fd);
	(void)unlink(file->path);
	return error_set(err, r, "cannot write %s: %s", file->path, mscope_status_str(r));
}

int comparison_file_open(struct comparison_file *file, const char *output, uint64_t wall_ns,
			 int32_t utc_offset_s, struct mscope_error *err)
{
	char directory[PROJECT_PATH_MAX], stamp[16], suffix[16] = "";
	int attempt, r;

	file->fd = -1;
	if (snprintf(directory, sizeof(directory), "%s/compare", output) >= (int)sizeof(directory))
		return error_set(err, -ENAMETOOLONG, "%.64s... is too long a path", output);
	r = project_mkdirs(directory);
	if (r < 0)
		return error_set(err, r, "cannot create %s: %s", directory, strerror(-r));
	project_stamp(wall_ns, utc_offset_s, stamp);
	for (attempt = 1; attempt < 10000 && file->fd < 0; attempt++) {
		if (attempt > 1)
			(void)snprintf(suffix, sizeof(suffix), "_%d", attempt);
		(void)snprintf(file->path, sizeof(file->path), "%s/memory_compare_%s%s.csv",
			       directory, stamp, suffix);
		file->fd = open(file->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
				0600);
		if (file->fd < 0 && errno != EEXIST)
			break;
	}
	if (file->fd < 0)
		return error_set(err, -errno, "cannot write %s: %s", file->path, strerror(errno));
	r = io_write(file->fd, head, sizeof(head) - 1);
	return r < 0 ? file_fail(file, r, err) : 0;
}

int comparison_file_add(struct comparison_file *file, const struct compare *compare,
			struct mscope_error *err)
{
	int r = write_rows(compare, file->fd);

	return r < 0 ? file_fail(file, r, err) : 0;
}

int comparison_file_close(struct comparison_file *file, bool keep, struct mscope_error *err)
{
	int fd = file->fd;

	if (fd < 0)
		return 0;
	file->fd = -1;
	if (close(fd) < 0 && keep)
		return file_fail(file, -errno, err);
	if (!keep)
		(void)unlink(file->path);
	return 0;
}

/* ---- sums ---- */

/* Rows of one device, which stand together, and what they come to. */
struct device_sums {
	uint32_t device;
	size_t from, to;
	int64_t bytes[2];
	size_t alone[2]; /* calls that only this run has */
	size_t both, differ;
};

/* The device whose rows begin at `from`. */
static struct device_sums sum_up(const struct compare *compare, size_t from)
{
	struct device_sums sums = {.device = compare->rows[from].device, .from = from, .to = from};
	int64_t bytes[2];
	bool there[2];

	for (; sums.to < compare->row_count && compare->rows[sums.to].device == sums.device;
	     sums.to++) {
		const struct compare_row *row = &compare->rows[sums.to];

		there[0] = compare_bytes(compare, row, 0, &bytes[0]);
		there[1] = compare_bytes(compare, row, 1, &bytes[1]);
		sums.bytes[0] += bytes[0];
		sums.bytes[1] += bytes[1];
		sums.alone[0] += !there[1];
		sums.alone[1] += !there[0];
		sums.both += there[0] && there[1];
		sums.differ += bytes[0] != bytes[1];
	}
	return sums;
}

static int64_t difference_of(const int64_t both[2])
{
	return both[1] - both[0];
}

static uint64_t size_of(int64_t difference)
{
	return difference < 0 ? 0 - (uint64_t)difference : (uint64_t)difference;
}

/* The pool that a person looks at first: one that calls are compared by, then the one that differs most, then the largest. */
static uint64_t pool_rank(const struct difference_pool *pool, int by)
{
	uint64_t peak = size_of(difference_of(pool->peak)), end = size_of(difference_of(pool->end));

	if (by == 0)
		return pool->counts && (peak > 0 || end > 0);
	if (by == 1)
		return peak > end ? peak : end;
	if (by == 2)
		return pool->counts;
	return (uint64_t)(pool->peak[0] > pool->peak[1] ? pool->peak[0] : pool->peak[1]);
}

static int pools_by_rank(const void *a, const void *b)
{
	const struct difference_pool *x = *(const struct difference_pool *const *)a,
				     *y = *(const struct difference_pool *const *)b;
	int by;

	for (by = 0; by < 4; by++) {
		uint64_t first = pool_rank(x, by), second = pool_rank(y, by);

		if (first != second)
			return first > second ? -1 : 1;
	}
	if (x->device != y->device)
		return x->device < y->device ? -1 : 1;
	return x->pool - y->pool;
}

/* All pools in that order. NULL: no memory. */
static const struct difference_pool **rank_pools(const struct differences *differences)
{
	const struct difference_pool **ranked =
		calloc(differences->pool_count + 1, sizeof(const struct difference_pool *));
	size_t i;

	for (i = 0; ranked != NULL && i < differences->pool_count; i++)
		ranked[i] = &differences->pools[i];
	if (ranked != NULL && differences->pool_count > 0)
		qsort(ranked, differences->pool_count, sizeof(const struct difference_pool *),
		      pools_by_rank);
	return ranked;
}

uint64_t comparison_size(const struct differences *differences)
{
	uint64_t most = 0;
	size_t i;

	for (i = 0; i < differences->pool_count; i++) {
		uint64_t size = pool_rank(&differences->pools[i], 1);

		if (size > most)
			most = size;
	}
	/* Calls may differ without bytes. */
	return most * 2 + (differences->differing_places > 0 || differences->call_count > 0);
}

/* ---- text ---- */

#define WIDTH	      100
#define OWNER_COLUMNS 24 /* of whose memory a call site has */

/* A name as a terminal may see it. */
static void add_name(struct strbuf *out, const char *name)
{
	strbuf_add_shown(out, name, strlen(name));
}

/* Ends a line that began at `from`, no wider than a screen. */
static void end_line(struct strbuf *out, size_t from)
{
	if (!strbuf_failed(out) && out->length - from > WIDTH) {
		size_t at = from + WIDTH - 3;

		/* Not in the middle of a character. */
		while (at > from && ((unsigned char)out->data[at] & 0xc0) == 0x80)
			at--;
		out->length = at;
		strbuf_add_str(out, "...");
	}
	strbuf_add_char(out, '\n');
}

static void add_right(struct strbuf *out, const struct strbuf *text, int width)
{
	strbuf_addf(out, "%*s", width, strbuf_str(text));
}

static void add_bytes(struct strbuf *out, int64_t bytes, bool sign, int width)
{
	struct strbuf text = {0};

	if (bytes < 0)
		strbuf_add_char(&text, '-');
	else if (sign && bytes > 0)
		strbuf_add_char(&text, '+');
	strbuf_add_size(&text, size_of(bytes));
	add_right(out, &text, width);
	strbuf_fini(&text);
}

static uint8_t vendor_of(const struct compare *compare)
{
	const struct replay *replay = compare->sides[compare->sides[0].replay == NULL].replay;

	return replay == NULL ? VENDOR_CPU : replay_vendor(replay);
}

/* "CPU tensors", "PyTorch pool on GPU 0". */
static void pool_name(const struct compare *compare, const struct difference_pool *pool,
		      struct strbuf *out)
{
	strbuf_add_str(out, say_pool(vendor_of(compare), pool->pool));
	if (pool->device == DEVICE_HOST || pool->device == DEVICE_UNKNOWN)
		return;
	strbuf_add_str(out, " on ");
	say_device(out, vendor_of(compare), pool->device);
}

static void text_pools(const struct compare *compare, const struct differences *differences,
		       struct strbuf *out)
{
	const struct difference_pool **ranked = rank_pools(differences);
	size_t i;

	if (ranked == NULL) {
		out->failed = true;
		return;
	}
	strbuf_addf(out, "%-29s%11s%11s%11s%12s%11s%11s\n", "", "peak: base", "compare",
		    "difference", "end: base", "compare", "difference");
	for (i = 0; i < differences->pool_count && i < COMPARISON_POOLS; i++) {
		struct strbuf name = {0};

		pool_name(compare, ranked[i], &name);
		strbuf_addf(out, "%-29s", strbuf_str(&name));
		add_bytes(out, ranked[i]->peak[0], false, 11);
		add_bytes(out, ranked[i]->peak[1], false, 11);
		add_bytes(out, difference_of(ranked[i]->peak), true, 11);
		add_bytes(out, ranked[i]->end[0], false, 12);
		add_bytes(out, ranked[i]->end[1], false, 11);
		add_bytes(out, difference_of(ranked[i]->end), true, 11);
		strbuf_add_char(out, '\n');
		strbuf_fini(&name);
	}
	if (i < differences->pool_count)
		strbuf_addf(out, "... %zu more; --json has all\n", differences->pool_count - i);
	free(ranked);
}

void comparison_line(const struct compare *compare, const struct differences *differences,
		     struct strbuf *out)
{
	const struct difference_pool **ranked = rank_pools(differences);

	if (ranked == NULL) {
		out->failed = true;
	} else if (differences->pool_count == 0) {
		strbuf_add_str(out, "no memory in either run");
	} else {
		pool_name(compare, ranked[0], out);
		strbuf_add_str(out, ": peak ");
		add_bytes(out, ranked[0]->peak[0], false, 0);
		strbuf_add_str(out, " and ");
		add_bytes(out, ranked[0]->peak[1], false, 0);
		strbuf_add_str(out, " (");
		add_bytes(out, difference_of(ranked[0]->peak), true, 0);
		strbuf_add_str(out, "), end ");
		add_bytes(out, difference_of(ranked[0]->end), true, 0);
		strbuf_addf(out, "; %zu call sites and %zu kinds of calls differ",
			    differences->differing_places, differences->call_count);
	}
	free(ranked);
}

static const char *colour_of(bool colour, int64_t difference)
{
	if (!colour || difference == 0)
		return "";
	return difference > 0 ? "\033[31m" : "\033[32m";
}

/* The call in whose time the blocks of a place are freed in one run and not in the other. */
static void add_freed(const struct compare *compare, const struct differences *differences,
		      size_t place, struct strbuf *out)
{
	int64_t more = difference_of(differences->places[place].end);
	size_t i;

	for (i = 0; i < differences->call_count; i++) {
		const struct difference_call *call = &differences->calls[i];
		int64_t left = difference_of(call->left);

		if (call->place != place || call->kind == DIFFERENCE_AFTER_ALL || left == 0 ||
		    (left > 0) != (more > 0) || call->left[more < 0] >= call->left[more > 0])
			continue;
		/* Blocks that this call allocates are its own. */
		if (call->allocated[0] != call->allocated[1])
			continue;
		strbuf_addf(out, "; %s frees them %s ", more > 0 ? "base" : "compare",
			    call->outside ? "before" : "in");
		add_name(out, compare->names.data + (call->name & ~COMPARE_KERNEL));
		return;
	}
}

/* Where the peak of one run is at another moment than that of the other. */
static void add_moment(const struct difference_pool *pool, struct strbuf *out)
{
	int high = pool->peak[1] >= pool->peak[0];

	if (pool->at_moment[!high] == pool->peak[!high])
		return;
	strbuf_addf(out, " at the peak of %s (%s: ", high ? "compare" : "base",
		    high ? "base" : "compare");
	add_bytes(out, pool->at_moment[!high], false, 0);
	strbuf_add_char(out, ')');
}

/* Names of the places that are shown, which a shortened one has to differ from. */
static size_t names_shown(const struct differences *differences, size_t shown, const char **out)
{
	size_t i;

	for (i = 0; i < shown && i < differences->differing_places; i++)
		out[i] = difference_text(differences, differences->places[i].name);
	return i;
}

/* "train.py:17 -> Adam.step  (optimizer state)", in what a line has left; the operator where there is room. */
static void add_place_name(const struct compare *compare, const struct differences *differences,
			   const struct difference_place *place, size_t columns, struct strbuf *out)
{
	const struct difference_pool *pool = &differences->pools[place->pool];
	const char *owner = difference_text(differences, place->owner);
	const char *class = say_class((uint32_t)place->class);
	const char *names[COMPARISON_PLACES];
	size_t count = names_shown(differences, COMPARISON_PLACES, names), used;
	struct strbuf tail = {0}, shown = {0}, name = {0};

	if (class != NULL || owner[0] != '\0')
		strbuf_addf(&shown, "  (%s)", class != NULL ? class : owner);
	if (!pool->counts)
		strbuf_addf(&shown, " (%s)", pool_event_type(pool->pool));
	screen_cut_middle(strbuf_str(&shown), OWNER_COLUMNS, &tail);
	used = screen_columns(strbuf_str(&tail));
	strbuf_reset(&shown);
	screen_name(difference_text(differences, place->name), place->frames, names, count,
		    columns - used, &shown);
	add_name(&name, strbuf_str(&shown));
	strbuf_add_str(&name, strbuf_str(&tail));
	strbuf_reset(&shown);
	if (place->call != 0)
		strbuf_addf(&shown, " [%s]", compare->names.data + place->call - 1);
	if (screen_columns(strbuf_str(&name)) + screen_columns(strbuf_str(&shown)) <= columns)
		add_name(&name, strbuf_str(&shown));
	strbuf_add_str(out, strbuf_str(&name));
	out->failed = out->failed || strbuf_failed(&name);
	strbuf_fini(&tail);
	strbuf_fini(&shown);
	strbuf_fini(&name);
}

/* What differs where neither the peak nor the end does. */
static void add_other_change(const struct difference_place *place, struct strbuf *out)
{
	if (difference_of(place->at_peak) != 0 || difference_of(place->end) != 0)
		return;
	if (difference_of(place->most) != 0) {
		strbuf_add_str(out, "; its own peak");
	} else if (difference_of(place->allocated) != 0) {
		strbuf_add_str(out, "; it allocates ");
		add_bytes(out, difference_of(place->allocated), true, 0);
	} else if (place->life[0] != place->life[1]) {
		strbuf_addf(out, "; its blocks live %s",
			    place->life[1] > place->life[0] ? "longer" : "shorter");
	}
}

#define PLACE_CHANGE 12u /* columns of "8.1 -> 10.1 MiB", at least */

/* Figures of a place: what came, what it was, and what is left at the end; of its own peak where nothing else differs. */
static const int64_t *place_figures(const struct difference_place *place)
{
	bool own = difference_of(place->at_peak) == 0 && difference_of(place->end) == 0;

	return own ? place->most : place->at_peak;
}

static void add_place_figures(const struct difference_place *place, size_t width, bool ends,
			      struct strbuf *out)
{
	const int64_t *both = place_figures(place);
	struct strbuf change = {0};

	add_bytes(out, difference_of(both), true, 10);
	say_change(&change, (uint64_t)both[0], (uint64_t)both[1]);
	strbuf_addf(out, "  %-*s", (int)width, strbuf_str(&change));
	strbuf_fini(&change);
	if (ends)
		add_bytes(out, difference_of(place->end), true, 10);
	strbuf_add_str(out, "  ");
}

/* Columns of the widest "8.1 -> 10.1 MiB" that is shown: names have what is left. */
static size_t change_columns(const struct differences *differences)
{
	size_t i, most = PLACE_CHANGE;

	for (i = 0; i < differences->differing_places && i < COMPARISON_PLACES; i++) {
		const int64_t *both = place_figures(&differences->places[i]);
		struct strbuf change = {0};

		say_change(&change, (uint64_t)both[0], (uint64_t)both[1]);
		most = change.length > most ? change.length : most;
		strbuf_fini(&change);
	}
	return most;
}

/* Whether something of the places that are shown differs at the end. */
static bool shows_ends(const struct differences *differences)
{
	size_t i;

	for (i = 0; i < differences->differing_places && i < COMPARISON_PLACES; i++) {
		if (difference_of(differences->places[i].end) != 0)
			return true;
	}
	return false;
}

static void text_places(const struct compare *compare, const struct differences *differences,
			bool colour, struct strbuf *out)
{
	bool ends = shows_ends(differences);
	size_t i, width = change_columns(differences), figures = 12 + width + (ends ? 12 : 2);

	if (differences->differing_places == 0)
		return;
	strbuf_addf(out, "\n%10s%*s  call sites that hold more or less", "at peak",
		    (int)figures - 12, ends ? "at end" : "");
	add_moment(&differences->pools[differences->places[0].pool], out);
	strbuf_add_char(out, '\n');
	for (i = 0; i < differences->differing_places && i < COMPARISON_PLACES; i++) {
		const struct difference_place *place = &differences->places[i];
		int64_t at_peak = difference_of(place->at_peak), end = difference_of(place->end);
		struct strbuf other = {0}, freed = {0};
		size_t from;

		add_other_change(place, &other);
		strbuf_add_str(out, colour_of(colour, at_peak != 0 ? at_peak : end));
		from = out->length;
		add_place_figures(place, width, ends, out);
		add_place_name(compare, differences, place, WIDTH - figures - other.length, out);
		strbuf_add_str(out, strbuf_str(&other));
		if (end != 0)
			add_freed(compare, differences, i, &freed);
		/* On a line of its own where it does not fit, of the first one. */
		if (i == 0 && out->length - from + freed.length > WIDTH && freed.length > 0) {
			end_line(out, from);
			from = out->length;
			strbuf_addf(out, "%*s%s", (int)figures, "", strbuf_str(&freed) + 2);
		} else if (out->length - from + freed.length <= WIDTH) {
			strbuf_add_str(out, strbuf_str(&freed));
		}
		strbuf_fini(&freed);
		strbuf_fini(&other);
		end_line(out, from);
		if (colour)
			strbuf_add_str(out, "\033[0m");
	}
	if (i < differences->differing_places)
		strbuf_addf(out, "  ... %zu more; --json has all\n",
			    differences->differing_places - i);
}

static void text_layers(const struct differences *differences, bool colour, struct strbuf *out)
{
	size_t i;

	if (differences->layer_count == 0)
		return;
	strbuf_add_str(out, "\nLayers that hold more or less\n");
	for (i = 0; i < differences->layer_count && i < COMPARISON_LAYERS; i++) {
		const struct difference_layer *layer = &differences->layers[i];
		size_t from;

		strbuf_add_str(out, colour_of(colour, difference_of(layer->bytes)));
		from = out->length;
		strbuf_add_str(out, "  ");
		difference_layer_text(differences, layer, out);
		end_line(out, from);
		if (colour)
			strbuf_add_str(out, "\033[0m");
	}
	if (i < differences->layer_count)
		strbuf_addf(out, "  ... %zu more; --json has all\n", differences->layer_count - i);
}

static void add_call(const struct compare *compare, const struct differences *differences,
		     const struct difference_call *call, size_t from, struct strbuf *out)
{
	static const char *const kinds[] = {
		[DIFFERENCE_BOTH] = "",
		[DIFFERENCE_BASE] = ", only in base",
		[DIFFERENCE_COMPARE] = ", only in compare",
		[DIFFERENCE_MOVED] = ", elsewhere in the order",
		[DIFFERENCE_AFTER_ALL] = "after the last call",
	};
	struct strbuf text = {0}, shown = {0};

	if (call->outside && call->kind != DIFFERENCE_AFTER_ALL)
		strbuf_add_str(out, "outside of calls, before ");
	if (call->kind != DIFFERENCE_AFTER_ALL)
		add_name(out, compare->names.data + (call->name & ~COMPARE_KERNEL));
	strbuf_add_str(out, kinds[call->kind]);
	if (call->count > 1)
		strbuf_addf(out, ", %zu calls", call->count);
	else if (call->kind != DIFFERENCE_AFTER_ALL)
		strbuf_addf(out, ", call %zu", call->ordinal);
	if (call->place == DIFFERENCE_NONE)
		return;
	strbuf_add_str(&text, difference_text(differences, differences->places[call->place].name));
	/* Without a stack it may be no more than the name of the call. */
	if (call->kind == DIFFERENCE_AFTER_ALL ||
	    strcmp(strbuf_str(&text), compare->names.data + (call->name & ~COMPARE_KERNEL)) != 0) {
		size_t used = out->length - from + 2;

		strbuf_add_str(out, ": ");
		if (used < WIDTH)
			screen_name(strbuf_str(&text), differences->places[call->place].frames,
				    NULL, 0, WIDTH - used, &shown);
		add_name(out, strbuf_str(&shown));
	}
	strbuf_fini(&shown);
	strbuf_fini(&text);
}

static void text_calls(const struct compare *compare, const struct differences *differences,
		       bool colour, struct strbuf *out)
{
	size_t i, most = differences->layer_count > 0 ? COMPARISON_CALLS_BESIDE_LAYERS
						      : COMPARISON_CALLS;

	if (differences->call_count == 0)
		return;
	strbuf_addf(out, "\n%11s%11s  %s\n", "left", "own peak",
		    "calls that change memory otherwise");
	for (i = 0; i < differences->call_count && i < most; i++) {
		const struct difference_call *call = &differences->calls[i];
		int64_t left = difference_of(call->left), peak = difference_of(call->peak);
		size_t from;

		strbuf_add_str(out, colour_of(colour, left != 0 ? left : peak));
		from = out->length;
		add_bytes(out, left, true, 11);
		add_bytes(out, peak, true, 11);
		strbuf_add_str(out, "  ");
		add_call(compare, differences, call, from, out);
		end_line(out, from);
		if (colour)
			strbuf_add_str(out, "\033[0m");
	}
	if (i < differences->call_count)
		strbuf_addf(out, "  ... %zu more; --json has all\n", differences->call_count - i);
}

/* How many calls there are, over all devices. */
static void text_counts(const struct compare *compare, const struct differences *differences,
			struct strbuf *out)
{
	struct device_sums all = {0};
	size_t from = 0, devices = 0;

	while (from < compare->row_count) {
		struct device_sums sums = sum_up(compare, from);

		all.both += sums.both;
		all.differ += sums.differ;
		all.alone[0] += sums.alone[0];
		all.alone[1] += sums.alone[1];
		from = sums.to;
		devices++;
	}
	strbuf_addf(out, "%zu calls in both, %zu only in base, %zu only in compare; %zu differ",
		    all.both, all.alone[0], all.alone[1], all.differ);
	if (devices > 1)
		strbuf_addf(out, "; %zu devices", devices);
	if (compare->other_devices)
		strbuf_add_str(out, "; devices by their order");
	if (differences->outside[0] != differences->outside[1]) {
		strbuf_add_str(out, "; outside of calls ");
		add_bytes(out, difference_of(differences->outside), true, 0);
	}
	strbuf_add_char(out, '\n');
}

/* The device of a side that was a dry run, else NULL. */
static const char *dry_of(const struct compare_side *side)
{
	return side->replay == NULL ? NULL : run_dry(replay_run(side->replay));
}

static void text_dry(const struct compare *compare, struct strbuf *out)
{
	static const char *const which[] = {"first", "second"};
	int i;

	for (i = 0; i < 2; i++) {
		const char *dry = dry_of(&compare->sides[i]);

		if (dry != NULL)
			strbuf_addf(out, "The %s run is a dry run on %s: no device was used. %s\n",
				    which[i], dry, report_dry_not_counted(dry));
	}
}

/* Of any kind, whether it was asked for or not. */
static bool has_calls(const struct compare *compare)
{
	int i, calls = 0;

	for (i = 0; i < 2; i++)
		calls += compare->sides[i].ops + compare->sides[i].kernels +
				 compare->sides[i].nameless >
			 0;
	return calls > 0;
}

void comparison_text(const struct compare *compare, const struct differences *differences,
		     bool colour, struct strbuf *out)
{
	text_dry(compare, out);
	text_pools(compare, differences, out);
	text_layers(differences, colour, out);
	text_places(compare, differences, colour, out);
	text_calls(compare, differences, colour, out);
	/* Where call sites say what differs, that there are no calls at all says nothing. */
	if (compare->no_calls != NULL && differences->differing_places > 0 && !has_calls(compare))
		;
	else if (compare->no_calls != NULL)
		strbuf_addf(out, "No calls are compared: %s\n", compare->no_calls);
	else
		text_counts(compare, differences, out);
	if (differences->differing_places == 0 && differences->call_count == 0)
		strbuf_add_str(out, "Nothing differs.\n");
	if (!compare->exact)
		strbuf_add_str(out, "The runs differ in so many calls that they were put side by "
				    "side piece by piece.\n");
	if (compare->sides[0].ledger.full || compare->sides[1].ledger.full)
		strbuf_add_str(out, "Only the first 67 million changes of memory are explained.\n");
}

/* ---- JSON ---- */

static void json_both(struct json *json, const char *base, const char *compare,
		      const char *difference, const int64_t both[2])
{
	json_i64(json, base, both[0]);
	json_i64(json, compare, both[1]);
	json_i64(json, difference, difference_of(both));
}

static void json_pools(const struct differences *differences, struct json *json)
{
	const struct difference_pool **ranked = rank_pools(differences);
	char device[16];
	size_t i;

	json_array(json, "pools");
	for (i = 0; ranked != NULL && i < differences->pool_count; i++) {
		project_device_text(ranked[i]->device, device);
		json_object(json, NULL);
		json_string(json, "device", device);
		json_string(json, "event_type", pool_event_type(ranked[i]->pool));
		json_both(json, "base_peak_bytes", "compare_peak_bytes", "difference_peak_bytes",
			  ranked[i]->peak);
		json_both(json, "base_end_bytes", "compare_end_bytes", "difference_end_bytes",
			  ranked[i]->end);
		json_i64(json, "base_bytes_at_the_moment", ranked[i]->at_moment[0]);
		json_i64(json, "compare_bytes_at_the_moment", ranked[i]->at_moment[1]);
		json_end(json);
	}
	json_end(json);
	free(ranked);
}

static void json_places(const struct compare *compare, const struct differences *differences,
			struct json *json)
{
	struct strbuf text = {0};
	char device[16];
	size_t i;

	json_array(json, "places");
	for (i = 0; i < differences->differing_places; i++) {
		const struct difference_place *place = &differences->places[i];
		const struct difference_pool *pool = &differences->pools[place->pool];
		int side = place->place[1] != DIFFERENCE_NONE;
		const struct compare_side *of = &compare->sides[side];

		strbuf_reset(&text);
		difference_place_text(differences, place, &text);
		project_device_text(pool->device, device);
		json_object(json, NULL);
		json_string(json, "place", strbuf_str(&text));
		if (place->call != 0)
			json_string(json, "operator", compare->names.data + place->call - 1);
		json_string(json, "device", device);
		json_string(json, "event_type", pool_event_type(pool->pool));
		json_both(json, "base_peak_bytes", "compare_peak_bytes", "difference_peak_bytes",
			  place->at_peak);
		json_both(json, "base_end_bytes", "compare_end_bytes", "difference_end_bytes",
			  place->end);
		json_both(json, "base_own_peak_bytes", "compare_own_peak_bytes",
			  "difference_own_peak_bytes", place->most);
		json_u64(json, "base_blocks", place->blocks[0]);
		json_u64(json, "compare_blocks", place->blocks[1]);
		if (of->replay != NULL)
			site_json(of->replay, of->ledger.places[place->place[side]].stack, "frames",
				  json);
		json_end(json);
	}
	json_end(json);
	strbuf_fini(&text);
}

/* Keys of a class are those of `layers` in the document of findings. */
static void json_classes(const struct difference_layer *layer, struct json *json)
{
	size_t i;
	int side;

	for (side = 0; side < 2; side++) {
		json_object(json, side == 0 ? "base" : "compare");
		for (i = 0; i < OWNER_CLASSES; i++) {
			if (layer->classes[i][side] != 0)
				json_i64(json, say_class_key((uint32_t)i), layer->classes[i][side]);
		}
		json_end(json);
	}
}

static void json_layers(const struct differences *differences, struct json *json)
{
	struct strbuf text = {0};
	char device[16];
	size_t i;

	json_array(json, "layers");
	for (i = 0; i < differences->layer_count; i++) {
		const struct difference_layer *layer = &differences->layers[i];
		const struct difference_pool *pool = &differences->pools[layer->pool];

		strbuf_reset(&text);
		difference_layer_text(differences, layer, &text);
		project_device_text(pool->device, device);
		json_object(json, NULL);
		json_string(json, "device", device);
		json_string(json, "event_type", pool_event_type(pool->pool));
		json_string(json, "model", difference_text(differences, layer->model));
		json_string(json, "layer", difference_text(differences, layer->module));
		json_string(json, "tensor", difference_text(differences, layer->tensor));
		json_string(json, "also", difference_text(differences, layer->also));
		json_both(json, "base_bytes", "compare_bytes", "difference_bytes", layer->bytes);
		json_classes(layer, json);
		json_string(json, "sentence", strbuf_str(&text));
		json_end(json);
	}
	json_end(json);
	strbuf_fini(&text);
}

static void json_differences(const struct compare *compare, const struct differences *differences,
			     struct json *json)
{
	static const char *const kinds[] = {
		[DIFFERENCE_BOTH] = "both",
		[DIFFERENCE_BASE] = "only_in_base",
		[DIFFERENCE_COMPARE] = "only_in_compare",
		[DIFFERENCE_MOVED] = "moved",
		[DIFFERENCE_AFTER_ALL] = "behind_the_last_call",
	};
	struct strbuf text = {0};
	char device[16];
	size_t i;

	json_array(json, "differences");
	for (i = 0; i < differences->call_count; i++) {
		const struct difference_call *call = &differences->calls[i];

		project_device_text(call->device, device);
		json_object(json, NULL);
		json_string(json, "kind", kinds[call->kind]);
		if (call->kind != DIFFERENCE_AFTER_ALL)
			json_string(json, "name",
				    compare->names.data + (call->name & ~COMPARE_KERNEL));
		json_string(json, "device", device);
		json_u64(json, "calls", call->count);
		json_u64(json, "first_call", call->ordinal);
		json_bool(json, "outside_of_calls", call->outside);
		json_both(json, "base_bytes", "compare_bytes", "difference_bytes", call->left);
		json_both(json, "base_own_peak_bytes", "compare_own_peak_bytes",
			  "difference_own_peak_bytes", call->peak);
		if (call->place != DIFFERENCE_NONE) {
			strbuf_reset(&text);
			difference_place_text(differences, &differences->places[call->place],
					      &text);
			json_string(json, "place", strbuf_str(&text));
		}
		json_end(json);
	}
	json_end(json);
	strbuf_fini(&text);
}

static void json_call(const struct compare *compare, struct segments walks[2],
		      const struct compare_row *row, struct json *json)
{
	static const char *const keys[2][2] = {{"base_bytes", "base_own_peak_bytes"},
					       {"compare_bytes", "compare_own_peak_bytes"}};
	int side;

	json_object(json, NULL);
	json_string(json, "event", compare_event(compare, row));
	json_string(json, "name", compare_name(compare, row));
	for (side = 0; side < 2; side++) {
		int64_t bytes;

		if (!compare_bytes(compare, row, side, &bytes))
			continue;
		json_i64(json, keys[side][0], bytes);
		json_i64(json, keys[side][1],
			 segments_next(&walks[side],
				       segment_end(&compare->sides[side], row->call[side]))
				 .peak);
	}
	json_i64(json, "difference_bytes", compare_difference(compare, row));
	json_end(json);
}

static int json_devices(const struct compare *compare, struct json *json)
{
	struct segments walks[2] = {{0}};
	char device[16];
	size_t from = 0, i;
	int r = 0;

	json_array(json, "devices");
	while (from < compare->row_count && r == 0) {
		struct device_sums sums = sum_up(compare, from);

		r = segments_begin(&walks[0], compare, 0, sums.device);
		if (r == 0)
			r = segments_begin(&walks[1], compare, 1, sums.device);
		project_device_text(sums.device, device);
		json_object(json, NULL);
		json_string(json, "device", device);
		json_u64(json, "calls_in_both", sums.both);
		json_u64(json, "calls_only_in_base", sums.alone[0]);
		json_u64(json, "calls_only_in_compare", sums.alone[1]);
		json_u64(json, "calls_that_differ", sums.differ);
		json_both(json, "base_bytes", "compare_bytes", "difference_bytes", sums.bytes);
		json_array(json, "calls");
		for (i = sums.from; i < sums.to && r == 0; i++)
			json_call(compare, walks, &compare->rows[i], json);
		json_end(json);
		json_end(json);
		from = sums.to;
		segments_end(&walks[0]);
		segments_end(&walks[1]);
	}
	json_end(json);
	return r;
}

int comparison_json(const struct compare *compare, const struct differences *differences,
		    struct json *json)
{
	static const char *const pool_words[] = {[COMPARE_DRIVER] = "driver",
						 [COMPARE_PYTORCH] = "pytorch",
						 [COMPARE_MINDSPORE] = "mindspore"};

	static const char *const dry_keys[] = {"base_dry", "compare_dry"};
	int i;

	json_string(json, "memory", pool_words[compare->pools]);
	for (i = 0; i < 2; i++) {
		if (dry_of(&compare->sides[i]) != NULL)
			json_string(json, dry_keys[i], dry_of(&compare->sides[i]));
	}
	json_bool(json, "exact", compare->exact);
	json_bool(json, "devices_by_order", compare->other_devices);
	json_pools(differences, json);
	json_places(compare, differences, json);
	json_layers(differences, json);
	json_differences(compare, differences, json);
	return json_devices(compare, json);
}
