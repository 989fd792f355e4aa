/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations of all ranks at once. Each is a row of rounds: a rank puts a piece of its data into its slot, all meet, each takes
 * what it wants out of all slots, all meet again.
 */
#include <string.h>

#include "comm.h"
#include "hccl/hccl.h"
#include "opapi/numbers.h"

enum {
	PIECE = 1024, /* elements that are reduced at a time */
};

static double reduce_reals(HcclReduceOp op, double left, double right)
{
	switch (op) {
	case HCCL_REDUCE_PROD:
		return left * right;
	case HCCL_REDUCE_MAX:
		return left > right ? left : right;
	case HCCL_REDUCE_MIN:
		return left < right ? left : right;
	default:
		return left + right;
	}
}

static int64_t reduce_integers(HcclReduceOp op, int64_t left, int64_t right)
{
	switch (op) {
	case HCCL_REDUCE_PROD:
		return (int64_t)((uint64_t)left * (uint64_t)right);
	case HCCL_REDUCE_MAX:
		return left > right ? left : right;
	case HCCL_REDUCE_MIN:
		return left < right ? left : right;
	default:
		return (int64_t)((uint64_t)left + (uint64_t)right);
	}
}

/* Elements `start` on, of all slots, in the order of ranks, so that every rank gets the same. */
static void reduce_piece(const struct job *job, unsigned char *out, uint64_t start, size_t count)
{
	const struct membership *m = &job->comm->members;
	size_t at = start * numbers_size(job->type);
	uint32_t r;
	size_t n;

	if (numbers_are_integers(job->type)) {
		int64_t sums[PIECE];
		int64_t values[PIECE];

		for (r = 0; r < m->ranks; r++) {
			numbers_to_integer(job->type, shared_slot(m, r) + at, 1, count, values);
			for (n = 0; n < count; n++)
				sums[n] = r ? reduce_integers(job->op, sums[n], values[n])
					    : values[n];
		}
		numbers_from_integer(job->type, out, 1, count, sums);
	} else {
		double sums[PIECE];
		double values[PIECE];

		for (r = 0; r < m->ranks; r++) {
			numbers_to_real(job->type, shared_slot(m, r) + at, 1, count, values);
			for (n = 0; n < count; n++)
				sums[n] = r ? reduce_reals(job->op, sums[n], values[n]) : values[n];
		}
		numbers_from_real(job->type, out, 1, count, sums);
	}
}

static void reduce_slots(const struct job *job, unsigned char *out, uint64_t count)
{
	uint64_t start;

	for (start = 0; start < count; start += PIECE)
		reduce_piece(job, out + start * numbers_size(job->type), start,
			     count - start < PIECE ? count - start : PIECE);
}

/* What a rank takes out of the slots: `count` elements from `start` on are there. */
typedef void take_fn(const struct job *job, uint64_t start, uint64_t count);

/*
 * Rounds over `job->count` elements that a rank gives from `send` on, NULL when it gives nothing. `take` is called when all have
 * given, and is NULL for a rank that wants nothing.
 */
static HcclResult rounds(struct job *job, const unsigned char *send, take_fn *take)
{
	struct membership *m = &job->comm->members;
	size_t size = numbers_size(job->type);
	uint64_t room = SLOT_BYTES / size;
	HcclResult result = HCCL_SUCCESS;
	uint64_t start;

	for (start = 0; start < job->count && !result; start += room) {
		uint64_t count = job->count - start < room ? job->count - start : room;

		if (send)
			memcpy(shared_slot(m, m->rank), send + start * size, count * size);
		result = shared_barrier(m);
		if (!result && take)
			take(job, start, count);
		if (!result)
			result = shared_barrier(m);
	}
	return result;
}

static void take_sum(const struct job *job, uint64_t start, uint64_t count)
{
	reduce_slots(job, (unsigned char *)job->receive + start * numbers_size(job->type), count);
}

static void take_root(const struct job *job, uint64_t start, uint64_t count)
{
	size_t size = numbers_size(job->type);

	memcpy((unsigned char *)job->receive + start * size,
	       shared_slot(&job->comm->members, job->root), count * size);
}

static void take_all(const struct job *job, uint64_t start, uint64_t count)
{
	const struct membership *m = &job->comm->members;
	size_t size = numbers_size(job->type);
	uint32_t r;

	for (r = 0; r < m->ranks; r++)
		memcpy((unsigned char *)job->receive + (r * job->count + start) * size,
		       shared_slot(m, r), count * size);
}

static HcclResult all_reduce(struct job *job)
{
	return rounds(job, job->send, take_sum);
}

static HcclResult reduce(struct job *job)
{
	return rounds(job, job->send, job->comm->members.rank == job->root ? take_sum : NULL);
}

static HcclResult broadcast(struct job *job)
{
	bool is_root = job->comm->members.rank == job->root;

	return rounds(job, is_root ? job->send : NULL, is_root ? NULL : take_root);
}

static HcclResult all_gather(struct job *job)
{
	return rounds(job, job->send, take_all);
}

/* For each rank in turn, what all others have for it. */
static HcclResult reduce_scatter(struct job *job)
{
	struct membership *m = &job->comm->members;
	size_t bytes = job->count * numbers_size(job->type);
	HcclResult result = HCCL_SUCCESS;
	uint32_t r;

	for (r = 0; r < m->ranks && !result; r++)
		result = rounds(job, (const unsigned char *)job->send + r * bytes,
				r == m->rank ? take_sum : NULL);
	return result;
}

static HcclResult scatter(struct job *job)
{
	struct membership *m = &job->comm->members;
	size_t bytes = job->count * numbers_size(job->type);
	HcclResult result = HCCL_SUCCESS;
	uint32_t r;

	for (r = 0; r < m->ranks && !result; r++)
		result = rounds(job,
				m->rank == job->root ? (const unsigned char *)job->send + r * bytes
						     : NULL,
				r == m->rank ? take_root : NULL);
	return result;
}

static HcclResult barrier(struct job *job)
{
	return shared_barrier(&job->comm->members);
}

static HcclResult launch(const char *name, struct job job, HcclDataType type, HcclComm comm,
			 void *stream)
{
	job.comm = comm_of(comm);
	job.type = comm_type(type);
	if (!job.comm)
		return HCCL_E_PTR;
	if (job.type == ACL_DT_UNDEFINED || job.op > HCCL_REDUCE_MIN ||
	    job.root >= job.comm->members.ranks)
		return HCCL_E_PARA;
	return comm_launch(name, &job, stream);
}

HcclResult HcclAllReduce(void *sendBuf, void *recvBuf, uint64_t count, HcclDataType dataType,
			 HcclReduceOp op, HcclComm comm, aclrtStream stream)
{
	return launch("HcclAllReduce",
		      (struct job){.run = all_reduce,
				   .send = sendBuf,
				   .receive = recvBuf,
				   .count = count,
				   .op = op},
		      dataType, comm, stream);
}

HcclResult HcclReduce(void *sendBuf, void *recvBuf, uint64_t count, HcclDataType dataType,
		      HcclReduceOp op, uint32_t root, HcclComm comm, aclrtStream stream)
{
	return launch("HcclReduce",
		      (struct job){.run = reduce,
				   .send = sendBuf,
				   .receive = recvBuf,
				   .count = count,
				   .op = op,
				   .root = root},
		      dataType, comm, stream);
}

HcclResult HcclBroadcast(void *buf, uint64_t count, HcclDataType dataType, uint32_t root,
			 HcclComm comm, aclrtStream stream)
{
	return launch("HcclBroadcast",
		      (struct job){.run = broadcast,
				   .send = buf,
				   .receive = buf,
				   .count = count,
				   .root = root},
		      dataType, comm, stream);
}

HcclResult HcclReduceScatter(void *sendBuf, void *recvBuf, uint64_t recvCount,
			     HcclDataType dataType, HcclReduceOp op, HcclComm comm,
			     aclrtStream stream)
{
	return launch("HcclReduceScatter",
		      (struct job){.run = reduce_scatter,
				   .send = sendBuf,
				   .receive = recvBuf,
				   .count = recvCount,
				   .op = op},
		      dataType, comm, stream);
}

HcclResult HcclAllGather(void *sendBuf, void *recvBuf, uint64_t sendCount, HcclDataType dataType,
			 HcclComm comm, aclrtStream stream)
{
	return launch(
		"HcclAllGather",
		(struct job){
			.run = all_gather, .send = sendBuf, .receive = recvBuf, .count = sendCount},
		dataType, comm, stream);
}

HcclResult HcclScatter(void *sendBuf, void *recvBuf, uint64_t recvCount, HcclDataType dataType,
		       uint32_t root, HcclComm comm, aclrtStream stream)
{
	return launch("HcclScatter",
		      (struct job){.run = scatter,
				   .send = sendBuf,
				   .receive = recvBuf,
				   .count = recvCount,
				   .root = root},
		      dataType, comm, stream);
}

HcclResult HcclBarrier(HcclComm comm, aclrtStream stream)
{
	return launch("HcclBarrier", (struct job){.run = barrier}, HCCL_DATA_TYPE_INT8, comm,
		      stream);
}
