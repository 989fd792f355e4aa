/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The segments of a snapshot and the blocks in them, as they are when the program ends. A trace has what was asked for; how large a
 * block is, and where a free one lies between two, follows from the rules of PyTorch's caching allocator:
 *
 *     a block is a multiple of 512 bytes (torch_npu adds 32 first), and begins where the one before it ends;
 *     of a large segment a rest of 1 MiB or less is not split off, and belongs to the block before it;
 *     what is free between two blocks is one block, because free neighbours are joined.
 *
 * Every block lies in a segment, because the viewer fails otherwise: a block that lies in no memory of the driver that we know gets a
 * segment of its own.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "views/torch_view.h"

#define UNIT	      512u
#define NPU_EXTRA     32u
#define SMALL_SEGMENT (2u << 20)
#define SMALL_SIZE    (1u << 20)

struct piece {
	uint64_t address, size, stream;
	uint32_t stack, device;
	bool segment;	 /* memory of the driver */
	bool raw;	 /* that no pool took */
	bool expandable; /* a part of an expandable segment */
};

struct pieces {
	struct piece *all;
	size_t count, room;
	bool npu;
};

static int by_address(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;

	return ORDER_UP(x->device, y->device) ?:
	       ORDER_UP(x->address, y->address) ?:
	       ORDER_DOWN(x->segment, y->segment);
}

static int collect(const struct view *view, struct pieces *pieces)
{
	const struct torch_view *state = view->state;
	const struct block *block;
	size_t cursor = 0;

	while ((block = replay_next_at_end(view->first, &cursor)) != NULL) {
		const struct context *context = replay_context(view->first, block->context);
		bool segment = torch_is_segment(state, context);

		if (torch_device_of(state, context) >= TORCH_DEVICES_MAX ||
		    (context->pool == POOL_hal && !segment) || block->size_bytes == 0)
			continue;
		if (ARRAY_RESERVE(pieces->all, pieces->room, pieces->count + 1) < 0)
			return -ENOMEM;
		pieces->npu = context->vendor == VENDOR_ASCEND;
		pieces->all[pieces->count++] =
			(struct piece){.address = block->address,
				       .size = block->size_bytes,
				       .stream = torch_stream(state, context),
				       .stack = block->stack,
				       .device = torch_device_of(state, context),
				       .segment = segment,
				       .raw = segment && torch_is_raw(state, context, block),
				       .expandable = segment && context->kind == BLOCK_CREATE};
	}
	if (pieces->count > 0)
		qsort(pieces->all, pieces->count, sizeof(*pieces->all), by_address);
	return 0;
}

/* What the allocator takes for a request. */
static uint64_t rounded(uint64_t size, bool npu)
{
	return round_up_u64(size + (npu ? NPU_EXTRA : 0), UNIT);
}

static void put_key_int(struct pickle_part *part, const char *key, uint64_t value)
{
	pickle_put_text(part, key);
	pickle_put_int(part, value);
}

/* A block of a segment, and what the segment has of its kind. */
struct sums {
	uint64_t allocated, requested;
	bool small; /* a block has at most 1 MiB */
};

static void put_block(struct view *view, struct pickle_part *part, uint64_t address, uint64_t size,
		      const struct piece *piece, bool npu, struct sums *sums)
{
	if (size == 0)
		return;
	pickle_begin_dict(part);
	put_key_int(part, "address", address);
	put_key_int(part, "size", size);
	put_key_int(part, "requested_size", piece == NULL ? 0 : piece->size);
	pickle_put_text(part, "state");
	pickle_put_text(part, piece == NULL ? "inactive" : "active_allocated");
	pickle_put_text(part, "frames");
	torch_put_frames(view, part, piece == NULL ? 0 : piece->stack);
	pickle_end_dict(part);
	if (piece != NULL) {
		sums->allocated += size;
		sums->requested += piece->size;
		sums->small |= rounded(piece->size, npu) <= SMALL_SIZE;
	}
}

/* What a segment looks like; its blocks are the pieces from `first` to `last` that are no segments. */
struct segment {
	uint64_t address, size;
	const struct piece *of;
	size_t first, last;
};

static void put_blocks(struct view *view, struct pickle_part *part, const struct pieces *pieces,
		       const struct segment *segment, struct sums *sums)
{
	uint64_t at = segment->address, end = segment->address + segment->size;
	bool large = !segment->of->expandable && segment->size > SMALL_SEGMENT;
	size_t i, next;

	if (segment->first == segment->last && segment->of->raw) {
		struct piece whole = *segment->of;

		whole.size = segment->size;
		put_block(view, part, at, segment->size, &whole, pieces->npu, sums);
		return;
	}
	for (i = segment->first; i < segment->last; i = next) {
		struct piece piece = pieces->all[i];
		uint64_t size = rounded(piece.size, pieces->npu), limit = end;

		for (next = i + 1; next < segment->last; next++) {
			/* Memory of a pool inside a block of another one is no block of its own here. */
			if (!pieces->all[next].segment &&
			    pieces->all[next].address >= piece.address + piece.size) {
				limit = pieces->all[next].address;
				break;
			}
		}
		if (piece.segment || piece.address < at)
			continue;
		put_block(view, part, at, piece.address - at, NULL, pieces->npu, sums);
		if (size > limit - piece.address ||
		    (large && limit - piece.address - size <= SMALL_SIZE))
			size = limit - piece.address;
		if (piece.size > size)
			piece.size = size;
		put_block(view, part, piece.address, size, &piece, pieces->npu, sums);
		at = piece.address + size;
	}
	put_block(view, part, at, end - at, NULL, pieces->npu, sums);
}

static void put_segment(struct view *view, struct pickle_part *part, const struct pieces *pieces,
			const struct segment *segment)
{
	struct sums sums = {0};

	pickle_next(part);
	pickle_begin_dict(part);
	put_key_int(part, "device", segment->of->device);
	put_key_int(part, "address", segment->address);
	put_key_int(part, "total_size", segment->size);
	put_key_int(part, "stream", segment->of->stream);
	pickle_put_text(part, "is_expandable");
	pickle_put_bool(part, segment->of->expandable);
	pickle_put_text(part, "segment_pool_id");
	strbuf_add(&part->text, "K\0K\0\x86", 5);
	pickle_put_text(part, "frames");
	torch_put_frames(view, part, segment->of->segment ? segment->of->stack : 0);
	pickle_put_text(part, "blocks");
	pickle_begin_list(part);
	put_blocks(view, part, pieces, segment, &sums);
	pickle_end_list(part);
	put_key_int(part, "allocated_size", sums.allocated);
	put_key_int(part, "active_size", sums.allocated);
	put_key_int(part, "requested_size", sums.requested);
	pickle_put_text(part, "segment_type");
	pickle_put_text(part,
			(segment->of->expandable ? sums.small : segment->size <= SMALL_SEGMENT)
				? "small"
				: "large");
	pickle_end_dict(part);
}

/* The segment that begins with a piece; behind it are `last` and what follows. */
static struct segment segment_at(const struct pieces *pieces, size_t first)
{
	const struct piece *of = &pieces->all[first];
	struct segment segment = {.address = of->address, .size = of->size, .of = of};
	size_t i = first + 1;

	if (!of->segment) {
		segment.size = rounded(of->size, pieces->npu);
		segment.first = first;
	} else {
		segment.first = i;
	}
	for (; i < pieces->count && pieces->all[i].device == of->device; i++) {
		const struct piece *piece = &pieces->all[i];

		if (piece->segment && of->expandable && piece->expandable &&
		    piece->stream == of->stream &&
		    piece->address == segment.address + segment.size) {
			segment.size += piece->size;
			continue;
		}
		/* A block without memory of the driver ends where the next piece begins. */
		if (!of->segment && piece->address < segment.address + segment.size)
			segment.size = piece->address - segment.address;
		if (piece->segment || piece->address >= segment.address + segment.size)
			break;
	}
	segment.last = i;
	return segment;
}

int torch_put_segments(struct view *view, struct pickle_part *part)
{
	struct pieces pieces = {0};
	struct segment segment;
	int r = collect(view, &pieces);
	size_t i;

	pickle_begin_part(part);
	for (i = 0; i < pieces.count && r == 0; i = segment.last) {
		segment = segment_at(&pieces, i);
		if (segment.size > 0)
			put_segment(view, part, &pieces, &segment);
	}
	pickle_end_part(part);
	free(pieces.all);
	return r == 0 ? part->error : r;
}
