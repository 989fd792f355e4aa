/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/npu_history.h"

#include <stdlib.h>

#include "base/array.h"

void npu_history_fini(struct npu_history *npu)
{
	map_fini(&npu->driver);
	free(npu->handles);
	*npu = (struct npu_history){0};
}

static int put(struct npu_history *npu, struct pool_history *history, struct history_event now,
	       enum history_kind kind, uint64_t address, uint64_t bytes)
{
	if (kind == HISTORY_SEGMENT || kind == HISTORY_MAP)
		npu->held += bytes;
	else
		npu->held -= bytes;
	now.kind = (uint8_t)kind;
	now.address = address;
	now.bytes = bytes;
	return pool_history_add(history, &now);
}

int npu_history_given(struct npu_history *npu, uint64_t address, uint64_t bytes, bool by_handle)
{
	int status = map_put(&npu->driver, (struct map_key){address, by_handle}, bytes << 1);

	if (status != 0 || !by_handle)
		return status;
	status = ARRAY_RESERVE(npu->handles, npu->handle_room, npu->handle_count + 1);
	if (status == 0)
		npu->handles[npu->handle_count++] = address;
	npu->handle_bytes += bytes;
	return status;
}

/* Parts of expandable segments have no address: all that is free goes, which the replay knows. */
int npu_history_gone(struct npu_history *npu, struct pool_history *history, uint64_t address,
		     bool by_handle, struct history_event now)
{
	uint64_t said;

	if (!map_remove(&npu->driver, (struct map_key){address, by_handle}, &said))
		return 0;
	for (size_t i = 0; i < npu->handle_count && by_handle; i++)
		if (npu->handles[i] == address) {
			npu->handles[i] = npu->handles[--npu->handle_count];
			npu->handle_bytes -= said >> 1;
			return 0;
		}
	if ((said & 1) == 0)
		return 0;
	return put(npu, history, now, by_handle ? HISTORY_UNMAP : HISTORY_SEGMENT_GONE,
		   by_handle ? 0 : address, said >> 1);
}

/* Memory of the driver that this block is the first of. */
static int take_segment(struct npu_history *npu, struct pool_history *history, uint64_t address,
			struct history_event now)
{
	uint64_t *segment = map_get(&npu->driver, (struct map_key){address, false});

	if (segment == NULL || (*segment & 1) != 0)
		return 0;
	*segment |= 1;
	return put(npu, history, now, HISTORY_SEGMENT, address, *segment >> 1);
}

/* Where a part lies in its arena matters only for the first one, which begins as its first block does. */
static int take_parts(struct npu_history *npu, struct pool_history *history, uint64_t address,
		      struct history_event now)
{
	uint64_t bytes = npu->handle_bytes;

	if (npu->handle_count == 0)
		return 0;
	for (size_t i = 0; i < npu->handle_count; i++)
		*map_get(&npu->driver, (struct map_key){npu->handles[i], true}) |= 1;
	npu->handle_count = 0;
	npu->handle_bytes = 0;
	return put(npu, history, now, HISTORY_MAP, address, bytes);
}

int npu_history_block(struct npu_history *npu, struct pool_history *history, uint64_t address,
		      struct history_event now)
{
	int status = take_segment(npu, history, address, now);

	if (status == 0)
		status = take_parts(npu, history, address, now);
	npu->has_pool = true;
	npu->strange = npu->strange || npu->held != npu->told;
	return status;
}
