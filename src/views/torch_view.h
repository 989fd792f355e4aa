/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the view torch: torch.c writes the history, torch_segments.c what is there at its end. */
#ifndef MSCOPE_VIEWS_TORCH_VIEW_H
#define MSCOPE_VIEWS_TORCH_VIEW_H

#include "views/pickle_writer.h"
#include "views/view.h"

#define TORCH_DEVICES_MAX 64u

/* An entry of a history that may grow: parts of an expandable segment come one by one. */
struct torch_pending {
	const char *action; /* NULL: none */
	uint64_t address, size, stream, time_us;
	uint32_t stack;
};

struct torch_device {
	struct pickle_part part;
	struct torch_pending pending;
	uint64_t entries; /* written so far */
	bool begun;
};

/* A call of empty_cache(): this many entries of the device came before it. */
struct torch_empty {
	uint32_t device;
	uint64_t entry;
};

struct torch_view {
	struct torch_device devices[TORCH_DEVICES_MAX];
	uint32_t device_count; /* highest that has something, + 1 */
	struct pickle_part annotations, rest;
	uint32_t memo;
	uint8_t *raw; /* a bit for each allocation id of driver memory that no pool has taken */
	size_t raw_bytes, raw_room;
	struct torch_empty *empties;
	size_t empty_count, empty_room;
	struct map ranges; /* open ranges: number -> offset of the name in `names` */
	struct interned names;
	bool host_alone; /* CPU tensors and no memory of a device: they are those of device 0 */
	bool has_device, has_host; /* what the first pass has seen */
	bool ended;		   /* the program's own code has: the snapshot is of this moment */
	bool is_snapshot;	   /* the trace was one: flags of contexts are streams */
	char directory[PROJECT_PATH_MAX];
};

/* The number of the list that a block belongs to; TORCH_DEVICES_MAX or more: the file does not have it. */
uint32_t torch_device_of(const struct torch_view *state, const struct context *context);

/* Whether a block is a segment: memory of the driver that has an address of its own, or a CPU tensor. */
bool torch_is_segment(const struct torch_view *state, const struct context *context);
/* Of a segment: whether it is an allocation as well, because no pool took it. */
bool torch_is_raw(const struct torch_view *state, const struct context *context,
		  const struct block *block);
uint64_t torch_stream(const struct torch_view *state, const struct context *context);

/* Writes the value of the key "frames". */
void torch_put_frames(const struct view *view, struct pickle_part *part, uint32_t stack);

/* Writes the list of segments, as they are when the program ends. 0 or -ENOMEM. */
int torch_put_segments(struct view *view, struct pickle_part *part);

#endif
