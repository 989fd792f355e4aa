/* SPDX-License-Identifier: Apache-2.0 */
#include "import/torch_history.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/map.h"
#include "import/pickle.h"
#include "import/torch_snapshot.h"
#include "trace/context.h"

#define DEVICES_MAX 256u

struct reader {
	struct pickle pickle;
	struct map sites;	      /* hash of a call site -> its number */
	struct pool_history *history; /* in progress */
	uint64_t now_ns;	      /* of the entry in progress */
};

static uint64_t number_at(const struct reader *r, uint32_t value, const char *key,
			  uint64_t otherwise)
{
	return pickle_u64(&r->pickle, pickle_at(&r->pickle, value, key), otherwise);
}

static bool flag_at(const struct reader *r, uint32_t value, const char *key)
{
	uint32_t flag = pickle_at(&r->pickle, value, key);

	return flag != PICKLE_ABSENT && r->pickle.values[flag].type == PICKLE_BOOL &&
	       r->pickle.values[flag].number != 0;
}

/* (0, 1) and (1, 0) are private pools, (0, 0) is none. */
static uint64_t private_pool_of(const struct reader *r, uint32_t value)
{
	size_t count;
	const uint32_t *pair = pickle_list(&r->pickle, value, &count);

	if (count != 2)
		return 0;
	return pickle_u64(&r->pickle, pair[0], 0) << 32 |
	       (uint32_t)pickle_u64(&r->pickle, pair[1], 0);
}

/* ---- segments at the end ---- */

struct span {
	uint64_t start, end, private_pool;
};

static int by_start(const void *a, const void *b)
{
	const struct span *x = a, *y = b;

	return ORDER_UP(x->start, y->start);
}

struct spans {
	struct span *all;
	size_t count, room;
};

/* Most entries do not name their private pool; it is that of the segment in which they lie at the end. */
static uint64_t pool_at(const struct spans *spans, uint64_t address)
{
	size_t low = COUNT_FRONT(at, spans->count, spans->all[at].start <= address);

	return low > 0 && address < spans->all[low - 1].end ? spans->all[low - 1].private_pool : 0;
}

static int add_final_blocks(struct reader *r, uint32_t segment, const struct history_segment *s)
{
	size_t count;
	const uint32_t *blocks =
		pickle_list(&r->pickle, pickle_at(&r->pickle, segment, "blocks"), &count);
	uint64_t next = s->address;
	int status = 0;

	for (size_t i = 0; i < count && status == 0; i++) {
		uint32_t state = pickle_at(&r->pickle, blocks[i], "state");
		uint64_t size = number_at(r, blocks[i], "size", 0);
		struct history_block block = {
			.address = number_at(r, blocks[i], "address", next),
			.bytes = size,
			.requested = number_at(r, blocks[i], "requested_size", size),
			.stream = s->stream,
			.private_pool = s->private_pool,
		};

		if (block.address > INT64_MAX || size > INT64_MAX)
			continue;
		next = block.address + size;
		if (state != PICKLE_ABSENT && !pickle_is(&r->pickle, state, "inactive"))
			status = pool_history_add_block(r->history, &block);
	}
	return status;
}

static int read_segments(struct reader *r, uint32_t list, struct spans *spans)
{
	size_t count;
	const uint32_t *segments = pickle_list(&r->pickle, list, &count);
	int status = 0;

	for (size_t i = 0; i < count && status == 0; i++) {
		uint32_t type = pickle_at(&r->pickle, segments[i], "segment_type");
		struct history_segment s = {
			.address = number_at(r, segments[i], "address", UINT64_MAX),
			.bytes = number_at(r, segments[i], "total_size", 0),
			.stream = number_at(r, segments[i], "stream", 0),
			.private_pool = private_pool_of(
				r, pickle_at(&r->pickle, segments[i], "segment_pool_id")),
			.small = pickle_is(&r->pickle, type, "small"),
			.expandable = flag_at(r, segments[i], "is_expandable"),
		};

		if (number_at(r, segments[i], "device", 0) != r->history->device ||
		    s.address > INT64_MAX || s.bytes > INT64_MAX || s.bytes == 0)
			continue;
		if (ARRAY_RESERVE(spans->all, spans->room, spans->count + 1) != 0)
			return -ENOMEM;
		spans->all[spans->count++] =
			(struct span){s.address, s.address + s.bytes, s.private_pool};
		status = pool_history_add_segment(r->history, &s);
		if (status == 0)
			status = add_final_blocks(r, segments[i], &s);
	}
	if (spans->count > 0)
		qsort(spans->all, spans->count, sizeof(*spans->all), by_start);
	return status;
}

/* ---- entries ---- */

static const struct {
	const char *word;
	enum history_kind kind;
} ACTIONS[] = {
	{"alloc", HISTORY_ALLOC},
	{"free_requested", HISTORY_FREE_ASKED},
	{"free_completed", HISTORY_FREE_DONE},
	{"free", HISTORY_FREE_DONE},
	{"segment_alloc", HISTORY_SEGMENT},
	{"segment_free", HISTORY_SEGMENT_GONE},
	{"segment_map", HISTORY_MAP},
	{"segment_unmap", HISTORY_UNMAP},
	{"oom", HISTORY_REFUSED},
};

static bool ends_with(const char *text, size_t length, const char *end)
{
	size_t bytes = strlen(end);

	return length >= bytes && memcmp(text + length - bytes, end, bytes) == 0;
}

static bool has(const char *text, size_t length, const char *part)
{
	return memmem(text, length, part, strlen(part)) != NULL;
}

/* How near a frame is to what the user wrote: 2 a script of the user's, 1 another script, 0 C++. */
static int nearness(const char *file, size_t length)
{
	if (!ends_with(file, length, ".py"))
		return 0;
	return has(file, length, "/site-packages/") || has(file, length, "/lib/python") ? 1 : 2;
}

/* The call site of an entry, by its Python frames; 0: it has none. */
static uint32_t site_of(struct reader *r, uint32_t frames_value)
{
	size_t count, file_bytes = 0, name_bytes = 0, i;
	const uint32_t *frames = pickle_list(&r->pickle, frames_value, &count);
	uint64_t hash = hash_text(""), *known;
	uint32_t chosen = PICKLE_ABSENT, number;
	const char *file, *name, *slash;
	int best = 0;
	char text[300];

	for (i = 0; i < count; i++) {
		uint64_t line = number_at(r, frames[i], "line", 0);
		int near;

		file = pickle_text(&r->pickle, pickle_at(&r->pickle, frames[i], "filename"),
				   &file_bytes);
		near = nearness(file, file_bytes);
		if (near == 0)
			continue;
		hash = hash_add(hash_add(hash, file, file_bytes), &line, sizeof(line));
		if (near > best) {
			best = near;
			chosen = frames[i];
		}
	}
	if (best == 0)
		return 0;
	known = map_get(&r->sites, (struct map_key){hash, 0});
	if (known != NULL)
		return (uint32_t)*known;
	file = pickle_text(&r->pickle, pickle_at(&r->pickle, chosen, "filename"), &file_bytes);
	name = pickle_text(&r->pickle, pickle_at(&r->pickle, chosen, "name"), &name_bytes);
	slash = memrchr(file, '/', file_bytes);
	if (slash != NULL) {
		file_bytes -= (size_t)(slash + 1 - file);
		file = slash + 1;
	}
	snprintf(text, sizeof(text), "%.*s:%" PRIu64 " %.*s",
		 (int)(file_bytes < 120 ? file_bytes : 120), file, number_at(r, chosen, "line", 0),
		 (int)(name_bytes < 120 ? name_bytes : 120), name);
	number = pool_history_add_site(r->history, hash, text);
	if (number == 0 || map_put(&r->sites, (struct map_key){hash, 0}, number) != 0)
		return 0;
	return number;
}

/* As snapshots become traces: entries without a time lie a microsecond apart, and none is before the one before it. */
static void take_time(struct reader *r, uint32_t value, size_t number)
{
	uint64_t time_us = number_at(r, value, "time_us", UINT64_MAX);

	if (time_us > UINT64_MAX / 4000)
		time_us = SNAPSHOT_FIRST_US + number;
	if (time_us * 1000 > r->now_ns)
		r->now_ns = time_us * 1000;
}

static uint64_t pool_of(const struct reader *r, uint32_t entry, const struct spans *spans,
			uint64_t address)
{
	uint32_t said = pickle_at(&r->pickle, entry, "pool_id");

	return said != PICKLE_ABSENT ? private_pool_of(r, said) : pool_at(spans, address);
}

static int read_entry(struct reader *r, uint32_t value, const struct spans *spans)
{
	uint32_t action = pickle_at(&r->pickle, value, "action");
	struct history_event event = {
		.address = number_at(r, value, "addr", 0),
		.bytes = number_at(r, value, "size", UINT64_MAX),
		.stream = number_at(r, value, "stream", 0),
		.time_ns = r->now_ns,
	};

	if (event.bytes > INT64_MAX || event.address > INT64_MAX)
		return 0;
	for (size_t i = 0; i < sizeof(ACTIONS) / sizeof(ACTIONS[0]); i++) {
		if (!pickle_is(&r->pickle, action, ACTIONS[i].word))
			continue;
		event.kind = (uint8_t)ACTIONS[i].kind;
		if (event.kind == HISTORY_ALLOC)
			event.site = site_of(r, pickle_at(&r->pickle, value, "frames"));
		if (event.kind != HISTORY_REFUSED)
			event.private_pool = pool_of(r, value, spans, event.address);
		return pool_history_add(r->history, &event);
	}
	return 0;
}

/* Files of torch_npu before 2.1 and others have no entry "free_completed": then a free is complete when it is asked for. */
static void complete_frees(struct pool_history *h)
{
	for (size_t i = 0; i < h->event_count; i++)
		if (h->events[i].kind == HISTORY_FREE_DONE)
			return;
	for (size_t i = 0; i < h->event_count; i++)
		if (h->events[i].kind == HISTORY_FREE_ASKED)
			h->events[i].kind = HISTORY_FREE_DONE;
}

/* ---- settings ---- */

/* Settings that were made by a call are not in the text; the figures have them. */
static void settings_from_figures(struct reader *r, uint32_t value)
{
	uint64_t split = number_at(r, value, "max_split_size", UINT64_MAX);
	uint32_t gc = pickle_at(&r->pickle, value, "garbage_collection_threshold");
	char split_text[64] = "", gc_text[64] = "";
	bool expandable = flag_at(r, value, "expandable_segments");

	if (split <= (uint64_t)1 << 50)
		snprintf(split_text, sizeof(split_text), "max_split_size_mb:%" PRIu64, split >> 20);
	if (gc != PICKLE_ABSENT && r->pickle.values[gc].type == PICKLE_FLOAT &&
	    r->pickle.values[gc].real > 0)
		snprintf(gc_text, sizeof(gc_text), "garbage_collection_threshold:%g",
			 r->pickle.values[gc].real);
	snprintf(r->history->settings, sizeof(r->history->settings), "%s%s%s%s%s",
		 expandable ? "expandable_segments:True" : "",
		 expandable && (split_text[0] != '\0' || gc_text[0] != '\0') ? "," : "", split_text,
		 split_text[0] != '\0' && gc_text[0] != '\0' ? "," : "", gc_text);
}

static void read_settings(struct reader *r, uint32_t value)
{
	static const char *const names[] = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NPU_ALLOC_CONF",
					    "PYTORCH_ALLOC_CONF"};
	struct pool_history *h = r->history;

	h->settings_known = value != PICKLE_ABSENT;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		size_t length;
		const char *text =
			pickle_text(&r->pickle, pickle_at(&r->pickle, value, names[i]), &length);

		if (length == 0)
			continue;
		snprintf(h->settings, sizeof(h->settings), "%.*s", (int)length, text);
		return;
	}
	settings_from_figures(r, value);
}

/* ---- what our own exports have besides ---- */

static void read_share(struct reader *r, uint32_t list)
{
	size_t count, length;
	const uint32_t *shares = pickle_list(&r->pickle, list, &count);

	for (size_t i = 0; i < count; i++) {
		const char *text;
		char fraction[40];

		if (number_at(r, shares[i], "device", UINT64_MAX) != r->history->device)
			continue;
		text = pickle_text(&r->pickle, pickle_at(&r->pickle, shares[i], "fraction"),
				   &length);
		snprintf(fraction, sizeof(fraction), "%.*s", (int)(length < 39 ? length : 39),
			 length == 0 ? "" : text);
		r->history->fraction = strtod(fraction, NULL);
		if (!(r->history->fraction > 0 && r->history->fraction <= 1))
			r->history->fraction = 0;
		r->history->fraction_late = flag_at(r, shares[i], "late");
		r->history->device_bytes = number_at(r, shares[i], "device_bytes", 0);
	}
}

static void read_facts(struct reader *r, uint32_t value)
{
	size_t length;
	const char *text =
		pickle_text(&r->pickle, pickle_at(&r->pickle, value, TORCH_KEY_RELEASE), &length);

	if (length > 0 && length < sizeof(r->history->torch))
		snprintf(r->history->torch, sizeof(r->history->torch), "%.*s", (int)length, text);
	r->history->settings_changed = flag_at(r, value, TORCH_KEY_CHANGED);
	r->history->empty_cache_known =
		pickle_at(&r->pickle, value, TORCH_KEY_EMPTY_CACHE) != PICKLE_ABSENT;
	read_share(r, pickle_at(&r->pickle, value, TORCH_KEY_SHARES));
}

/* Calls of empty_cache() that lie before entry number `entry`; `next` is the first that was not taken. */
static int take_empties(struct reader *r, const uint32_t *empties, size_t count, size_t *next,
			size_t entry)
{
	int status = 0;

	for (; *next < count && status == 0; (*next)++) {
		if (number_at(r, empties[*next], "device", UINT64_MAX) != r->history->device)
			continue;
		if (number_at(r, empties[*next], "entry", UINT64_MAX) > entry)
			break;
		status = pool_history_add(
			r->history,
			&(struct history_event){.kind = HISTORY_EMPTY_CACHE, .time_ns = r->now_ns});
	}
	return status;
}

/* ---- the whole ---- */

bool torch_history_of_npu(const struct pickle *pickle)
{
	for (size_t i = 0; i < pickle->value_count; i++) {
		const struct pickle_value *value = &pickle->values[i];

		if (value->type == PICKLE_TEXT && value->length < 4096 &&
		    (has(value->text, value->length, "torch_npu") ||
		     has(value->text, value->length, "PYTORCH_NPU")))
			return true;
	}
	return false;
}

static int read_device(struct reader *r, uint32_t entries_list, uint32_t root)
{
	struct spans spans = {0};
	uint32_t settings = pickle_at(&r->pickle, root, "allocator_settings");
	size_t count, empty_count, empty = 0;
	const uint32_t *entries = pickle_list(&r->pickle, entries_list, &count);
	const uint32_t *empties = pickle_list(
		&r->pickle, pickle_at(&r->pickle, settings, TORCH_KEY_EMPTY_CACHE), &empty_count);
	int status = read_segments(r, pickle_at(&r->pickle, root, "segments"), &spans);

	r->now_ns = 0;
	read_facts(r, settings);
	for (size_t i = 0; i < count && status == 0; i++) {
		status = take_empties(r, empties, empty_count, &empty, i);
		take_time(r, entries[i], i);
		if (status == 0)
			status = read_entry(r, entries[i], &spans);
	}
	free(spans.all);
	complete_frees(r->history);
	read_settings(r, settings);
	pool_history_assume_settings(r->history);
	return status != 0 ? status : pool_history_rewind(r->history);
}

static int read_all(struct reader *r, struct pool_history **out, size_t *out_count)
{
	uint32_t root = r->pickle.root;
	bool npu = torch_history_of_npu(&r->pickle);
	size_t devices, room = 0, count;
	const uint32_t *traces;
	int status = 0;

	traces = pickle_list(&r->pickle, pickle_at(&r->pickle, root, "device_traces"), &devices);
	for (uint32_t d = 0; d < devices && d < DEVICES_MAX && status == 0; d++) {
		pickle_list(&r->pickle, traces[d], &count);
		if (count == 0)
			continue;
		if (ARRAY_RESERVE(*out, room, *out_count + 1) != 0)
			return -ENOMEM;
		r->history = &(*out)[(*out_count)++];
		*r->history = (struct pool_history){.device = d, .npu = npu};
		map_fini(&r->sites);
		r->sites = (struct map){0};
		status = read_device(r, traces[d], root);
	}
	return status;
}

int torch_history_read(const char *path, struct pool_history **out, size_t *out_count,
		       struct mscope_error *err)
{
	struct reader r = {0};
	struct stat st = {0};
	void *data = MAP_FAILED;
	int fd = open(path, O_RDONLY | O_CLOEXEC), status = 0;

	*out = NULL;
	*out_count = 0;
	if (fd < 0 || fstat(fd, &st) < 0)
		status = error_set(err, -errno, "%s: %s", path, strerror(errno));
	if (status == 0) {
		data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (data == MAP_FAILED)
			status = error_set(err, -errno, "%s: %s", path, strerror(errno));
	}
	if (status == 0)
		status = pickle_read(&r.pickle, data, (size_t)st.st_size, path, err);
	if (status == 0) {
		status = read_all(&r, out, out_count);
		if (status != 0)
			error_set(err, status, "%s: %s", path, mscope_status_str(status));
	}
	if (status == 0 && *out_count == 0)
		status = error_set(
			err, MSCOPE_E_ABSENT,
			"%s has no history of allocations; it was taken without _record_memory_history()",
			path);
	pickle_fini(&r.pickle);
	map_fini(&r.sites);
	if (data != MAP_FAILED)
		munmap(data, (size_t)st.st_size);
	if (fd >= 0)
		close(fd);
	return status;
}
