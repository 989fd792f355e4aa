/* SPDX-License-Identifier: Apache-2.0 */
#include "twin/allocator_settings.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define MIB		    ((uint64_t)1 << 20)
#define LARGE_SEGMENT_BYTES (20 * MIB)
#define ALIGN_BYTES	    ((uint64_t)16 << 10)

/* A piece of the text: words are what stands between the characters , : [ ] and spaces. */
struct reader {
	const char *at;
	const struct twin_release *release;
	struct mscope_error *err;
	char word[64]; /* the last word that was read */
};

void twin_settings_default(struct twin_settings *out)
{
	*out = (struct twin_settings){
		.max_split_bytes = UINT64_MAX,
		.non_split_rounding_bytes = 20 * MIB,
		.large_segment_bytes = LARGE_SEGMENT_BYTES,
		.fraction = -1,
	};
}

static void skip_spaces(struct reader *r)
{
	while (isspace((unsigned char)*r->at))
		r->at++;
}

static int read_word(struct reader *r)
{
	size_t length = 0;

	skip_spaces(r);
	while (r->at[length] != '\0' && strchr(",:[]", r->at[length]) == NULL &&
	       !isspace((unsigned char)r->at[length]))
		length++;
	if (length == 0)
		return error_set(r->err, MSCOPE_E_USAGE,
				 "the settings lack a word before \"%.20s\"", r->at);
	if (length >= sizeof(r->word))
		return error_set(r->err, MSCOPE_E_USAGE,
				 "the settings have a word that is too long: %.40s...", r->at);
	memcpy(r->word, r->at, length);
	r->word[length] = '\0';
	r->at += length;
	skip_spaces(r);
	return 0;
}

/* Passes over `wanted` if it comes next. */
static bool take(struct reader *r, char wanted)
{
	skip_spaces(r);
	if (*r->at != wanted)
		return false;
	r->at++;
	return true;
}

static int expect(struct reader *r, char wanted, const char *option)
{
	if (take(r, wanted))
		return 0;
	return error_set(r->err, MSCOPE_E_USAGE, "%s wants \"%c\" before \"%.20s\"", option, wanted,
			 r->at);
}

/* A whole number of at most `most`; `what` names the option in the sentence. */
static int read_number(struct reader *r, const char *what, uint64_t most, uint64_t *out)
{
	char *end;
	unsigned long long value;
	int status = read_word(r);

	if (status != 0)
		return status;
	value = strtoull(r->word, &end, 10);
	if (!isdigit((unsigned char)r->word[0]) || *end != '\0' || value > most)
		return error_set(r->err, MSCOPE_E_USAGE, "%s: %.40s is not a number up to %llu",
				 what, r->word, (unsigned long long)most);
	*out = value;
	return 0;
}

static int read_share(struct reader *r, const char *what, double *out)
{
	char *end;
	int status = read_word(r);

	if (status != 0)
		return status;
	*out = strtod(r->word, &end);
	if (*end != '\0' || !(*out >= 0 && *out <= 1))
		return error_set(r->err, MSCOPE_E_USAGE, "%s: %.40s is not a share from 0 to 1",
				 what, r->word);
	return 0;
}

static int read_flag(struct reader *r, const char *what, bool *out)
{
	int status = read_word(r);

	if (status != 0)
		return status;
	*out = strcmp(r->word, "True") == 0;
	if (!*out && strcmp(r->word, "False") != 0)
		return error_set(r->err, MSCOPE_E_USAGE, "%s wants True or False, not %.40s", what,
				 r->word);
	return 0;
}

static bool power_of_two(uint64_t value)
{
	return value != 0 && (value & (value - 1)) == 0;
}

static uint32_t log2_of(uint64_t value)
{
	return 63u - (uint32_t)__builtin_clzll(value);
}

static int read_divisions_value(struct reader *r, const char *what, uint32_t *out)
{
	uint64_t value = 0;
	int status = read_number(r, what, UINT32_MAX, &value);

	if (status != 0)
		return status;
	if (!power_of_two(value))
		return error_set(r->err, MSCOPE_E_USAGE, "%s: %s is not a power of two", what,
				 r->word);
	*out = (uint32_t)value;
	return 0;
}

static void fill_divisions(struct twin_settings *out, uint32_t from, uint32_t to, uint32_t value)
{
	for (uint32_t i = from; i < to && i < TWIN_DIVISIONS; i++)
		out->divisions[i] = value;
}

/*
 * [256:1,512:2,1024:4,>:8]: keys are MiB. A value holds for sizes from its key to the next power of two, that of the first key
 * for all smaller sizes too, that of ">" for all larger ones. Sizes between two keys are not rounded.
 */
static int read_divisions_list(struct reader *r, const char *what, struct twin_settings *out)
{
	uint32_t last = 0, value = 0;
	bool first = true;
	int status;

	do {
		uint32_t index = TWIN_DIVISIONS; /* stands for ">" */

		if ((status = read_word(r)) != 0)
			return status;
		if (strcmp(r->word, ">") != 0) {
			char *end;
			uint64_t key = strtoull(r->word, &end, 10);

			if (*end != '\0' || !isdigit((unsigned char)r->word[0]) ||
			    !power_of_two(key))
				return error_set(r->err, MSCOPE_E_USAGE,
						 "%s: the key %s is not a power of two", what,
						 r->word);
			index = log2_of(key);
		}
		if ((status = expect(r, ':', what)) != 0 ||
		    (status = read_divisions_value(r, what, &value)) != 0)
			return status;
		if (index >= TWIN_DIVISIONS) {
			bool leaves = r->release->npu || (r->release->rules & TWIN_NEW_PARSER) != 0;

			fill_divisions(out, leaves ? last + 1 : last, TWIN_DIVISIONS, value);
			continue;
		}
		fill_divisions(out, first ? 0 : index, index + 1, value);
		last = index;
		first = false;
	} while (take(r, ','));
	return expect(r, ']', what);
}

static int read_divisions(struct reader *r, const char *what, struct twin_settings *out)
{
	uint32_t value = 0;
	int status;

	if (take(r, '['))
		return read_divisions_list(r, what, out);
	if ((status = read_divisions_value(r, what, &value)) != 0)
		return status;
	fill_divisions(out, 0, TWIN_DIVISIONS, value);
	return 0;
}

static int unknown_to_release(const struct reader *r, const char *option)
{
	return error_set(r->err, MSCOPE_E_USAGE, "%s 2.%u does not know the setting %s",
			 twin_release_product(r->release->npu), r->release->minor, option);
}

/* Sizes in MiB. How they must relate is checked at the end, when all are known. */
static int read_size_option(struct reader *r, const char *option, struct twin_settings *out)
{
	uint64_t value = 0;
	int status = read_number(r, option, 1u << 30, &value);

	if (status != 0)
		return status;
	if (strcmp(option, "max_split_size_mb") == 0) {
		out->max_split_bytes = value * MIB;
	} else if (strcmp(option, "max_non_split_rounding_mb") == 0) {
		if ((r->release->rules & TWIN_NON_SPLIT_OPTION) == 0)
			return unknown_to_release(r, option);
		out->non_split_rounding_bytes = value * MIB;
	} else {
		if ((r->release->rules & TWIN_SEGMENT_OPTION) == 0)
			return unknown_to_release(r, option);
		if (value <= 10)
			return error_set(r->err, MSCOPE_E_USAGE,
					 "large_segment_size_mb must be larger than 10, not %s",
					 r->word);
		out->large_segment_bytes = value * MIB;
	}
	return 0;
}

/* No smaller than the segments of the large pool; before 2.10 it had to be larger. */
static int check_size(const struct reader *r, const struct twin_settings *s, const char *option,
		      uint64_t value)
{
	bool equal = (r->release->rules & TWIN_NEW_PARSER) != 0;

	if (value > s->large_segment_bytes || (equal && value == s->large_segment_bytes))
		return 0;
	return error_set(r->err, MSCOPE_E_USAGE, "%s must be %s %llu, not %llu", option,
			 equal ? "at least" : "larger than",
			 (unsigned long long)(s->large_segment_bytes / MIB),
			 (unsigned long long)(value / MIB));
}

static int check_settings(const struct reader *r, struct twin_settings *s)
{
	int status = check_size(r, s, "max_split_size_mb", s->max_split_bytes);

	if (r->release->npu && s->expandable &&
	    (s->max_split_bytes != UINT64_MAX || s->gc_threshold > 0))
		return error_set(r->err, MSCOPE_E_USAGE,
				 "torch_npu refuses expandable_segments together with "
				 "max_split_size_mb or garbage_collection_threshold");
	if (s->non_split_rounding_bytes == 0)
		s->non_split_rounding_bytes = s->large_segment_bytes;
	else if (status == 0)
		status = check_size(r, s, "max_non_split_rounding_mb", s->non_split_rounding_bytes);
	if (status == 0 && s->expandable && s->max_split_bytes != UINT64_MAX &&
	    (r->release->rules & TWIN_KEEPS_EXPANDABLE) == 0)
		status = error_set(r->err, MSCOPE_E_USAGE,
				   "PyTorch 2.%u itself fails with expandable_segments and "
				   "max_split_size_mb together",
				   r->release->minor);
	return status;
}

/* Options of PyTorch that change no address, with the first release that knows them. */
static const struct idle {
	const char *name;
	uint32_t minor;
} IDLE[] = {
	{"release_lock_on_cudamalloc", 1},	{"release_lock_on_hipmalloc", 1},
	{"pinned_use_cuda_host_register", 1},	{"pinned_use_hip_host_register", 1},
	{"pinned_num_register_threads", 1},	{"pinned_use_background_threads", 6},
	{"pinned_reserve_segment_size_mb", 10}, {"graph_capture_record_stream_reuse", 9},
	{"throw_on_cudamalloc_oom", 12},
};

/* The same of torch_npu. */
static const struct idle NPU_IDLE[] = {
	{"pinned_use_background_threads", 9}, {"pinned_max_round_threshold_mb", 13},
	{"pinned_max_cached_size_mb", 13},    {"pinned_reserve_segment_size_mb", 13},
	{"pinned_mem_register", 9},	      {"pin_memory_expandable_segments", 9},
	{"release_lock_on_npumalloc", 13},
};

static int read_idle_option(struct reader *r, const char *option)
{
	const struct idle *idle = r->release->npu ? NPU_IDLE : IDLE;
	size_t count = r->release->npu ? MSCOPE_COUNT(NPU_IDLE) : MSCOPE_COUNT(IDLE);

	for (size_t i = 0; i < count; i++)
		if (strcmp(option, idle[i].name) == 0)
			return r->release->minor < idle[i].minor ? unknown_to_release(r, option)
								 : read_word(r);
	return unknown_to_release(r, option);
}

/* Settings that only torch_npu has and that move blocks. */
static int read_npu_option(struct reader *r, const char *option, struct twin_settings *out)
{
	uint64_t value = 0;
	bool flag = false;
	int status;

	if (strcmp(option, "segment_size_mb") == 0) {
		if ((status = read_number(r, option, 512, &value)) != 0)
			return status;
		if (value < 20)
			return error_set(r->err, MSCOPE_E_USAGE,
					 "segment_size_mb must be from 20 to 512, not %s", r->word);
		out->unit_bytes = value * MIB;
		return 0;
	}
	if (strcmp(option, "base_addr_aligned_kb") == 0) {
		if ((status = read_number(r, option, 16, &value)) == 0)
			out->align_bytes = value * 1024;
		return status;
	}
	if (strcmp(option, "multi_stream_lazy_reclaim") != 0 &&
	    strcmp(option, "throw_on_npumalloc_oom") != 0) {
		if (strcmp(option, "page_size") != 0)
			return read_idle_option(r, option);
		status = read_word(r);
		flag = true; /* it has one value, and the driver decides whether it holds */
	} else {
		status = read_flag(r, option, &flag);
	}
	if (status != 0 || !flag)
		return status;
	return error_set(r->err, MSCOPE_E_USAGE,
			 "%s:%s cannot be replayed: it is not proven for torch_npu", option,
			 r->word);
}

static int read_option(struct reader *r, const char *option, struct twin_settings *out)
{
	int status;

	if (strcmp(option, "max_split_size_mb") == 0 ||
	    strcmp(option, "max_non_split_rounding_mb") == 0 ||
	    strcmp(option, "large_segment_size_mb") == 0)
		return read_size_option(r, option, out);
	if (strcmp(option, "expandable_segments") == 0)
		return read_flag(r, option, &out->expandable);
	if (strcmp(option, "roundup_power2_divisions") == 0)
		return read_divisions(r, option, out);
	if (strcmp(option, "garbage_collection_threshold") == 0) {
		if ((status = read_share(r, option, &out->gc_threshold)) != 0)
			return status;
		if (out->gc_threshold <= 0 || out->gc_threshold >= 1)
			return error_set(
				r->err, MSCOPE_E_USAGE,
				"garbage_collection_threshold must lie between 0 and 1, not %s",
				r->word);
		return 0;
	}
	if (strcmp(option, "per_process_memory_fraction") == 0)
		return r->release->minor < 10 ? unknown_to_release(r, option)
					      : read_share(r, option, &out->fraction);
	if (r->release->npu)
		return read_npu_option(r, option, out);
	if (strcmp(option, "backend") == 0) {
		if ((status = read_word(r)) != 0 || strcmp(r->word, "native") == 0)
			return status;
		return error_set(r->err, MSCOPE_E_USAGE,
				 "backend:%s is another allocator, which cannot be replayed",
				 r->word);
	}
	return read_idle_option(r, option);
}

int twin_settings_parse(const char *text, const struct twin_release *release,
			struct twin_settings *out, struct mscope_error *err)
{
	struct reader r = {.at = text, .release = release, .err = err};
	struct twin_settings settings;
	char option[sizeof(r.word)];
	int status;

	twin_settings_default(&settings);
	settings.non_split_rounding_bytes = 0; /* not given */
	if ((release->rules & TWIN_ALIGNED) != 0)
		settings.align_bytes = ALIGN_BYTES;
	skip_spaces(&r);
	while (*r.at != '\0') {
		if ((status = read_word(&r)) != 0)
			return status;
		memcpy(option, r.word, sizeof(option));
		if ((status = expect(&r, ':', option)) != 0 ||
		    (status = read_option(&r, option, &settings)) != 0)
			return status;
		skip_spaces(&r);
		if (*r.at != '\0' && !take(&r, ','))
			return error_set(err, MSCOPE_E_USAGE,
					 "the settings want \",\" before \"%.20s\"", r.at);
	}
	if (settings.large_segment_bytes != LARGE_SEGMENT_BYTES)
		settings.unit_bytes = 0; /* it comes first */
	if ((status = check_settings(&r, &settings)) != 0)
		return status;
	*out = settings;
	return 0;
}
