/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the Ascend driver's C interface that the simulated NPU offers. Names, values and layouts are those of the
 * real driver, so a program compiled against this header runs on either. Every function may be called from any thread.
 */
#ifndef ASCEND_HAL_H
#define ASCEND_HAL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tagDrvError {
	DRV_ERROR_NONE = 0,
	DRV_ERROR_NO_DEVICE = 1,
	DRV_ERROR_INVALID_DEVICE = 2,
	DRV_ERROR_INVALID_VALUE = 3,
	DRV_ERROR_INVALID_HANDLE = 4,
	DRV_ERROR_INVALID_MALLOC_TYPE = 5,
	DRV_ERROR_OUT_OF_MEMORY = 6,
	DRV_ERROR_INNER_ERR = 7,
	DRV_ERROR_PARA_ERROR = 8,
	DRV_ERROR_BUSY = 13,
	DRV_ERROR_NO_RESOURCES = 14,
	DRV_ERROR_NOT_SUPPORT = 0xfffe,
	DRV_ERROR_RESERVED = 0xffff,
} drvError_t;

/* The flag word of halMemAlloc(): device id, virtual type, physical type, page, alignment, advice, module id. */
#define MEM_DEVID_WIDTH 10
#define MEM_DEVID_MASK	((1ULL << MEM_DEVID_WIDTH) - 1)

#define MEM_VIRT_BIT	   10
#define MEM_VIRT_WIDTH	   4
#define MEM_SVM_VAL	   0ULL
#define MEM_DEV_VAL	   1ULL
#define MEM_HOST_VAL	   2ULL
#define MEM_DVPP_VAL	   3ULL
#define MEM_HOST_AGENT_VAL 4ULL
#define MEM_RESERVE_VAL	   5ULL
#define MEM_HOST_UVA_VAL   6ULL
#define MEM_UVM_VAL	   7ULL
#define MEM_SVM		   (MEM_SVM_VAL << MEM_VIRT_BIT)
#define MEM_DEV		   (MEM_DEV_VAL << MEM_VIRT_BIT)
#define MEM_HOST	   (MEM_HOST_VAL << MEM_VIRT_BIT)
#define MEM_DVPP	   (MEM_DVPP_VAL << MEM_VIRT_BIT)
#define MEM_HOST_AGENT	   (MEM_HOST_AGENT_VAL << MEM_VIRT_BIT)
#define MEM_RESERVE	   (MEM_RESERVE_VAL << MEM_VIRT_BIT)
#define MEM_HOST_UVA	   (MEM_HOST_UVA_VAL << MEM_VIRT_BIT)
#define MEM_UVM		   (MEM_UVM_VAL << MEM_VIRT_BIT)

#define MEM_PHY_BIT  14
#define MEM_TYPE_DDR (0ULL << MEM_PHY_BIT)
#define MEM_TYPE_HBM (1ULL << MEM_PHY_BIT)

/* Pages are 4 KiB, 2 MiB or 1 GiB; MEM_PAGE_HUGE and MEM_PAGE_GIANT exclude each other. */
#define MEM_PAGE_NORMAL	   (0ULL << 17)
#define MEM_PAGE_HUGE	   (1ULL << 17)
#define MEM_PAGE_GIANT	   (1ULL << 31)
#define MEM_CONTIGUOUS_PHY (1ULL << 19)

/* The address is a multiple of two to the power of this field, and always of the page size. */
#define MEM_ALIGN_BIT	 20
#define MEM_ALIGN_WIDTH	 5
#define MEM_SET_ALIGN(n) ((unsigned long long)(n) << MEM_ALIGN_BIT)

#define MEM_ADVISE_P2P	   (1ULL << 25)
#define MEM_ADVISE_4G	   (1ULL << 26)
#define MEM_ADVISE_TS	   (1ULL << 27)
#define MEM_ADVISE_BAR	   (1ULL << 28)
#define MEM_READONLY	   (1ULL << 29)
#define MEM_HOST_RW_DEV_RO (1ULL << 30)
#define MEM_DEV_CP_ONLY	   (1ULL << 32)

#define MEM_MODULE_ID_BIT 56

enum drv_mem_side {
	MEM_HOST_SIDE = 0,
	MEM_DEV_SIDE = 1,
	MEM_HOST_NUMA_SIDE = 2,
};

enum drv_mem_pg_type {
	MEM_NORMAL_PAGE_TYPE = 0,
	MEM_HUGE_PAGE_TYPE = 1,
	MEM_GIANT_PAGE_TYPE = 2,
};

enum drv_mem_type {
	MEM_HBM_TYPE = 0,
	MEM_DDR_TYPE = 1,
	MEM_P2P_HBM_TYPE = 2,
	MEM_P2P_DDR_TYPE = 3,
	MEM_TS_DDR_TYPE = 4,
};

/* What halMemCreate() is to create. 32 bytes. */
struct drv_mem_prop {
	uint32_t side;	    /* enum drv_mem_side */
	uint32_t devid;	    /* the device, or the NUMA node when side is MEM_HOST_NUMA_SIDE */
	uint32_t module_id; /* who asks; not interpreted */
	uint32_t pg_type;   /* enum drv_mem_pg_type */
	uint32_t mem_type;  /* enum drv_mem_type */
	uint64_t reserve;
};

typedef struct drv_mem_handle drv_mem_handle_t;

/* What halMemGetInfo() tells about: the device has no DDR, so its figures are 0. */
enum {
	MEM_INFO_TYPE_DDR_SIZE = 1,
	MEM_INFO_TYPE_HBM_SIZE = 2,
	MEM_INFO_TYPE_DDR_P2P_SIZE = 3,
	MEM_INFO_TYPE_HBM_P2P_SIZE = 4,
};

struct MemPhyInfo {
	unsigned long long total; /* bytes */
	unsigned long long free;
	unsigned long long
		huge_total; /* 0, as are the following: pages of all sizes come from one pool */
	unsigned long long huge_free;
	unsigned long long giant_total;
	unsigned long long giant_free;
};

struct MemInfo {
	struct MemPhyInfo phy_info;
};

/* For halGetDeviceInfo(). */
enum {
	MODULE_TYPE_SYSTEM = 0,
};

enum {
	INFO_TYPE_VERSION = 1,		/* chip id in bits 8 to 15: 5 is a 910B */
	INFO_TYPE_SYS_COUNT = 13,	/* the device's counter, now */
	INFO_TYPE_HOST_OSC_FREQUE = 24, /* kHz */
	INFO_TYPE_DEV_OSC_FREQUE = 25,	/* kHz, of the counter */
};

/* Profiling channels, results of their functions, and what a start wants. 32 bytes. */
#define CHANNEL_TSFW_L2		     47
#define CHANNEL_STARS_SOC_LOG_BUFFER 50
#define CHANNEL_NUM		     160

enum {
	PROF_OK = 0,
	PROF_ERROR = -1,
	PROF_STARTED_ALREADY = -3,
	PROF_STOPPED_ALREADY = -4,
};

struct prof_start_para {
	int channel_type;
	unsigned int sample_period;
	unsigned int real_time;
	void *user_data; /* for the STARS log: words of 1 to switch on, the first of them tasks */
	unsigned int user_data_size;
};

#pragma GCC visibility push(default)

/* How many devices there are, 1 to 32. */
drvError_t drvGetDevNum(uint32_t *num_dev);

/*
 * Takes `size` bytes, charged in whole pages, and stores their address in `*pp`. Codes: INVALID_VALUE for a NULL `pp`, a
 * zero size or both page bits, INVALID_MALLOC_TYPE for an unknown virtual type, NOT_SUPPORT for MEM_RESERVE,
 * INVALID_DEVICE, OUT_OF_MEMORY. `*pp` is untouched on failure.
 */
drvError_t halMemAlloc(void **pp, unsigned long long size, unsigned long long flag);

/* Gives back what halMemAlloc() gave. INVALID_VALUE for any other address, also for one that is free already. */
drvError_t halMemFree(void *pp);

/*
 * Takes physical memory without an address. `size` is a multiple of the page size of `prop` and `flag` is 0, otherwise
 * INVALID_VALUE; further INVALID_DEVICE, OUT_OF_MEMORY, and NO_RESOURCES when there are too many handles.
 */
drvError_t halMemCreate(drv_mem_handle_t **handle, size_t size, const struct drv_mem_prop *prop,
			uint64_t flag);

/* Drops one reference; the last one gives the memory back. INVALID_HANDLE for what is not a live handle. */
drvError_t halMemRelease(drv_mem_handle_t *handle);

/*
 * Addresses without memory, wherever the driver likes; at `addr` if that is given and free. The size is rounded up to a
 * multiple of 2 MiB. `align` is 0; `flag` is 0, or 1 for huge pages. The address is a multiple of 2 MiB, and of 1 GiB for as
 * much or more. To be freed when nothing is mapped there, otherwise BUSY.
 */
drvError_t halMemAddressReserve(void **ptr, size_t size, size_t align, void *addr, uint64_t flag);
drvError_t halMemAddressFree(void *ptr);

/*
 * Puts the memory of a handle at reserved addresses, all of it: `size` is its size, `offset` and `flag` are 0. One handle
 * may be at several places, where a kernel can do that (qemu-user cannot: NOT_SUPPORT). A mapping keeps the memory after
 * halMemRelease(). halMemUnmap() wants the address that halMemMap() got.
 */
drvError_t halMemMap(void *ptr, size_t size, size_t offset, drv_mem_handle_t *handle,
		     uint64_t flag);
drvError_t halMemUnmap(void *ptr);

/* Makes host memory known to a device, at the same address. INVALID_VALUE for what overlaps with, or is not, registered. */
drvError_t halHostRegister(void *srcPtr, uint64_t size, uint32_t flag, uint32_t devid,
			   void **dstPtr);
drvError_t halHostUnregister(void *srcPtr, uint32_t devid);

/* Free and total memory, as this process sees it. */
drvError_t halMemGetInfo(uint32_t device, unsigned int type, struct MemInfo *info);

/* Which interface the driver has: a number that grows. */
#define HAL_API_VERSION 0x072316
drvError_t halGetAPIVersion(int *ver);

/* NOT_SUPPORT for what is not listed above. */
drvError_t halGetDeviceInfo(uint32_t devId, int32_t moduleType, int32_t infoType, int64_t *value);

/*
 * Profiling channels: results are PROF_ codes. Reading returns the bytes taken, waits up to 5 ms for the first, and returns
 * 0 when none came. A stopped channel can be read until it is empty. Only CHANNEL_STARS_SOC_LOG_BUFFER ever has something.
 */
int prof_drv_start(unsigned int device_id, unsigned int channel_id,
		   struct prof_start_para *start_para);
int prof_stop(unsigned int device_id, unsigned int channel_id);
int prof_channel_read(unsigned int device_id, unsigned int channel_id, char *out_buf,
		      unsigned int buf_size);

/*
 * The functions behind the public names, which are thin wrappers and reach them through the dynamic linker. The old
 * driver (lib64-old) has no halMemCreateInner and halMemReleaseInner.
 */
drvError_t halMemAllocInner(void **pp, unsigned long long size, unsigned long long flag);
drvError_t halMemFreeInner(void *pp);
drvError_t halMemCreateInner(drv_mem_handle_t **handle, size_t size,
			     const struct drv_mem_prop *prop, uint64_t flag);
drvError_t halMemReleaseInner(drv_mem_handle_t *handle);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
