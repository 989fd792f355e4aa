/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types of the collective communication library. Names, values and layouts are those of the real one.
 */
#ifndef HCCL_TYPES_H
#define HCCL_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
	HCCL_SUCCESS = 0,
	HCCL_E_PARA = 1,
	HCCL_E_PTR = 2,
	HCCL_E_MEMORY = 3,
	HCCL_E_INTERNAL = 4,
	HCCL_E_NOT_SUPPORT = 5,
	HCCL_E_NOT_FOUND = 6,
	HCCL_E_UNAVAIL = 7,
	HCCL_E_SYSCALL = 8,
	HCCL_E_TIMEOUT = 9,
	HCCL_E_OPEN_FILE_FAILURE = 10,
	HCCL_E_RUNTIME = 15,
	HCCL_E_REMOTE = 21,
	HCCL_E_OOM = 24,
} HcclResult;

typedef void *HcclComm;

typedef enum {
	HCCL_REDUCE_SUM = 0,
	HCCL_REDUCE_PROD = 1,
	HCCL_REDUCE_MAX = 2,
	HCCL_REDUCE_MIN = 3,
} HcclReduceOp;

typedef enum {
	HCCL_DATA_TYPE_INT8 = 0,
	HCCL_DATA_TYPE_INT16 = 1,
	HCCL_DATA_TYPE_INT32 = 2,
	HCCL_DATA_TYPE_FP16 = 3,
	HCCL_DATA_TYPE_FP32 = 4,
	HCCL_DATA_TYPE_INT64 = 5,
	HCCL_DATA_TYPE_UINT64 = 6,
	HCCL_DATA_TYPE_UINT8 = 7,
	HCCL_DATA_TYPE_UINT16 = 8,
	HCCL_DATA_TYPE_UINT32 = 9,
	HCCL_DATA_TYPE_FP64 = 10,
	HCCL_DATA_TYPE_BFP16 = 11,
} HcclDataType;

/* What a rank gives to all others, so that they find each other. */
#define HCCL_ROOT_INFO_BYTES 4108
typedef struct HcclRootInfoDef {
	char internal[HCCL_ROOT_INFO_BYTES];
} HcclRootInfo;

#define COMM_NAME_MAX_LENGTH	    128
#define HCCL_COMM_CONFIG_INFO_BYTES 24

/* The beginning of a configuration; what follows in newer versions is not interpreted. */
typedef struct HcclCommConfigDef {
	char reserved[HCCL_COMM_CONFIG_INFO_BYTES];
	uint32_t hcclBufferSize; /* MiB; UINT32_MAX: not set */
	uint32_t hcclDeterministic;
	char hcclCommName[COMM_NAME_MAX_LENGTH];
} HcclCommConfig;

typedef enum {
	HCCL_DETERMINISTIC = 0,
} HcclConfig;

typedef union HcclConfigValue {
	int32_t value;
} HcclConfigValue;

typedef enum {
	HCCL_SEND = 0,
	HCCL_RECV = 1,
} HcclSendRecvType;

typedef struct HcclSendRecvItemDef {
	HcclSendRecvType sendRecvType;
	void *buf;
	uint64_t count;
	HcclDataType dataType;
	uint32_t remoteRank;
} HcclSendRecvItem;

#endif
