/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/watches.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

void watches_fini(struct watches *watches)
{
	size_t i;

	for (i = 0; i < watches->count; i++) {
		free(watches->items[i].name);
		free(watches->items[i].last.operation);
		free(watches->items[i].from.operation);
		free(watches->items[i].to.operation);
	}
	free(watches->items);
	*watches = (struct watches){0};
}

static struct watched *find(struct watches *watches, const struct dump *dump)
{
	size_t i;

	for (i = 0; i < watches->count; i++) {
		struct watched *watched = &watches->items[i];

		if (watched->output == dump->output && watched->device == dump->context->device &&
		    strcmp(watched->name, dump->watched) == 0)
			return watched;
	}
	return NULL;
}

static int moment_set(struct moment *moment, const struct dump *dump)
{
	/* Mostly the same operator comes twice, with its begin and its end. */
	if (moment->operation == NULL || strcmp(moment->operation, dump->operation) != 0) {
		char *copy = strdup(dump->operation);

		if (copy == NULL)
			return -ENOMEM;
		free(moment->operation);
		moment->operation = copy;
	}
	moment->number = dump->number;
	moment->tid = dump->tid;
	moment->after = dump->after;
	return 0;
}

static int moment_copy(struct moment *to, const struct moment *from)
{
	*to = *from;
	to->operation = strdup(from->operation);
	return to->operation == NULL ? -ENOMEM : 0;
}

static int add(struct watches *watches, const struct dump *dump, struct watched **out)
{
	struct watched *watched;

	if (watches->count == WATCHES_MAX) {
		watches->more++;
		return 0;
	}
	if (array_reserve(&watches->items, &watches->room, watches->count + 1,
			  sizeof(*watches->items)) < 0)
		return -ENOMEM;
	watched = &watches->items[watches->count];
	*watched = (struct watched){.name = strdup(dump->watched),
				    .output = dump->output,
				    .device = dump->context->device};
	if (watched->name == NULL)
		return -ENOMEM;
	watches->count++;
	*out = watched;
	return 0;
}

int watches_add(struct watches *watches, const struct dump *dump)
{
	struct watched *watched = find(watches, dump);
	int r = 0;

	watches->dumps++;
	if (watched == NULL) {
		r = add(watches, dump, &watched);
		if (watched == NULL)
			return r;
	} else if (!dump->first && watched->checksum != dump->checksum) {
		if (watched->changes++ == 0) {
			r = moment_copy(&watched->from, &watched->last);
			if (r == 0)
				r = moment_set(&watched->to, dump);
		}
	}
	watched->dumps++;
	watched->checksum = dump->checksum;
	watched->size_bytes = dump->size_bytes;
	return r < 0 ? r : moment_set(&watched->last, dump);
}

bool watched_changed_during(const struct watched *watched)
{
	const struct moment *from = &watched->from, *to = &watched->to;

	return !from->after && to->after && from->tid == to->tid && from->number == to->number &&
	       strcmp(from->operation, to->operation) == 0;
}
