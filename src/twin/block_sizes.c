/* SPDX-License-Identifier: Apache-2.0 */
#include "twin/block_sizes.h"

#define LARGE_ALONE                                                                                \
	((uint64_t)10 << 20) /* blocks of this size and more get a segment of their own */
#define LARGE_ROUNDED ((uint64_t)2 << 20)

static uint64_t round_up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) / unit * unit;
}

static uint32_t log2_of(uint64_t value)
{
	return 63u - (uint32_t)__builtin_clzll(value);
}

static uint32_t division_of(const struct twin_settings *settings, uint64_t size)
{
	uint32_t power = log2_of(size);

	if (power < 20)
		power = 20;
	return settings->divisions[power - 20 < TWIN_DIVISIONS ? power - 20 : TWIN_DIVISIONS - 1];
}

uint64_t block_size_of(const struct twin_settings *settings, const struct twin_release *release,
		       uint64_t requested)
{
	uint64_t power;
	uint32_t division;

	if ((release->rules & TWIN_PADDING) != 0)
		requested += TWIN_PADDING_BYTES;
	if (requested < TWIN_BLOCK_LEAST)
		return TWIN_BLOCK_LEAST;
	division = division_of(settings, requested);
	if (division == 1 && (release->rules & TWIN_ROUND_DIVISION_1) == 0 &&
	    requested > TWIN_BLOCK_LEAST)
		return requested;
	if (division <= 1 || requested <= (uint64_t)TWIN_BLOCK_LEAST * division)
		return round_up(requested, TWIN_BLOCK_LEAST);
	power = (uint64_t)1 << log2_of(requested);
	if (power == requested)
		return requested;
	return round_up(requested, power >> log2_of(division));
}

uint64_t segment_size_of(const struct twin_settings *settings, uint64_t size)
{
	if (size <= TWIN_SMALL_MOST)
		return TWIN_SMALL_SEGMENT;
	if (size < LARGE_ALONE)
		return settings->large_segment_bytes;
	return round_up(size, LARGE_ROUNDED);
}
