/* SPDX-License-Identifier: Apache-2.0 */
#include "findings/differ.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"

/* Of lines with the same functions at most as many are tried. */
#define PAIRED_MOST 256u

void differ_fini(struct differ *differ)
{
	free(differ->lines);
	map_fini(&differ->exact);
	map_fini(&differ->names);
	*differ = (struct differ){0};
}

/* ---- keys ---- */

static uint64_t add_text(uint64_t hash, const char *text)
{
	return text == NULL ? hash_add_byte(hash, 1)
			    : hash_add_byte(hash_add(hash, text, strlen(text)), 0);
}

static const char *base_name(const char *path)
{
	const char *slash = path == NULL ? NULL : strrchr(path, '/');

	return slash == NULL ? path : slash + 1;
}

void differ_add_stack(struct differ_keys *keys, struct replay *replay, uint32_t stack)
{
	const struct stack_line *lines;
	uint32_t i, count = 0;

	if (stack == 0)
		return;
	lines = replay_stack_lines(replay, stack, &count);
	for (i = 0; i < count; i++) {
		const struct stack_line *line = &lines[i];

		keys->loose = add_text(keys->loose, line->function);
		keys->exact =
			add_text(add_text(keys->exact, line->function), base_name(line->file));
		keys->exact = hash_add(keys->exact, &line->line, sizeof(line->line));
		if (line->function == NULL) {
			keys->loose = add_text(keys->loose, base_name(line->module));
			keys->exact = hash_add(keys->exact, &line->offset, sizeof(line->offset));
		}
	}
}

int differ_add(struct differ *differ, int side, uint64_t group, struct differ_keys keys,
	       uint32_t *out_line)
{
	struct map_key key = {keys.exact, group};
	const uint64_t *known = map_get(&differ->exact, key);
	size_t at = known != NULL ? *known : differ->count;

	if (known == NULL) {
		if (at >= UINT32_MAX || ARRAY_RESERVE(differ->lines, differ->room, at + 1) < 0 ||
		    map_put(&differ->exact, key, at) < 0)
			return -ENOMEM;
		differ->lines[differ->count++] =
			(struct differ_line){.group = group, .keys = keys, .into = (uint32_t)at};
	}
	differ->lines[at].there[side] = true;
	*out_line = (uint32_t)at;
	return 0;
}

/* ---- lines that moved ---- */

/* How alike two lines are of which each side has one: 0 if they have not the same functions. */
static int likeness(const struct differ_line *a, const struct differ_line *b)
{
	if (a->keys.loose != b->keys.loose || a->group != b->group)
		return 0;
	if (a->alike[0][0] != b->alike[1][0])
		return 1;
	return a->alike[0][1] == b->alike[1][1] ? 3 : 2;
}

/* By their functions; in each group in the order in which they came. */
static int by_loose(const void *a, const void *b, void *lines)
{
	size_t x = *(const size_t *)a, y = *(const size_t *)b;
	const struct differ_line *one = (const struct differ_line *)lines + x,
				 *two = (const struct differ_line *)lines + y;

	if (one->keys.loose != two->keys.loose)
		return one->keys.loose < two->keys.loose ? -1 : 1;
	return x < y ? -1 : 1;
}

static bool is_alone(const struct differ_line *line, int side)
{
	return line->there[side] && !line->there[!side];
}

/* Pairs those that are as alike as is wanted. `alone`: by_loose(). */
static void pair_alike(struct differ *differ, size_t *const alone[2], const size_t count[2],
		       int wanted)
{
	size_t i, k, from = 0;

	for (i = 0; i < count[0]; i++) {
		struct differ_line *line = &differ->lines[alone[0][i]];

		if (!is_alone(line, 0))
			continue;
		while (from < count[1] &&
		       differ->lines[alone[1][from]].keys.loose < line->keys.loose)
			from++;
		for (k = from; k < count[1] && k < from + PAIRED_MOST; k++) {
			struct differ_line *other = &differ->lines[alone[1][k]];

			if (other->keys.loose != line->keys.loose)
				break;
			if (!is_alone(other, 1) || likeness(line, other) < wanted)
				continue;
			line->there[1] = line->moved = true;
			other->there[1] = false;
			other->into = (uint32_t)alone[0][i];
			break;
		}
	}
}

int differ_pair(struct differ *differ)
{
	size_t *alone[2], count[2] = {0}, i;
	int side, wanted, r = 0;

	alone[0] = calloc(differ->count + 1, sizeof(**alone));
	alone[1] = calloc(differ->count + 1, sizeof(**alone));
	if (alone[0] == NULL || alone[1] == NULL)
		r = -ENOMEM;
	for (side = 0; side < 2 && r == 0; side++) {
		for (i = 0; i < differ->count; i++) {
			if (is_alone(&differ->lines[i], side))
				alone[side][count[side]++] = i;
		}
		if (count[side] > 0)
			qsort_r(alone[side], count[side], sizeof(**alone), by_loose, differ->lines);
	}
	for (wanted = 3; wanted > 0 && r == 0; wanted--)
		pair_alike(differ, alone, count, wanted);
	free(alone[0]);
	free(alone[1]);
	return r;
}

/* ---- lines that read the same ---- */

int differ_join(struct differ *differ, uint32_t line, const char *name)
{
	struct differ_line *of = &differ->lines[line], *to;
	struct map_key key = {hash_text(name), of->group << 16 ^ strlen(name)};
	const uint64_t *known;

	if (of->into != line)
		return 0;
	known = map_get(&differ->names, key);
	if (known == NULL)
		return map_put(&differ->names, key, line);
	if (*known == line)
		return 0;
	to = &differ->lines[*known];
	to->there[0] |= of->there[0];
	to->there[1] |= of->there[1];
	to->moved |= of->moved;
	of->into = (uint32_t)*known;
	return 0;
}

uint32_t differ_line(const struct differ *differ, uint32_t line)
{
	while (differ->lines[line].into != line)
		line = differ->lines[line].into;
	return line;
}

/* ---- what people see ---- */

const char *differ_kind(const bool there[2], int64_t change)
{
	return !there[0]    ? "new"
	       : !there[1]  ? "gone"
	       : change > 0 ? "grew"
	       : change < 0 ? "shrank"
			    : "same";
}

static uint64_t change_of(const int64_t both[2])
{
	return both[1] > both[0] ? (uint64_t)both[1] - (uint64_t)both[0]
				 : (uint64_t)both[0] - (uint64_t)both[1];
}

int differ_order(const int64_t a[2], const int64_t b[2])
{
	uint64_t x = change_of(a), y = change_of(b);
	int64_t one = a[0] > a[1] ? a[0] : a[1], two = b[0] > b[1] ? b[0] : b[1];

	if (x != y)
		return x > y ? -1 : 1;
	return one == two ? 0 : one > two ? -1 : 1;
}
