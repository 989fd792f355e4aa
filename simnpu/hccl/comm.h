/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators, and how their operations get on streams.
 */
#ifndef SIMNPU_HCCL_COMM_H
#define SIMNPU_HCCL_COMM_H

#include "acl/acl_base.h"
#include "shared.h"

struct comm {
	struct membership members;
	char name[COMM_NAME_MAX_LENGTH]; /* that the program knows it by */
	char meeting[160];		 /* where its ranks meet */
	void *buffers[2];		 /* device memory, as a real one has it */
	_Atomic uint32_t users;		 /* the program, and operations on the way */
	_Atomic uint32_t failure;	 /* a HcclResult: what the last operation could not do */
};

/* What an operation is to do, copied for the stream. */
struct job {
	struct comm *comm;
	HcclResult (*run)(struct job *job);
	const void *send;
	void *receive;
	uint64_t count; /* elements: of a rank, as the function says */
	aclDataType type;
	HcclReduceOp op;
	uint32_t root;
	size_t item_count;
	struct transfer *items; /* for transfers between pairs; owned */
};

/* One direction between two ranks. */
struct transfer {
	bool sends;
	uint32_t other;
	unsigned char *data;
	size_t bytes;
	size_t done;
};

/* The communicator behind a handle, NULL for none. */
struct comm *comm_of(HcclComm handle);

/* Our type for one of theirs, ACL_DT_UNDEFINED for none. */
aclDataType comm_type(HcclDataType type);

/*
 * Puts a kernel of this name on the stream that does the job. Takes the items of the job over, also when it fails; `name` must
 * stay.
 */
HcclResult comm_launch(const char *name, const struct job *job, void *stream);

#endif
