/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/comparison.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/shown.h"
#include "dump/csv_text.h"
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

	strbuf_add(&sb, head, sizeof(head) - 1);
	for (i = 0; i < compare->row_count && r == 0; i++) {
		const struct compare_row *row = &compare->rows[i];
		const char *name = compare_name(compare, row);

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

int comparison_csv(const struct compare *compare, const char *output, uint64_t wall_ns,
		   int32_t utc_offset_s, char out_path[PROJECT_PATH_MAX + 64],
		   struct mscope_error *err)
{
	char directory[PROJECT_PATH_MAX], stamp[16], suffix[16] = "";
	int attempt, fd = -1, r;

	if (snprintf(directory, sizeof(directory), "%s/compare", output) >= (int)sizeof(directory))
		return error_set(err, -ENAMETOOLONG, "%.64s... is too long a path", output);
	r = project_mkdirs(directory);
	if (r < 0)
		return error_set(err, r, "cannot create %s: %s", directory, strerror(-r));
	project_stamp(wall_ns, utc_offset_s, stamp);
	for (attempt = 1; attempt < 10000 && fd < 0; attempt++) {
		if (attempt > 1)
			(void)snprintf(suffix, sizeof(suffix), "_%d", attempt);
		(void)snprintf(out_path, PROJECT_PATH_MAX + 64, "%s/memory_compare_%s%s.csv",
			       directory, stamp, suffix);
		fd = open(out_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd < 0 && errno != EEXIST)
			break;
	}
	if (fd < 0)
		return error_set(err, -errno, "cannot write %s: %s", out_path, strerror(errno));
	r = write_rows(compare, fd);
	if (close(fd) < 0 && r == 0)
		r = -errno;
	if (r < 0) {
		(void)unlink(out_path);
		return error_set(err, r, "cannot write %s: %s", out_path, mscope_status_str(r));
	}
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

/* ---- text ---- */

static const char *const pool_texts[] = {
	[COMPARE_DRIVER] = "memory from the driver",
	[COMPARE_PYTORCH] = "memory of PyTorch's pools",
	[COMPARE_MINDSPORE] = "memory of MindSpore's pool",
};

/* A name as a terminal may see it. */
static void add_name(struct strbuf *out, const char *name)
{
	strbuf_add_shown(out, name, strlen(name));
}

static void add_column(struct strbuf *out, bool there, int64_t bytes)
{
	if (there)
		strbuf_addf(out, " %+16lld", (long long)bytes);
	else
		strbuf_addf(out, " %16s", "N/A");
}

struct ranked {
	uint64_t size;
	size_t row;
};

static int by_size(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	if (x->size != y->size)
		return x->size > y->size ? -1 : 1;
	return x->row < y->row ? -1 : 1;
}

static void text_largest(const struct compare *compare, const struct device_sums *sums, bool colour,
			 struct strbuf *out)
{
	struct ranked *ranked = calloc(sums->differ + 1, sizeof(*ranked));
	size_t i, count = 0;

	if (ranked == NULL) {
		out->failed = true;
		return;
	}
	for (i = sums->from; i < sums->to; i++) {
		int64_t difference = compare_difference(compare, &compare->rows[i]);

		if (difference != 0)
			ranked[count++] = (struct ranked){difference < 0 ? 0 - (uint64_t)difference
									 : (uint64_t)difference,
							  i};
	}
	qsort(ranked, count, sizeof(*ranked), by_size);
	if (count > 0)
		strbuf_addf(out, "  %16s %16s %16s  call\n", "difference", "base", "compare");
	for (i = 0; i < count && i < COMPARISON_SHOWN; i++) {
		const struct compare_row *row = &compare->rows[ranked[i].row];
		int64_t difference = compare_difference(compare, row), bytes;
		bool there;

		strbuf_addf(out, "  %s%+16lld%s",
			    !colour	     ? ""
			    : difference > 0 ? "\033[31m"
					     : "\033[32m",
			    (long long)difference, colour ? "\033[0m" : "");
		there = compare_bytes(compare, row, 0, &bytes);
		add_column(out, there, bytes);
		there = compare_bytes(compare, row, 1, &bytes);
		add_column(out, there, bytes);
		strbuf_add_str(out, "  ");
		add_name(out, compare_name(compare, row));
		strbuf_add_char(out, '\n');
	}
	if (count > COMPARISON_SHOWN)
		strbuf_addf(out, "  and %zu more\n", count - COMPARISON_SHOWN);
	free(ranked);
}

struct alone {
	const char *name;
	size_t count;
};

/* Names of the calls that one run has alone, each once, in the order in which they come. */
static void text_alone(const struct compare *compare, const struct device_sums *sums, int side,
		       struct strbuf *out)
{
	struct map known = {0};
	struct alone shown[COMPARISON_NAMES];
	size_t i, k;

	if (sums->alone[side] == 0)
		return;
	for (i = sums->from; i < sums->to; i++) {
		const struct compare_row *row = &compare->rows[i];
		const char *name = compare_name(compare, row);
		struct map_key key = {(uintptr_t)name, 0};
		uint64_t *at;

		if (row->call[!side] != COMPARE_ABSENT)
			continue;
		at = map_get(&known, key);
		k = at == NULL ? known.count : *at;
		if (at == NULL && map_put(&known, key, k) < 0)
			out->failed = true;
		if (k < MSCOPE_COUNT(shown))
			shown[k] = (struct alone){name, at == NULL ? 1 : shown[k].count + 1};
	}
	strbuf_addf(out, "  only in %s:", side == 0 ? "base" : "compare");
	for (k = 0; k < known.count && k < MSCOPE_COUNT(shown); k++) {
		strbuf_add_str(out, k == 0 ? " " : ", ");
		add_name(out, shown[k].name);
		if (shown[k].count > 1)
			strbuf_addf(out, " (%zu times)", shown[k].count);
	}
	if (known.count > MSCOPE_COUNT(shown))
		strbuf_addf(out, ", and %zu other names", known.count - MSCOPE_COUNT(shown));
	strbuf_add_char(out, '\n');
	map_fini(&known);
}

void comparison_text(const struct compare *compare, const char *const paths[2], bool colour,
		     struct strbuf *out)
{
	char device[16];
	size_t from = 0;

	strbuf_add_str(out, "base     ");
	add_name(out, paths[0]);
	strbuf_add_str(out, "\ncompare  ");
	add_name(out, paths[1]);
	strbuf_add_char(out, '\n');
	strbuf_addf(out, "%s%s%s, %s, in bytes\n", compare->level & COMPARE_OPS ? "operators" : "",
		    compare->level == (COMPARE_OPS | COMPARE_KERNELS) ? " and " : "",
		    compare->level & COMPARE_KERNELS ? "kernels" : "", pool_texts[compare->pools]);
	while (from < compare->row_count) {
		struct device_sums sums = sum_up(compare, from);

		project_device_text(sums.device, device);
		strbuf_addf(out,
			    "\ndevice %s: %zu calls in both, %zu only in base, %zu only in "
			    "compare; %zu differ\n",
			    device, sums.both, sums.alone[0], sums.alone[1], sums.differ);
		strbuf_addf(out, "  total: base %+lld, compare %+lld, difference %+lld\n",
			    (long long)sums.bytes[0], (long long)sums.bytes[1],
			    (long long)(sums.bytes[1] - sums.bytes[0]));
		text_largest(compare, &sums, colour, out);
		text_alone(compare, &sums, 0, out);
		text_alone(compare, &sums, 1, out);
		from = sums.to;
	}
	if (!compare->exact)
		strbuf_add_str(out,
			       "\nThe runs differ in so many calls that they were put side by "
			       "side piece by piece; fewer might have been found to differ.\n");
}

/* ---- JSON ---- */

static void json_bytes(struct json *json, const char *key, bool there, int64_t bytes)
{
	if (there)
		json_i64(json, key, bytes);
}

void comparison_json(const struct compare *compare, struct json *json)
{
	static const char *const pool_words[] = {[COMPARE_DRIVER] = "driver",
						 [COMPARE_PYTORCH] = "pytorch",
						 [COMPARE_MINDSPORE] = "mindspore"};
	int64_t bytes;
	char device[16];
	size_t from = 0, i;

	json_string(json, "memory", pool_words[compare->pools]);
	json_bool(json, "exact", compare->exact);
	json_array(json, "devices");
	while (from < compare->row_count) {
		struct device_sums sums = sum_up(compare, from);

		project_device_text(sums.device, device);
		json_object(json, NULL);
		json_string(json, "device", device);
		json_u64(json, "calls_in_both", sums.both);
		json_u64(json, "calls_only_in_base", sums.alone[0]);
		json_u64(json, "calls_only_in_compare", sums.alone[1]);
		json_u64(json, "calls_that_differ", sums.differ);
		json_i64(json, "base_bytes", sums.bytes[0]);
		json_i64(json, "compare_bytes", sums.bytes[1]);
		json_i64(json, "difference_bytes", sums.bytes[1] - sums.bytes[0]);
		json_array(json, "calls");
		for (i = sums.from; i < sums.to; i++) {
			const struct compare_row *row = &compare->rows[i];
			bool there;

			json_object(json, NULL);
			json_string(json, "event", compare_event(compare, row));
			json_string(json, "name", compare_name(compare, row));
			there = compare_bytes(compare, row, 0, &bytes);
			json_bytes(json, "base_bytes", there, bytes);
			there = compare_bytes(compare, row, 1, &bytes);
			json_bytes(json, "compare_bytes", there, bytes);
			json_i64(json, "difference_bytes", compare_difference(compare, row));
			json_end(json);
		}
		json_end(json);
		json_end(json);
		from = sums.to;
	}
	json_end(json);
}
