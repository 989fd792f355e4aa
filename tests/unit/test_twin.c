/* SPDX-License-Identifier: Apache-2.0 */
/* The twin of PyTorch's allocator: settings, releases and the rules that a person can check by hand. twin_player compares the rest. */
#include "unit.h"

#include <string.h>

#include "twin/block_sizes.h"
#include "twin/twin.h"

#define MIB ((uint64_t)1 << 20)

static struct twin_release release_of(const char *text)
{
	struct twin_release release;

	assert_int_equal(twin_release_parse(text, false, &release, NULL), 0);
	return release;
}

static bool accepts(const char *torch, const char *text, struct twin_settings *out)
{
	struct twin_release release = release_of(torch);
	struct twin_settings settings;
	struct mscope_error err = {0};
	int status = twin_settings_parse(text, &release, out == NULL ? &settings : out, &err);

	assert_true(status == 0 || (status == MSCOPE_E_USAGE && err.message[0] != '\0'));
	return status == 0;
}

static void releases_are_read_and_others_refused(void **state)
{
	struct twin_release release;
	struct mscope_error err = {0};

	(void)state;
	assert_int_equal(release_of("2.11.0+cu130").minor, 11);
	assert_int_equal(release_of("2.1").minor, 1);
	assert_true((release_of("2.12").rules & TWIN_OBJECT_ORDER) != 0);
	assert_true((release_of("2.13").rules & TWIN_OBJECT_ORDER) == 0);
	assert_int_equal(twin_release_parse("2.0.1", false, &release, &err), MSCOPE_E_USAGE);
	assert_int_equal(twin_release_parse("2.99", false, &release, &err), MSCOPE_E_USAGE);
	assert_int_equal(twin_release_parse("newest", false, &release, &err), MSCOPE_E_USAGE);
	assert_int_equal(twin_release_parse("2.1x", false, &release, &err), MSCOPE_E_USAGE);
}

static void settings_are_read_as_the_release_reads_them(void **state)
{
	struct twin_settings s;

	(void)state;
	assert_true(accepts("2.11", "", &s));
	assert_true(s.max_split_bytes == UINT64_MAX && !s.expandable && s.gc_threshold == 0);
	assert_true(accepts("2.11", " max_split_size_mb : 64 , expandable_segments:True", &s));
	assert_true(s.max_split_bytes == 64 * MIB && s.expandable);
	assert_true(accepts("2.11", "large_segment_size_mb:40", &s));
	assert_true(s.non_split_rounding_bytes == 40 * MIB);
	assert_false(accepts("2.10", "large_segment_size_mb:40", NULL));
	assert_false(accepts("2.5", "max_non_split_rounding_mb:40", NULL));
	assert_true(accepts("2.10", "max_split_size_mb:20", NULL));
	assert_false(accepts("2.9", "max_split_size_mb:20", NULL));
	assert_false(accepts("2.11", "max_split_size_mb:32,large_segment_size_mb:64", NULL));
	assert_false(accepts("2.11", "garbage_collection_threshold:1.0", NULL));
	assert_false(accepts("2.11", "backend:cudaMallocAsync", NULL));
	assert_false(accepts("2.3", "expandable_segments:True,max_split_size_mb:64", NULL));
	assert_false(accepts("2.11", "expandable_segments:yes", NULL));
	assert_false(accepts("2.11", "no_such_setting:1", NULL));
	assert_false(accepts("2.11", "max_split_size_mb", NULL));
	assert_false(accepts("2.11", "max_split_size_mb:64:", NULL));
	assert_false(accepts("2.11", "roundup_power2_divisions:3", NULL));
	assert_false(accepts("2.11", "roundup_power2_divisions:[64:2", NULL));
}

static void lists_of_divisions_hold_for_their_sizes(void **state)
{
	struct twin_settings s;

	(void)state;
	assert_true(accepts("2.11", "roundup_power2_divisions:[4:2,32:16,>:4]", &s));
	assert_int_equal(s.divisions[0], 2); /* below the first key */
	assert_int_equal(s.divisions[2], 2);
	assert_int_equal(s.divisions[3], 0); /* between two keys */
	assert_int_equal(s.divisions[5], 16);
	assert_int_equal(s.divisions[6], 4);
	assert_int_equal(s.divisions[15], 4);
	assert_true(accepts("2.9", "roundup_power2_divisions:[4:2,32:16,>:4]", &s));
	assert_int_equal(s.divisions[5], 4); /* ">" took the last key too */
}

static void sizes_are_rounded_by_the_rules(void **state)
{
	struct twin_release new = release_of("2.11"), old = release_of("2.3");
	struct twin_settings s;

	(void)state;
	assert_true(accepts("2.11", "", &s));
	assert_int_equal(block_size_of(&s, &new, 1), 512);
	assert_int_equal(block_size_of(&s, &new, 513), 1024);
	assert_int_equal(segment_size_of(&s, MIB), 2 * MIB);
	assert_int_equal(segment_size_of(&s, MIB + 512), 20 * MIB);
	assert_int_equal(segment_size_of(&s, 10 * MIB), 10 * MIB);
	assert_int_equal(segment_size_of(&s, 11 * MIB), 12 * MIB);
	assert_true(accepts("2.11", "roundup_power2_divisions:4", &s));
	assert_int_equal(block_size_of(&s, &new, 5 * MIB + 1), 6 * MIB);
	assert_int_equal(block_size_of(&s, &new, 4 * MIB), 4 * MIB);
	assert_true(accepts("2.11", "roundup_power2_divisions:1", &s));
	assert_int_equal(block_size_of(&s, &new, 1000), 1024);
	assert_int_equal(block_size_of(&s, &old, 1000), 1000);
}

static struct twin *make(const char *settings, uint64_t limit_bytes)
{
	struct twin_conditions c = {.release = release_of("2.11"),
				    .device_bytes = 8192 * MIB,
				    .capacity_bytes = UINT64_MAX,
				    .limit_bytes = limit_bytes};
	struct twin *twin;

	assert_true(accepts("2.11", settings, &c.settings));
	assert_int_equal(twin_new(&c, &twin), 0);
	assert_int_equal(twin_lane(twin, 0, false), 0);
	assert_int_equal(twin_lane(twin, 1, true), 0);
	return twin;
}

static uint32_t get(struct twin *twin, uint32_t lane, uint64_t bytes)
{
	uint32_t block;

	assert_int_equal(twin_request(twin, lane, bytes, &block), 0);
	return block;
}

static void a_freed_block_is_used_again_and_its_rest_stays(void **state)
{
	struct twin *twin = make("", UINT64_MAX);
	uint32_t a = get(twin, 0, 4 * MIB), b = get(twin, 0, 4 * MIB);
	uint64_t first = twin_address(twin, a);

	(void)state;
	assert_int_equal(twin_address(twin, b), first + 4 * MIB);
	assert_int_equal(twin_figures(twin)->reserved, 20 * MIB);
	assert_int_equal(twin_release(twin, a), 0);
	assert_int_equal(twin_address(twin, get(twin, 0, 2 * MIB)), first);
	assert_int_equal(twin_figures(twin)->in_use, 6 * MIB);
	assert_int_equal(twin_figures(twin)->reserved_peak, 20 * MIB);
	twin_free(twin);
}

static void a_free_that_waits_keeps_its_block(void **state)
{
	struct twin *twin = make("", UINT64_MAX);
	uint32_t a = get(twin, 0, 12 * MIB);

	(void)state;
	twin_ask_free(twin, a);
	assert_int_equal(twin_figures(twin)->in_use, 0);
	assert_int_equal(twin_figures(twin)->active, 12 * MIB);
	assert_int_not_equal(twin_address(twin, get(twin, 0, 12 * MIB)), twin_address(twin, a));
	assert_int_equal(twin_release(twin, a), 0);
	assert_int_equal(twin_figures(twin)->active, 12 * MIB);
	twin_free(twin);
}

static void a_limit_refuses_after_everything_went_back(void **state)
{
	struct twin *twin = make("", 30 * MIB);
	uint32_t a = get(twin, 0, 12 * MIB), b = get(twin, 0, 14 * MIB);

	(void)state;
	assert_int_equal(get(twin, 0, 12 * MIB), TWIN_NONE);
	assert_int_equal(twin_figures(twin)->refusals, 1);
	assert_int_equal(twin_release(twin, a), 0);
	assert_int_equal(twin_release(twin, b), 0);
	assert_int_not_equal(get(twin, 0, 20 * MIB), TWIN_NONE);
	assert_int_equal(twin_figures(twin)->reserved, 20 * MIB);
	assert_int_equal(twin_figures(twin)->retries, 2);
	twin_free(twin);
}

static void private_pools_keep_their_segments_until_they_are_unused(void **state)
{
	struct twin *twin = make("", UINT64_MAX);
	uint32_t a = get(twin, 0, 12 * MIB), b = get(twin, 1, 12 * MIB);

	(void)state;
	assert_int_equal(twin_release(twin, a), 0);
	assert_int_equal(twin_release(twin, b), 0);
	assert_int_equal(twin_empty_cache(twin), 0);
	assert_int_equal(twin_figures(twin)->reserved, 12 * MIB);
	twin_pool_unused(twin, 1);
	assert_int_equal(twin_empty_cache(twin), 0);
	assert_int_equal(twin_figures(twin)->reserved, 0);
	twin_free(twin);
}

static void expandable_segments_map_and_unmap_whole_units(void **state)
{
	struct twin *twin = make("expandable_segments:True", UINT64_MAX);
	uint32_t a = get(twin, 0, 30 * MIB), b = get(twin, 0, 30 * MIB);

	(void)state;
	assert_int_equal(twin_address(twin, b), twin_address(twin, a) + 30 * MIB);
	assert_int_equal(twin_figures(twin)->reserved, 60 * MIB);
	assert_int_equal(twin_release(twin, a), 0);
	assert_int_equal(twin_empty_cache(twin), 0);
	assert_int_equal(twin_figures(twin)->reserved, 40 * MIB); /* 10 MiB share a unit with b */
	assert_int_equal(twin_release(twin, b), 0);
	assert_int_equal(twin_empty_cache(twin), 0);
	assert_int_equal(twin_figures(twin)->reserved, 0);
	twin_free(twin);
}

/* Each figure is what torch_npu 2.13.0 did. */
static void torch_npu_pads_requests_and_aligns_large_blocks(void **state)
{
	struct twin_conditions c = {.device_bytes = (uint64_t)64 << 30,
				    .capacity_bytes = UINT64_MAX,
				    .limit_bytes = UINT64_MAX,
				    .order = TWIN_ASCENDING};
	struct mscope_error err = {0};
	struct twin *twin = NULL;
	uint32_t a, b, d;

	(void)state;
	assert_int_equal(twin_release_parse("2.13.0", true, &c.release, &err), 0);
	assert_int_equal(twin_settings_parse("expandable_segments:True,max_split_size_mb:64",
					     &c.release, &c.settings, &err),
			 MSCOPE_E_USAGE);
	assert_non_null(strstr(err.message, "torch_npu refuses expandable_segments together"));
	assert_int_equal(twin_settings_parse("page_size:1g", &c.release, &c.settings, &err),
			 MSCOPE_E_USAGE);
	assert_int_equal(
		twin_settings_parse("expandable_segments:True", &c.release, &c.settings, &err), 0);
	assert_int_equal(twin_new(&c, &twin), 0);
	assert_int_equal(twin_lane(twin, 0, false), 0);
	a = get(twin, 0, 480);
	b = get(twin, 0, 481);
	assert_int_equal(twin_size(twin, a), 512);
	assert_int_equal(twin_size(twin, b), 1024);
	a = get(twin, 0, 3 * MIB);
	b = get(twin, 0, 30 * MIB);
	d = get(twin, 0, 3 * MIB / 2);
	assert_int_equal(twin_size(twin, a), 0x300200);
	assert_int_equal(twin_address(twin, b) - twin_address(twin, a), 0x304000);
	assert_int_equal(twin_size(twin, b), 31457792);
	assert_int_equal(twin_address(twin, d), twin_address(twin, b) + twin_size(twin, b));
	twin_free(twin);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(releases_are_read_and_others_refused),
		cmocka_unit_test(settings_are_read_as_the_release_reads_them),
		cmocka_unit_test(lists_of_divisions_hold_for_their_sizes),
		cmocka_unit_test(sizes_are_rounded_by_the_rules),
		cmocka_unit_test(a_freed_block_is_used_again_and_its_rest_stays),
		cmocka_unit_test(a_free_that_waits_keeps_its_block),
		cmocka_unit_test(a_limit_refuses_after_everything_went_back),
		cmocka_unit_test(private_pools_keep_their_segments_until_they_are_unused),
		cmocka_unit_test(expandable_segments_map_and_unmap_whole_units),
		cmocka_unit_test(torch_npu_pads_requests_and_aligns_large_blocks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
