/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures of Ascend's driver, by libdcmi.so.
 */
#include <string.h>

#include "collector/sampler/source.h"

#define CARDS_MAX     32
#define CARD_DEVICES  16
#define PROCESSES_MAX 64
#define MIB	      (UINT64_C(1) << 20)

struct hbm_info {
	uint64_t size_mib;
	uint32_t frequency;
	uint64_t used_mib;
	int temperature;
	uint32_t bandwidth;
};

struct process_info {
	int pid;
	unsigned long bytes;
};

struct chip_info {
	char type[32], name[32], version[32]; /* "Ascend", "910B3", "V1" */
	unsigned int cores;
};

_Static_assert(sizeof(struct hbm_info) == 32 && sizeof(struct process_info) == 16,
	       "the driver's layouts");

static struct {
	int (*init)(void);
	int (*cards)(int *count, int *list, int room);
	int (*devices)(int card, int *count);
	int (*logical)(int *number, int card, int device);
	int (*chip)(int card, int device, struct chip_info *out);
	int (*hbm)(int card, int device, struct hbm_info *out);
	int (*processes)(int card, int device, struct process_info *out, int *count);
} dcmi;

static int cards[CARDS_MAX], card_count;

static bool open_library(void)
{
	void *library = dlopen("libdcmi.so", RTLD_NOW | RTLD_LOCAL);

	if (library == NULL || !sampler_find(library, "dcmi_init", &dcmi.init) ||
	    !sampler_find(library, "dcmi_get_card_list", &dcmi.cards) ||
	    !sampler_find(library, "dcmi_get_device_num_in_card", &dcmi.devices) ||
	    !sampler_find(library, "dcmi_get_device_logic_id", &dcmi.logical) ||
	    !sampler_find(library, "dcmi_get_device_hbm_info", &dcmi.hbm))
		return false;
	(void)sampler_find(library, "dcmi_get_device_chip_info", &dcmi.chip);
	/* The public name is newer; both have one signature. */
	if (!sampler_find(library, "dcmi_get_device_resource_info", &dcmi.processes))
		(void)sampler_find(library, "dcmi_get_npu_proc_mem_info", &dcmi.processes);
	return dcmi.init() == 0 && dcmi.cards(&card_count, cards, CARDS_MAX) == 0;
}

/* "Ascend 910B3"; nothing if the library does not say it. */
static void ask_name(int card, int device, char *out)
{
	struct chip_info chip = {.cores = 0};
	size_t type, name;

	if (dcmi.chip == NULL || dcmi.chip(card, device, &chip) != 0)
		return;
	type = strnlen(chip.type, sizeof(chip.type));
	name = strnlen(chip.name, sizeof(chip.name));
	/* Some have the type in their name. */
	if (memmem(chip.name, name, chip.type, type) != NULL)
		type = 0;
	if (name == 0 || type + 1 + name > SAMPLER_NAME_BYTES)
		return;
	memcpy(out, chip.type, type);
	if (type > 0)
		out[type++] = ' ';
	memcpy(out + type, chip.name, name);
}

/* What a device is does not change: it is asked for once. */
static const char *name_of(int card, int device)
{
	static struct {
		bool asked;
		char name[SAMPLER_NAME_BYTES];
	} known[CARDS_MAX][CARD_DEVICES];
	int i;

	for (i = 0; cards[i] != card; i++)
		;
	if (!known[i][device].asked)
		ask_name(card, device, known[i][device].name);
	known[i][device].asked = true;
	return known[i][device].name;
}

static void sample_device(int card, int device)
{
	struct sampler_record record = {.vendor = VENDOR_ASCEND};
	struct process_info processes[PROCESSES_MAX];
	int number = -1, count = PROCESSES_MAX, i;
	struct hbm_info hbm;
	bool listed;

	if (dcmi.logical(&number, card, device) != 0 || number < 0)
		return;
	memset(processes, 0, sizeof(processes));
	listed = dcmi.processes != NULL && dcmi.processes(card, device, processes, &count) == 0;
	for (i = 0; listed && i < count && i < PROCESSES_MAX; i++)
		sampler_send(&(struct sampler_record){.vendor = VENDOR_ASCEND,
						      .device = (uint32_t)number,
						      .pid = (uint32_t)processes[i].pid,
						      .bytes = processes[i].bytes});
	memset(&hbm, 0, sizeof(hbm));
	if (dcmi.hbm(card, device, &hbm) != 0)
		return;
	record.device = (uint32_t)number;
	record.bytes = hbm.used_mib * MIB;
	record.total_bytes = hbm.size_mib * MIB;
	record.listed = listed;
	memcpy(record.name, name_of(card, device), sizeof(record.name));
	sampler_send(&record);
}

static void sample(bool asked)
{
	int i, d;

	(void)asked;
	for (i = 0; i < card_count && i < CARDS_MAX; i++) {
		int devices = 0;

		if (dcmi.devices(cards[i], &devices) != 0)
			continue;
		for (d = 0; d < devices && d < CARD_DEVICES; d++)
			sample_device(cards[i], d);
	}
}

const struct sampler_source sampler_dcmi = {.open = open_library, .sample = sample};
