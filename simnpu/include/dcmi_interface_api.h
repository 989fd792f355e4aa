/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the device management library that tells who uses how much memory. Names, values and layouts are those of the
 * real one. A card carries one or more devices; both are numbered from 0. Every function may be called from any thread, and
 * returns DCMI_OK or one of the codes below.
 */
#ifndef DCMI_INTERFACE_API_H
#define DCMI_INTERFACE_API_H

#ifdef __cplusplus
extern "C" {
#endif

#define DCMI_OK				0
#define DCMI_ERR_CODE_INVALID_PARAMETER (-8001)
#define DCMI_ERR_CODE_INNER_ERR		(-8005)
#define DCMI_ERR_CODE_DEVICE_NOT_EXIST	(-8008)

/* 32 bytes. */
struct dcmi_hbm_info {
	unsigned long long memory_size;	 /* MiB */
	unsigned int freq;		 /* MHz */
	unsigned long long memory_usage; /* MiB */
	int temp;			 /* degrees Celsius */
	unsigned int bandwith_util_rate; /* percent */
};

/* 16 bytes. */
struct dcmi_proc_mem_info {
	int proc_id;
	unsigned long proc_mem_usage; /* bytes */
};

/* 100 bytes. */
struct dcmi_chip_info {
	unsigned char chip_type[32]; /* "Ascend" */
	unsigned char chip_name[32]; /* "910B1" */
	unsigned char chip_ver[32];
	unsigned int aicore_cnt;
};

/* The most processes that are told of one device. */
#define DCMI_PROC_MAX 64

#pragma GCC visibility push(default)

/* Comes first; may be repeated. The others fail with INNER_ERR before it. */
int dcmi_init(void);

/* How many cards there are, and the numbers of the first `list_len` of them. */
int dcmi_get_card_list(int *card_num, int *card_list, int list_len);

int dcmi_get_device_num_in_card(int card_id, int *device_num);

/* The number by which the driver and the runtime know the device. */
int dcmi_get_device_logic_id(int *device_logic_id, int card_id, int device_id);

/* The chip of SIMNPU_SOC, or "910B1". */
int dcmi_get_device_chip_info(int card_id, int device_id, struct dcmi_chip_info *chip_info);

/* What all processes together use, rounded up, and never more than there is. */
int dcmi_get_device_hbm_info(int card_id, int device_id, struct dcmi_hbm_info *hbm_info);

/* Each process that opened the device, as far as DCMI_PROC_MAX entries go. */
int dcmi_get_device_resource_info(int card_id, int device_id, struct dcmi_proc_mem_info *proc_info,
				  int *proc_num);

/* The same under the name that is not in the real header, but in the library. */
int dcmi_get_npu_proc_mem_info(int card_id, int device_id, struct dcmi_proc_mem_info *proc_info,
			       int *proc_num);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
