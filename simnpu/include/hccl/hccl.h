/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collective communication between the ranks of one machine: link with -lhccl. A rank is a process, or one of several of a
 * process, with a device; data goes through a file in /dev/shm, or in the directory that SIMNPU_SHARE names.
 *
 * Operations run on streams, as kernels of their name, in the order in which each rank calls them: all ranks of a communicator must
 * call the same ones in the same order. A rank that has died, or that does not come within HCCL_CONNECT_TIMEOUT (120 s) at the
 * first operation and HCCL_EXEC_TIMEOUT (1836 s) at later ones, ends the communicator: HcclGetCommAsyncError() says so, and what
 * was to be received is not.
 *
 * Like the real one it takes two buffers of device memory for each communicator, of HCCL_BUFFSIZE (200) MiB or as configured, as
 * module 3. They are not used.
 */
#ifndef HCCL_H
#define HCCL_H

#include "acl/acl_base.h"
#include "hccl_types.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* A new name for ranks to meet at. */
HcclResult HcclGetRootInfo(HcclRootInfo *rootInfo);

/* Joins the others. It does not wait for them: the first operation does. */
HcclResult HcclCommInitRootInfo(uint32_t nRanks, const HcclRootInfo *rootInfo, uint32_t rank,
				HcclComm *comm);
HcclResult HcclCommInitRootInfoConfig(uint32_t nRanks, const HcclRootInfo *rootInfo, uint32_t rank,
				      const HcclCommConfig *config, HcclComm *comm);

/* All ranks in this process, one for each device. */
HcclResult HcclCommInitAll(uint32_t ndev, int32_t *devices, HcclComm *comms);

/* Some of the ranks of another communicator; each calls it with its own place among them. */
HcclResult HcclCreateSubCommConfig(HcclComm *comm, uint32_t rankNum, uint32_t *rankIds,
				   uint64_t subCommId, uint32_t subCommRankId,
				   HcclCommConfig *config, HcclComm *subComm);
HcclResult HcclCommDestroy(HcclComm comm);

HcclResult HcclGetRankSize(HcclComm comm, uint32_t *rankSize);
HcclResult HcclGetRankId(HcclComm comm, uint32_t *rank);
/* `commName` has room for 128 bytes. */
HcclResult HcclGetCommName(HcclComm comm, char *commName);
HcclResult HcclGetCommAsyncError(HcclComm comm, HcclResult *asyncError);
const char *HcclGetErrorString(HcclResult code);

/* Results are the same in every run, whatever is set. */
HcclResult HcclSetConfig(HcclConfig config, HcclConfigValue configValue);
HcclResult HcclGetConfig(HcclConfig config, HcclConfigValue *configValue);
uint32_t HcclGetCommConfigCapability(void);

HcclResult HcclAllReduce(void *sendBuf, void *recvBuf, uint64_t count, HcclDataType dataType,
			 HcclReduceOp op, HcclComm comm, aclrtStream stream);
HcclResult HcclReduce(void *sendBuf, void *recvBuf, uint64_t count, HcclDataType dataType,
		      HcclReduceOp op, uint32_t root, HcclComm comm, aclrtStream stream);
HcclResult HcclBroadcast(void *buf, uint64_t count, HcclDataType dataType, uint32_t root,
			 HcclComm comm, aclrtStream stream);
HcclResult HcclReduceScatter(void *sendBuf, void *recvBuf, uint64_t recvCount,
			     HcclDataType dataType, HcclReduceOp op, HcclComm comm,
			     aclrtStream stream);
HcclResult HcclAllGather(void *sendBuf, void *recvBuf, uint64_t sendCount, HcclDataType dataType,
			 HcclComm comm, aclrtStream stream);
HcclResult HcclScatter(void *sendBuf, void *recvBuf, uint64_t recvCount, HcclDataType dataType,
		       uint32_t root, HcclComm comm, aclrtStream stream);
HcclResult HcclBarrier(HcclComm comm, aclrtStream stream);

/* Between two ranks: the same lengths on both sides, in the same order. Items of one batch may be in any order. */
HcclResult HcclSend(void *sendBuf, uint64_t count, HcclDataType dataType, uint32_t destRank,
		    HcclComm comm, aclrtStream stream);
HcclResult HcclRecv(void *recvBuf, uint64_t count, HcclDataType dataType, uint32_t srcRank,
		    HcclComm comm, aclrtStream stream);
HcclResult HcclBatchSendRecv(HcclSendRecvItem *sendRecvInfo, uint32_t itemNum, HcclComm comm,
			     aclrtStream stream);

/* Sends and receives of this thread between the two are one batch. Groups may be in groups. */
HcclResult HcclGroupStart(void);
HcclResult HcclGroupEnd(void);

/* Counts and places are uint64_t, in elements. */
HcclResult HcclAlltoAll(const void *sendBuf, uint64_t sendCount, HcclDataType sendType,
			const void *recvBuf, uint64_t recvCount, HcclDataType recvType,
			HcclComm comm, aclrtStream stream);
HcclResult HcclAlltoAllV(const void *sendBuf, const void *sendCounts, const void *sdispls,
			 HcclDataType sendType, const void *recvBuf, const void *recvCounts,
			 const void *rdispls, HcclDataType recvType, HcclComm comm,
			 aclrtStream stream);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
