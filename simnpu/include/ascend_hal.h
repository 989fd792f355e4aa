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
