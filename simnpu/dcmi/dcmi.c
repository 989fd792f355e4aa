/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libdcmi.so: answers from the machine's description and from what processes published (hal/published.h). It opens no device
 * and leaves nothing behind in the process that asks. The figures a real device measures (clock, temperature) are constants.
 */
#include "dcmi_interface_api.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hal/config.h"
#include "hal/published.h"

_Static_assert(sizeof(struct dcmi_hbm_info) == 32, "as in the real library");
_Static_assert(offsetof(struct dcmi_hbm_info, memory_size) == 0, "as in the real library");
_Static_assert(offsetof(struct dcmi_hbm_info, freq) == 8, "as in the real library");
_Static_assert(offsetof(struct dcmi_hbm_info, memory_usage) == 16, "as in the real library");
_Static_assert(offsetof(struct dcmi_hbm_info, temp) == 24, "as in the real library");
_Static_assert(offsetof(struct dcmi_hbm_info, bandwith_util_rate) == 28, "as in the real library");
_Static_assert(sizeof(struct dcmi_chip_info) == 100, "as in the real library");
_Static_assert(sizeof(struct dcmi_proc_mem_info) == 16, "as in the real library");
_Static_assert(offsetof(struct dcmi_proc_mem_info, proc_mem_usage) == 8, "as in the real library");

#define MIB_SHIFT 20

static _Atomic int is_ready;

static int card_count(void)
{
	const struct config *config = config_get();

	return (int)((config->device_count + config->card_devices - 1) / config->card_devices);
}

/* All cards are full but the last. */
static int device_count(int card)
{
	const struct config *config = config_get();
	int rest = (int)config->device_count - card * (int)config->card_devices;

	return rest < (int)config->card_devices ? rest : (int)config->card_devices;
}

/* What each function begins with. */
static int check(int card, const void *out)
{
	if (!atomic_load_explicit(&is_ready, memory_order_relaxed))
		return DCMI_ERR_CODE_INNER_ERR;
	if (!out || card < 0)
		return DCMI_ERR_CODE_INVALID_PARAMETER;
	return card < card_count() ? DCMI_OK : DCMI_ERR_CODE_DEVICE_NOT_EXIST;
}

/* The same for those that ask of one device, whose number goes to `*out_device`. */
static int check_device(int card, int device, const void *out, uint32_t *out_device)
{
	int error = check(card, out);

	if (error)
		return error;
	if (device < 0)
		return DCMI_ERR_CODE_INVALID_PARAMETER;
	if (device >= device_count(card))
		return DCMI_ERR_CODE_DEVICE_NOT_EXIST;
	*out_device = (uint32_t)card * config_get()->card_devices + (uint32_t)device;
	return DCMI_OK;
}

int dcmi_init(void)
{
	atomic_store_explicit(&is_ready, 1, memory_order_relaxed);
	return DCMI_OK;
}

int dcmi_get_card_list(int *card_num, int *card_list, int list_len)
{
	int error = check(0, card_num);
	int card;

	if (error)
		return error;
	if (!card_list || list_len <= 0)
		return DCMI_ERR_CODE_INVALID_PARAMETER;
	for (card = 0; card < card_count() && card < list_len; card++)
		card_list[card] = card;
	*card_num = card;
	return DCMI_OK;
}

int dcmi_get_device_num_in_card(int card_id, int *device_num)
{
	int error = check(card_id, device_num);

	if (!error)
		*device_num = device_count(card_id);
	return error;
}

int dcmi_get_device_logic_id(int *device_logic_id, int card_id, int device_id)
{
	uint32_t device;
	int error = check_device(card_id, device_id, device_logic_id, &device);

	if (!error)
		*device_logic_id = (int)device;
	return error;
}

struct sum {
	uint32_t device;
	uint64_t bytes;
};

static int add_process(int pid, const struct published_use *use, void *context)
{
	struct sum *sum = context;

	(void)pid;
	sum->bytes += use->bytes[sum->device];
	return 0;
}

int dcmi_get_device_chip_info(int card_id, int device_id, struct dcmi_chip_info *chip_info)
{
	static const char type[] = "Ascend";
	const char *name = getenv("SIMNPU_SOC");
	uint32_t device;
	int error = check_device(card_id, device_id, chip_info, &device);

	if (error)
		return error;
	if (!name || !*name)
		name = "Ascend910B1";
	if (strncmp(name, type, strlen(type)) == 0)
		name += strlen(type);
	*chip_info = (struct dcmi_chip_info){.aicore_cnt = 24};
	memcpy(chip_info->chip_type, type, sizeof(type));
	memcpy(chip_info->chip_name, name, strnlen(name, sizeof(chip_info->chip_name) - 1));
	memcpy(chip_info->chip_ver, "V1", sizeof("V1"));
	return DCMI_OK;
}

int dcmi_get_device_hbm_info(int card_id, int device_id, struct dcmi_hbm_info *hbm_info)
{
	uint64_t capacity = config_get()->hbm_bytes;
	struct sum sum = {0};
	int error = check_device(card_id, device_id, hbm_info, &sum.device);

	if (error)
		return error;
	published_visit(add_process, &sum);
	sum.bytes += config_get()->taken_bytes;
	if (sum.bytes > capacity)
		sum.bytes = capacity;
	*hbm_info = (struct dcmi_hbm_info){
		.memory_size = capacity >> MIB_SHIFT,
		.freq = 1600,
		.memory_usage = (sum.bytes + (1ULL << MIB_SHIFT) - 1) >> MIB_SHIFT,
		.temp = 45,
	};
	return DCMI_OK;
}

struct listing {
	uint32_t device;
	int count;
	struct dcmi_proc_mem_info *entries;
};

static int list_process(int pid, const struct published_use *use, void *context)
{
	struct listing *listing = context;

	if (use->devices & 1ULL << listing->device)
		listing->entries[listing->count++] = (struct dcmi_proc_mem_info){
			.proc_id = pid, .proc_mem_usage = use->bytes[listing->device]};
	return listing->count == DCMI_PROC_MAX;
}

int dcmi_get_device_resource_info(int card_id, int device_id, struct dcmi_proc_mem_info *proc_info,
				  int *proc_num)
{
	struct listing listing = {.entries = proc_info};
	int error = check_device(card_id, device_id, proc_info, &listing.device);

	if (error)
		return error;
	if (!proc_num)
		return DCMI_ERR_CODE_INVALID_PARAMETER;
	published_visit(list_process, &listing);
	*proc_num = listing.count;
	return DCMI_OK;
}

int dcmi_get_npu_proc_mem_info(int card_id, int device_id, struct dcmi_proc_mem_info *proc_info,
			       int *proc_num)
{
	return dcmi_get_device_resource_info(card_id, device_id, proc_info, proc_num);
}
