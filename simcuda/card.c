/* SPDX-License-Identifier: Apache-2.0 */
/* The card: which one it is, and what a program can ask about it. */
#include "sim.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CARD(word, name, major, minor, sms, l2, threads, shared, block, mib, context)              \
	{word, name, major, minor, sms, l2, threads, shared, block, mib, context},
static const struct sim_card cards[] = {
#include "devices.def"
};
#undef CARD

/* Members since CUDA 13, and those until CUDA 12. */
#define HAS(type, name, count) type name[count];
#define HAD(type, name, count)
struct properties {
#include "properties.def"
};
#undef HAD
#define HAD HAS
struct old_properties {
#include "properties.def"
};
#undef HAS
#undef HAD

#define CARD_DEFAULT "h100-80g" /* what cuda:SIZE is like */

static const struct sim_card *chosen;
static uint64_t bytes;
static int version, cudnn_version;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const struct sim_card *find(const char *word)
{
	size_t i;

	for (i = 0; i < sizeof(cards) / sizeof(*cards); i++) {
		if (strcmp(cards[i].word, word) == 0)
			return &cards[i];
	}
	return NULL;
}

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text != NULL && isdigit((unsigned char)text[0]) ? strtoull(text, NULL, 10)
							       : otherwise;
}

static void choose(void)
{
	const char *word = getenv("SIMCUDA_DEVICE");

	chosen = word == NULL ? NULL : find(word);
	if (chosen == NULL)
		chosen = find(CARD_DEFAULT);
	bytes = number("SIMCUDA_BYTES", chosen->mib << 20);
	version = (int)number("SIMCUDA_VERSION", 13000);
	cudnn_version = (int)number("SIMCUDA_CUDNN", 91900);
}

const struct sim_card *sim_card(void)
{
	(void)pthread_once(&once, choose);
	return chosen;
}

uint64_t sim_card_bytes(void)
{
	(void)sim_card();
	return bytes;
}

int sim_version(void)
{
	(void)sim_card();
	return version;
}

int sim_cudnn_version(void)
{
	(void)sim_card();
	return cudnn_version;
}

/* ---- the runtime's questions ---- */

SIM_API int cudaGetDeviceCount(int *out);
SIM_API int cudaGetDevice(int *out);
SIM_API int cudaSetDevice(int device);
SIM_API int cudaDriverGetVersion(int *out);
SIM_API int cudaRuntimeGetVersion(int *out);
SIM_API int cudaDeviceGetPCIBusId(char *out, int length, int device);
SIM_API int cudaDeviceCanAccessPeer(int *out, int device, int peer);
SIM_API int cudaGetDeviceProperties(void *out, int device);
SIM_API int cudaGetDeviceProperties_v2(void *out, int device);
SIM_API int cudaDeviceGetAttribute(int *out, int attribute, int device);
SIM_API int cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
SIM_API int cudaDeviceSynchronize(void);
SIM_API int cudaMemGetInfo(size_t *out_free, size_t *out_total);
SIM_API int cuInit(unsigned int flags);
SIM_API int cuDriverGetVersion(int *out);
SIM_API int cuDeviceGetCount(int *out);
SIM_API int cuDeviceGet(int *out, int ordinal);
SIM_API int cuDeviceGetAttribute(int *out, int attribute, int device);
SIM_API int cuDeviceGetName(char *out, int length, int device);
SIM_API int cuDeviceTotalMem_v2(size_t *out, int device);
SIM_API int cuMemGetInfo_v2(size_t *out_free, size_t *out_total);

int cudaGetDeviceCount(int *out)
{
	*out = 1;
	return SIM_OK;
}

int cudaGetDevice(int *out)
{
	*out = 0;
	return SIM_OK;
}

int cudaSetDevice(int device)
{
	return device == 0 ? SIM_OK : sim_error(SIM_INVALID_DEVICE);
}

int cudaDriverGetVersion(int *out)
{
	*out = sim_version();
	return SIM_OK;
}

int cudaRuntimeGetVersion(int *out)
{
	*out = sim_version();
	return SIM_OK;
}

int cudaDeviceGetPCIBusId(char *out, int length, int device)
{
	if (device != 0 || length < 13)
		return sim_error(SIM_INVALID_VALUE);
	(void)snprintf(out, (size_t)length, "0000:01:00.0");
	return SIM_OK;
}

int cudaDeviceCanAccessPeer(int *out, int device, int peer)
{
	(void)device;
	(void)peer;
	*out = 0;
	return SIM_OK;
}

/* Both kinds of struct have these members. */
#define FILL(p)                                                                                    \
	do {                                                                                       \
		const struct sim_card *card = sim_card();                                          \
		memset((p), 0, sizeof(*(p)));                                                      \
		(void)snprintf((p)->name, sizeof((p)->name), "%s", card->name);                    \
		memset((p)->uuid, 0x5c, sizeof((p)->uuid));                                        \
		(p)->totalGlobalMem[0] = sim_card_bytes();                                         \
		(p)->sharedMemPerBlock[0] = 48 << 10;                                              \
		(p)->regsPerBlock[0] = (p)->regsPerMultiprocessor[0] = 65536;                      \
		(p)->warpSize[0] = 32;                                                             \
		(p)->memPitch[0] = 2147483647;                                                     \
		(p)->maxThreadsPerBlock[0] = 1024;                                                 \
		(p)->maxThreadsDim[0] = (p)->maxThreadsDim[1] = 1024;                              \
		(p)->maxThreadsDim[2] = 64;                                                        \
		(p)->maxGridSize[0] = 2147483647;                                                  \
		(p)->maxGridSize[1] = (p)->maxGridSize[2] = 65535;                                 \
		(p)->totalConstMem[0] = 65536;                                                     \
		(p)->major[0] = card->major;                                                       \
		(p)->minor[0] = card->minor;                                                       \
		(p)->textureAlignment[0] = 512;                                                    \
		(p)->texturePitchAlignment[0] = 32;                                                \
		(p)->multiProcessorCount[0] = card->sms;                                           \
		(p)->canMapHostMemory[0] = 1;                                                      \
		(p)->surfaceAlignment[0] = 512;                                                    \
		(p)->concurrentKernels[0] = 1;                                                     \
		(p)->pciBusID[0] = 1;                                                              \
		(p)->asyncEngineCount[0] = 3;                                                      \
		(p)->unifiedAddressing[0] = 1;                                                     \
		(p)->memoryBusWidth[0] = 5120;                                                     \
		(p)->l2CacheSize[0] = card->l2_kib << 10;                                          \
		(p)->maxThreadsPerMultiProcessor[0] = card->sm_threads;                            \
		(p)->streamPrioritiesSupported[0] = 1;                                             \
		(p)->globalL1CacheSupported[0] = (p)->localL1CacheSupported[0] = 1;                \
		(p)->sharedMemPerMultiprocessor[0] = (size_t)card->sm_shared << 10;                \
		(p)->managedMemory[0] = 1;                                                         \
		(p)->computePreemptionSupported[0] = 1;                                            \
		(p)->cooperativeLaunch[0] = 1;                                                     \
		(p)->sharedMemPerBlockOptin[0] = (size_t)card->block_shared << 10;                 \
		(p)->maxBlocksPerMultiProcessor[0] =                                               \
			card->major == 7 && card->minor == 5 ? 16 : 32;                            \
		(p)->reservedSharedMemPerBlock[0] = 1024;                                          \
	} while (0)

int cudaGetDeviceProperties_v2(void *out, int device)
{
	struct old_properties properties;

	if (device != 0)
		return sim_error(SIM_INVALID_DEVICE);
	FILL(&properties);
	properties.clockRate[0] = 1700000;
	properties.memoryClockRate[0] = 2600000;
	memcpy(out, &properties, sizeof(properties));
	return SIM_OK;
}

int cudaGetDeviceProperties(void *out, int device)
{
	struct properties properties;

	if (sim_version() < 13000)
		return cudaGetDeviceProperties_v2(out, device);
	if (device != 0)
		return sim_error(SIM_INVALID_DEVICE);
	FILL(&properties);
	memcpy(out, &properties, sizeof(properties));
	return SIM_OK;
}

/* Numbers of cudaDeviceAttr and CUdevice_attribute, which are the same. */
int cudaDeviceGetAttribute(int *out, int attribute, int device)
{
	const struct sim_card *card = sim_card();
	char what[64];

	if (device != 0)
		return sim_error(SIM_INVALID_DEVICE);
	switch (attribute) {
	case 1: /* threads of a block */
	case 2:
	case 3:
		*out = 1024;
		break;
	case 4:
		*out = 64;
		break;
	case 5:
		*out = 2147483647;
		break;
	case 6:
	case 7:
		*out = 65535;
		break;
	case 8: /* shared memory of a block */
		*out = 48 << 10;
		break;
	case 9:
		*out = 65536;
		break;
	case 10:
		*out = 32;
		break;
	case 11:
		*out = 2147483647;
		break;
	case 12:
	case 82:
		*out = 65536;
		break;
	case 13:
		*out = 1700000;
		break;
	case 14: /* alignment of textures */
		*out = 512;
		break;
	case 16:
		*out = card->sms;
		break;
	case 36:
		*out = 2600000;
		break;
	case 37:
		*out = 5120;
		break;
	case 38:
		*out = card->l2_kib << 10;
		break;
	case 39:
		*out = card->sm_threads;
		break;
	case 40:
		*out = 3;
		break;
	case 75:
		*out = card->major;
		break;
	case 76:
		*out = card->minor;
		break;
	case 81:
		*out = card->sm_shared << 10;
		break;
	case 97:
		*out = card->block_shared << 10;
		break;
	case 106: /* blocks of a multiprocessor */
		*out = card->major == 7 && card->minor == 5 ? 16 : 32;
		break;
	case 111: /* reserved shared memory */
		*out = 1024;
		break;
	case 19: /* can map host memory */
	case 31: /* kernels at the same time */
	case 33: /* PCI bus */
	case 41: /* unified addresses */
	case 78: /* priorities of streams */
	case 79:
	case 80:
	case 83:  /* managed memory */
	case 90:  /* preemption */
	case 95:  /* cooperative launches */
	case 99:  /* registering host memory */
	case 102: /* management of virtual memory */
	case 103: /* handles as descriptors */
		*out = 1;
		break;
	case 15:
	case 17:
	case 18:
	case 20:
	case 32:
	case 34:
	case 35:
	case 50:
	case 84:
	case 86:
	case 88:
	case 89:
	case 91:
	case 92:
	case 93:
	case 94:
	case 96:
	case 98:
	case 100:
	case 101:
	case 104:
	case 105:
	case 108: /* persisting cache */
	case 110:
	case 115: /* pools of memory in the driver: cudaMallocAsync is not simulated */
	case 116: /* GPUDirect RDMA */
	case 117:
	case 119:
	case 128: /* handles of a fabric */
	case 132: /* multicast */
	case 134:
		*out = 0;
		break;
	default:
		(void)snprintf(what, sizeof(what), "attribute %d of the card is not simulated",
			       attribute);
		return sim_error(sim_fail(what));
	}
	return SIM_OK;
}

int cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	if (least != NULL)
		*least = 0;
	if (greatest != NULL)
		*greatest = -5;
	return SIM_OK;
}

int cudaDeviceSynchronize(void)
{
	return SIM_OK;
}

int cudaMemGetInfo(size_t *out_free, size_t *out_total)
{
	*out_free = sim_free_bytes();
	*out_total = sim_card_bytes();
	return SIM_OK;
}

/* ---- the same of the driver ---- */

int cuInit(unsigned int flags)
{
	(void)flags;
	return SIM_OK;
}

int cuDriverGetVersion(int *out)
{
	return cudaDriverGetVersion(out);
}

int cuDeviceGetCount(int *out)
{
	return cudaGetDeviceCount(out);
}

int cuDeviceGet(int *out, int ordinal)
{
	*out = ordinal;
	return ordinal == 0 ? SIM_OK : SIM_INVALID_DEVICE;
}

int cuDeviceGetAttribute(int *out, int attribute, int device)
{
	return cudaDeviceGetAttribute(out, attribute, device);
}

int cuDeviceGetName(char *out, int length, int device)
{
	(void)snprintf(out, (size_t)length, "%s", sim_card()->name);
	return device == 0 ? SIM_OK : SIM_INVALID_DEVICE;
}

int cuDeviceTotalMem_v2(size_t *out, int device)
{
	*out = sim_card_bytes();
	return device == 0 ? SIM_OK : SIM_INVALID_DEVICE;
}

int cuMemGetInfo_v2(size_t *out_free, size_t *out_total)
{
	return cudaMemGetInfo(out_free, out_total);
}
