/* SPDX-License-Identifier: Apache-2.0 */
#include "comm.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "acl/acl.h"
#include "hal/device.h"
#include "hccl/hccl.h"
#include "runtime/rt.h"

enum {
	MODULE_HCCL = 3,
	BUFFER_MIB = 200,
};

#define MIB (1ULL << 20)

static _Atomic uint32_t last_meeting;
static _Atomic int32_t deterministic;

struct comm *comm_of(HcclComm handle)
{
	return handle;
}

aclDataType comm_type(HcclDataType type)
{
	static const aclDataType types[] = {
		[HCCL_DATA_TYPE_INT8] = ACL_INT8,     [HCCL_DATA_TYPE_INT16] = ACL_INT16,
		[HCCL_DATA_TYPE_INT32] = ACL_INT32,   [HCCL_DATA_TYPE_FP16] = ACL_FLOAT16,
		[HCCL_DATA_TYPE_FP32] = ACL_FLOAT,    [HCCL_DATA_TYPE_INT64] = ACL_INT64,
		[HCCL_DATA_TYPE_UINT64] = ACL_UINT64, [HCCL_DATA_TYPE_UINT8] = ACL_UINT8,
		[HCCL_DATA_TYPE_UINT16] = ACL_UINT16, [HCCL_DATA_TYPE_UINT32] = ACL_UINT32,
		[HCCL_DATA_TYPE_FP64] = ACL_DOUBLE,   [HCCL_DATA_TYPE_BFP16] = ACL_BF16,
	};

	return (size_t)type < sizeof(types) / sizeof(types[0]) ? types[type] : ACL_DT_UNDEFINED;
}

HcclResult HcclGetRootInfo(HcclRootInfo *rootInfo)
{
	if (!rootInfo)
		return HCCL_E_PTR;
	memset(rootInfo, 0, sizeof(*rootInfo));
	(void)snprintf(rootInfo->internal, sizeof(rootInfo->internal), "simnpu-hccl-%d-%llx-%u",
		       getpid(), (unsigned long long)halSimTime(), ++last_meeting);
	return HCCL_SUCCESS;
}

static void drop(struct comm *comm)
{
	if (atomic_fetch_sub(&comm->users, 1) > 1)
		return;
	shared_leave(&comm->members);
	free(comm);
}

/* Without them there is less memory on the device than with the real library; with them, they have an owner. */
static HcclResult take_buffers(struct comm *comm, const HcclCommConfig *config)
{
	const char *set = getenv("HCCL_BUFFSIZE");
	unsigned long mib = set ? strtoul(set, NULL, 10) : 0;
	unsigned n;

	if (config && config->hcclBufferSize && config->hcclBufferSize != UINT32_MAX)
		mib = config->hcclBufferSize;
	if (!mib)
		mib = BUFFER_MIB;
	for (n = 0; n < 2; n++) {
		if (rtMalloc(&comm->buffers[n], mib * MIB,
			     RT_MEMORY_HBM | RT_MEMORY_POLICY_HUGE_PAGE_FIRST, MODULE_HCCL))
			return HCCL_E_OOM;
	}
	return HCCL_SUCCESS;
}

static void give_buffers(struct comm *comm)
{
	unsigned n;

	for (n = 0; n < 2; n++) {
		if (comm->buffers[n])
			(void)rtFree(comm->buffers[n]);
		comm->buffers[n] = NULL;
	}
}

static HcclResult join(const char *meeting, uint32_t ranks, uint32_t rank,
		       const HcclCommConfig *config, HcclComm *out)
{
	struct comm *comm;
	HcclResult result;

	if (!out)
		return HCCL_E_PTR;
	if (ranks == 0 || ranks > RANKS_MAX || rank >= ranks || !*meeting ||
	    strlen(meeting) >= sizeof(comm->meeting))
		return HCCL_E_PARA;
	comm = calloc(1, sizeof(*comm));
	if (!comm)
		return HCCL_E_MEMORY;
	comm->users = 1;
	(void)strcpy(comm->meeting, meeting);
	(void)snprintf(comm->name, sizeof(comm->name), "%.127s",
		       config && config->hcclCommName[0] ? config->hcclCommName : meeting);
	result = shared_join(&comm->members, meeting, rank, ranks);
	if (!result)
		result = take_buffers(comm, config);
	if (result) {
		give_buffers(comm);
		drop(comm);
		return result;
	}
	*out = comm;
	return HCCL_SUCCESS;
}

HcclResult HcclCommInitRootInfo(uint32_t nRanks, const HcclRootInfo *rootInfo, uint32_t rank,
				HcclComm *comm)
{
	return HcclCommInitRootInfoConfig(nRanks, rootInfo, rank, NULL, comm);
}

HcclResult HcclCommInitRootInfoConfig(uint32_t nRanks, const HcclRootInfo *rootInfo, uint32_t rank,
				      const HcclCommConfig *config, HcclComm *comm)
{
	const char *meeting;

	if (!rootInfo)
		return HCCL_E_PTR;
	meeting = rootInfo->internal;
	/* It becomes the name of a file. */
	if (!memchr(meeting, '\0', sizeof(rootInfo->internal)) || strchr(meeting, '/'))
		return HCCL_E_PARA;
	return join(meeting, nRanks, rank, config, comm);
}

HcclResult HcclCommInitAll(uint32_t ndev, int32_t *devices, HcclComm *comms)
{
	HcclResult result = HCCL_SUCCESS;
	HcclRootInfo root;
	int32_t before;
	bool had_device;
	uint32_t n;

	if (!devices || !comms)
		return HCCL_E_PTR;
	(void)HcclGetRootInfo(&root);
	had_device = rtGetDevice(&before) == ACL_SUCCESS;
	for (n = 0; n < ndev && !result; n++) {
		result = rtSetDevice(devices[n]) ? HCCL_E_PARA
						 : HcclCommInitRootInfo(ndev, &root, n, &comms[n]);
		if (result) {
			while (n-- > 0)
				(void)HcclCommDestroy(comms[n]);
			break;
		}
	}
	if (had_device)
		(void)rtSetDevice(before);
	return result;
}

HcclResult HcclCreateSubCommConfig(HcclComm *comm, uint32_t rankNum, uint32_t *rankIds,
				   uint64_t subCommId, uint32_t subCommRankId,
				   HcclCommConfig *config, HcclComm *subComm)
{
	struct comm *whole;
	char meeting[160];

	if (!comm || !rankIds)
		return HCCL_E_PTR;
	whole = comm_of(*comm);
	if (!whole)
		return HCCL_E_PARA;
	(void)snprintf(meeting, sizeof(meeting), "%.120s-%llx", whole->meeting,
		       (unsigned long long)subCommId);
	return join(meeting, rankNum, subCommRankId, config, subComm);
}

HcclResult HcclCommDestroy(HcclComm handle)
{
	struct comm *comm = comm_of(handle);

	if (!comm)
		return HCCL_E_PARA;
	give_buffers(comm);
	drop(comm);
	return HCCL_SUCCESS;
}

HcclResult HcclGetRankSize(HcclComm comm, uint32_t *rankSize)
{
	if (!comm || !rankSize)
		return HCCL_E_PTR;
	*rankSize = comm_of(comm)->members.ranks;
	return HCCL_SUCCESS;
}

HcclResult HcclGetRankId(HcclComm comm, uint32_t *rank)
{
	if (!comm || !rank)
		return HCCL_E_PTR;
	*rank = comm_of(comm)->members.rank;
	return HCCL_SUCCESS;
}

HcclResult HcclGetCommName(HcclComm comm, char *commName)
{
	if (!comm || !commName)
		return HCCL_E_PTR;
	(void)strcpy(commName, comm_of(comm)->name);
	return HCCL_SUCCESS;
}

HcclResult HcclGetCommAsyncError(HcclComm comm, HcclResult *asyncError)
{
	if (!comm || !asyncError)
		return HCCL_E_PTR;
	*asyncError = (HcclResult)atomic_load(&comm_of(comm)->failure);
	return HCCL_SUCCESS;
}

const char *HcclGetErrorString(HcclResult code)
{
	switch (code) {
	case HCCL_SUCCESS:
		return "no error";
	case HCCL_E_PARA:
		return "an argument is not valid";
	case HCCL_E_PTR:
		return "an argument is NULL";
	case HCCL_E_TIMEOUT:
		return "a rank did not come in time";
	case HCCL_E_REMOTE:
		return "a rank has died or given up";
	case HCCL_E_OOM:
		return "the device has no memory";
	case HCCL_E_OPEN_FILE_FAILURE:
		return "the file in which ranks meet cannot be opened";
	default:
		return "an error of the simulated library";
	}
}

HcclResult HcclSetConfig(HcclConfig config, HcclConfigValue configValue)
{
	if (config != HCCL_DETERMINISTIC)
		return HCCL_E_PARA;
	deterministic = configValue.value;
	return HCCL_SUCCESS;
}

HcclResult HcclGetConfig(HcclConfig config, HcclConfigValue *configValue)
{
	if (config != HCCL_DETERMINISTIC || !configValue)
		return HCCL_E_PARA;
	configValue->value = deterministic;
	return HCCL_SUCCESS;
}

uint32_t HcclGetCommConfigCapability(void)
{
	/* Size of buffers, determinism, name. */
	return 3;
}

static void run(void *args, size_t args_size, uint32_t block_dim)
{
	struct job job;
	HcclResult result;

	(void)block_dim;
	memcpy(&job, args, args_size);
	result = (HcclResult)atomic_load(&job.comm->failure);
	if (!result)
		result = job.run(&job);
	if (result && !atomic_exchange(&job.comm->failure, (uint32_t)result))
		(void)fprintf(stderr, "simnpu: rank %u of %s: %s\n", job.comm->members.rank,
			      job.comm->name, HcclGetErrorString(result));
}

static void release(void *args, size_t args_size)
{
	struct job job;

	memcpy(&job, args, args_size);
	free(job.items);
	drop(job.comm);
}

HcclResult comm_launch(const char *name, const struct job *job, void *stream)
{
	struct job copy = *job;
	rtArgsEx_t args = {.args = &copy, .argsSize = sizeof(copy)};
	void *kernel;

	(void)atomic_fetch_add(&job->comm->users, 1);
	if (rtSimRegisterKernel(name, run, release, &kernel) ||
	    rtKernelLaunchWithHandleV2(kernel, 0, 1, &args, NULL, stream, NULL)) {
		release(&copy, sizeof(copy));
		return HCCL_E_RUNTIME;
	}
	return HCCL_SUCCESS;
}
