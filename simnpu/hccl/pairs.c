/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transfers between pairs of ranks. A job is a list of them, of which each moves a piece whenever its channel allows it, so that
 * no order of sends and receives makes ranks wait for each other.
 */
#include <stdlib.h>
#include <string.h>

#include "comm.h"
#include "hccl/hccl.h"
#include "opapi/numbers.h"

/* Moves a piece if that is possible now. Whether it was. */
static bool advance(struct membership *m, struct transfer *t)
{
	struct channel *channel = t->sends ? shared_channel(m, m->rank, t->other)
					   : shared_channel(m, t->other, m->rank);
	uint32_t written = atomic_load(&channel->written);
	uint32_t read = atomic_load(&channel->read);
	size_t bytes = t->bytes - t->done < CHANNEL_BYTES ? t->bytes - t->done : CHANNEL_BYTES;

	if (t->sends ? written != read : written == read)
		return false;
	if (t->sends) {
		memcpy(channel->data, t->data + t->done, bytes);
		atomic_store(&channel->written, written + 1);
		shared_wake(&channel->written);
	} else {
		memcpy(t->data + t->done, channel->data, bytes);
		atomic_store(&channel->read, read + 1);
		shared_wake(&channel->read);
	}
	t->done += bytes;
	return true;
}

/* Sleeps until the channel of a transfer that is not done changes. */
static void wait_for(struct membership *m, const struct transfer *t)
{
	struct channel *channel = t->sends ? shared_channel(m, m->rank, t->other)
					   : shared_channel(m, t->other, m->rank);
	uint32_t written = atomic_load(&channel->written);
	uint32_t read = atomic_load(&channel->read);

	if (t->sends && written != read)
		shared_wait(&channel->read, read);
	else if (!t->sends && written == read)
		shared_wait(&channel->written, written);
}

/* The same pair in the same direction keeps its order: of several transfers only the first that is not done may move. */
static bool is_first(const struct job *job, size_t n)
{
	const struct transfer *t = &job->items[n];
	size_t i;

	for (i = 0; i < n; i++) {
		if (job->items[i].done < job->items[i].bytes && job->items[i].other == t->other &&
		    job->items[i].sends == t->sends)
			return false;
	}
	return true;
}

static HcclResult transfer_all(struct job *job)
{
	struct membership *m = &job->comm->members;
	uint64_t began = shared_now();
	struct transfer *waiting;
	HcclResult result;
	bool moved;
	size_t n;

	do {
		waiting = NULL;
		moved = false;
		for (n = 0; n < job->item_count; n++) {
			struct transfer *t = &job->items[n];

			if (t->done >= t->bytes)
				continue;
			if (is_first(job, n) && advance(m, t))
				moved = true;
			if (t->done < t->bytes)
				waiting = t;
		}
		if (moved) {
			began = shared_now();
		} else if (waiting) {
			/* With one left it is the one that will change; with several, a short sleep at most. */
			wait_for(m, waiting);
			result = shared_check(m, shared_now() - began);
			if (result)
				return result;
		}
	} while (waiting);
	return HCCL_SUCCESS;
}

/* Transfers that wait for the end of a group, with where they belong. */
struct waiting {
	HcclComm comm; /* NULL once it was launched */
	void *stream;
	struct transfer transfer;
};

static _Thread_local struct {
	unsigned depth;
	size_t count;
	size_t capacity;
	struct waiting *items;
} group;

static HcclResult add_to_group(const struct transfer *item, HcclComm comm, void *stream)
{
	struct waiting *items = group.items;

	if (group.count == group.capacity) {
		size_t capacity = group.capacity ? 2 * group.capacity : 16;

		items = realloc(group.items, capacity * sizeof(*items));
		if (!items)
			return HCCL_E_MEMORY;
		group.items = items;
		group.capacity = capacity;
	}
	items[group.count++] = (struct waiting){comm, stream, *item};
	return HCCL_SUCCESS;
}

static HcclResult launch(const char *name, const struct transfer *items, size_t count,
			 HcclComm comm, void *stream)
{
	struct job job = {.comm = comm_of(comm), .run = transfer_all, .item_count = count};
	size_t n;

	if (!job.comm)
		return HCCL_E_PTR;
	for (n = 0; n < count; n++) {
		if (items[n].other >= job.comm->members.ranks)
			return HCCL_E_PARA;
	}
	job.items = malloc((count ? count : 1) * sizeof(*items));
	if (!job.items)
		return HCCL_E_MEMORY;
	memcpy(job.items, items, count * sizeof(*items));
	return comm_launch(name, &job, stream);
}

static size_t bytes_of(uint64_t count, HcclDataType type)
{
	aclDataType ours = comm_type(type);

	return ours == ACL_DT_UNDEFINED ? 0 : count * numbers_size(ours);
}

HcclResult HcclSend(void *sendBuf, uint64_t count, HcclDataType dataType, uint32_t destRank,
		    HcclComm comm, aclrtStream stream)
{
	struct transfer t = {
		.sends = true,
		.other = destRank,
		.data = sendBuf,
		.bytes = bytes_of(count, dataType),
	};

	return group.depth ? add_to_group(&t, comm, stream)
			   : launch("HcclSend", &t, 1, comm, stream);
}

HcclResult HcclRecv(void *recvBuf, uint64_t count, HcclDataType dataType, uint32_t srcRank,
		    HcclComm comm, aclrtStream stream)
{
	struct transfer t = {
		.other = srcRank,
		.data = recvBuf,
		.bytes = bytes_of(count, dataType),
	};

	return group.depth ? add_to_group(&t, comm, stream)
			   : launch("HcclRecv", &t, 1, comm, stream);
}

HcclResult HcclBatchSendRecv(HcclSendRecvItem *sendRecvInfo, uint32_t itemNum, HcclComm comm,
			     aclrtStream stream)
{
	struct transfer *items;
	HcclResult result;
	uint32_t n;

	if (!sendRecvInfo)
		return HCCL_E_PTR;
	items = calloc(itemNum ? itemNum : 1, sizeof(*items));
	if (!items)
		return HCCL_E_MEMORY;
	for (n = 0; n < itemNum; n++)
		items[n] = (struct transfer){
			.sends = sendRecvInfo[n].sendRecvType == HCCL_SEND,
			.other = sendRecvInfo[n].remoteRank,
			.data = sendRecvInfo[n].buf,
			.bytes = bytes_of(sendRecvInfo[n].count, sendRecvInfo[n].dataType),
		};
	result = launch("HcclBatchSendRecv", items, itemNum, comm, stream);
	free(items);
	return result;
}

/* One transfer to, and one from, each rank. */
static HcclResult exchange(const char *name, struct transfer items[2 * RANKS_MAX], HcclComm comm,
			   void *stream)
{
	return launch(name, items, 2 * (size_t)comm_of(comm)->members.ranks, comm, stream);
}

static unsigned char *place(const void *buffer, size_t bytes)
{
	return (unsigned char *)(uintptr_t)buffer + bytes;
}

HcclResult HcclAlltoAll(const void *sendBuf, uint64_t sendCount, HcclDataType sendType,
			const void *recvBuf, uint64_t recvCount, HcclDataType recvType,
			HcclComm comm, aclrtStream stream)
{
	size_t sent = bytes_of(sendCount, sendType);
	size_t received = bytes_of(recvCount, recvType);
	struct transfer items[2 * RANKS_MAX];
	uint32_t r;

	if (!comm)
		return HCCL_E_PTR;
	for (r = 0; r < comm_of(comm)->members.ranks; r++) {
		items[2 * r] = (struct transfer){true, r, place(sendBuf, r * sent), sent, 0};
		items[2 * r + 1] =
			(struct transfer){false, r, place(recvBuf, r * received), received, 0};
	}
	return exchange("HcclAlltoAll", items, comm, stream);
}

HcclResult HcclAlltoAllV(const void *sendBuf, const void *sendCounts, const void *sdispls,
			 HcclDataType sendType, const void *recvBuf, const void *recvCounts,
			 const void *rdispls, HcclDataType recvType, HcclComm comm,
			 aclrtStream stream)
{
	const uint64_t *counts[2] = {sendCounts, recvCounts};
	const uint64_t *places[2] = {sdispls, rdispls};
	struct transfer items[2 * RANKS_MAX];
	uint32_t r;

	if (!comm || !sendCounts || !sdispls || !recvCounts || !rdispls)
		return HCCL_E_PTR;
	for (r = 0; r < comm_of(comm)->members.ranks; r++) {
		items[2 * r] =
			(struct transfer){true, r, place(sendBuf, bytes_of(places[0][r], sendType)),
					  bytes_of(counts[0][r], sendType), 0};
		items[2 * r + 1] = (struct transfer){
			false, r, place(recvBuf, bytes_of(places[1][r], recvType)),
			bytes_of(counts[1][r], recvType), 0};
	}
	return exchange("HcclAlltoAllV", items, comm, stream);
}

HcclResult HcclGroupStart(void)
{
	group.depth++;
	return HCCL_SUCCESS;
}

/* What goes to the same stream of the same communicator is one job. */
static HcclResult launch_group(size_t first, struct transfer *items)
{
	HcclComm comm = group.items[first].comm;
	void *stream = group.items[first].stream;
	size_t count = 0;
	size_t n;

	for (n = first; n < group.count; n++) {
		struct waiting *item = &group.items[n];

		if (item->comm != comm || item->stream != stream)
			continue;
		items[count++] = item->transfer;
		item->comm = NULL;
	}
	return launch("HcclGroup", items, count, comm, stream);
}

HcclResult HcclGroupEnd(void)
{
	HcclResult result = HCCL_SUCCESS;
	struct transfer *items;
	size_t n;

	if (!group.depth)
		return HCCL_E_PARA;
	if (--group.depth || !group.count)
		return HCCL_SUCCESS;
	items = malloc(group.count * sizeof(*items));
	if (!items)
		result = HCCL_E_MEMORY;
	for (n = 0; n < group.count && !result; n++) {
		if (group.items[n].comm)
			result = launch_group(n, items);
	}
	free(items);
	free(group.items);
	group.items = NULL;
	group.count = 0;
	group.capacity = 0;
	return result;
}
