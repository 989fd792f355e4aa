/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's own usage figures (libdcmi.so), asked for outside the traced program. The command is static and cannot open
 * libraries, and a program built here would need this machine's glibc; so this is a library at our glibc floor that the engine
 * preloads into a program that every machine has (/bin/true). Its constructor does the work and never lets the program begin.
 *
 * Every 100 ms, and when the standard input says so, one struct sampler_record per device, and one per process on it, goes to the
 * descriptor that the variable names. It ends when that is closed.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "collector/sys.h"
#include "trace/sampler.h"

#define CARDS_MAX     32
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

_Static_assert(sizeof(struct hbm_info) == 32 && sizeof(struct process_info) == 16,
	       "the driver's layouts");

static struct {
	int (*init)(void);
	int (*cards)(int *count, int *list, int room);
	int (*devices)(int card, int *count);
	int (*logical)(int *number, int card, int device);
	int (*hbm)(int card, int device, struct hbm_info *out);
	int (*processes)(int card, int device, struct process_info *out, int *count);
} dcmi;

static bool find(void *library, const char *name, void *out)
{
	void *function = dlsym(library, name);

	memcpy(out, &function, sizeof(function));
	return function != NULL;
}

static bool dcmi_open(void)
{
	void *library = dlopen("libdcmi.so", RTLD_NOW | RTLD_LOCAL);

	if (library == NULL || !find(library, "dcmi_init", &dcmi.init) ||
	    !find(library, "dcmi_get_card_list", &dcmi.cards) ||
	    !find(library, "dcmi_get_device_num_in_card", &dcmi.devices) ||
	    !find(library, "dcmi_get_device_logic_id", &dcmi.logical) ||
	    !find(library, "dcmi_get_device_hbm_info", &dcmi.hbm))
		return false;
	/* The public name is newer; both have one signature. */
	if (!find(library, "dcmi_get_device_resource_info", &dcmi.processes))
		(void)find(library, "dcmi_get_npu_proc_mem_info", &dcmi.processes);
	return dcmi.init() == 0;
}

static void send(int fd, uint32_t device, uint32_t pid, uint64_t bytes, uint64_t total_bytes)
{
	struct sampler_record record = {
		.device = device, .pid = pid, .bytes = bytes, .total_bytes = total_bytes};

	/* Smaller than a pipe's atomic size, so it comes whole or not at all. */
	if (write(fd, &record, sizeof(record)) != (ssize_t)sizeof(record) && errno != EAGAIN)
		_exit(0);
}

static void sample_device(int fd, int card, int device)
{
	struct process_info processes[PROCESSES_MAX];
	int number = -1, count = PROCESSES_MAX, i;
	struct hbm_info hbm;

	if (dcmi.logical(&number, card, device) != 0 || number < 0)
		return;
	memset(&hbm, 0, sizeof(hbm));
	if (dcmi.hbm(card, device, &hbm) == 0)
		send(fd, (uint32_t)number, 0, hbm.used_mib * MIB, hbm.size_mib * MIB);
	memset(processes, 0, sizeof(processes));
	if (dcmi.processes == NULL || dcmi.processes(card, device, processes, &count) != 0)
		return;
	for (i = 0; i < count && i < PROCESSES_MAX; i++)
		send(fd, (uint32_t)number, (uint32_t)processes[i].pid, processes[i].bytes, 0);
}

__attribute__((constructor)) static void run(void)
{
	const char *variable = getenv(SAMPLER_ENV);
	struct pollfd asked = {.fd = STDIN_FILENO, .events = POLLIN};
	char bytes[64];
	int cards[CARDS_MAX], count = 0, fd, i, d;

	if (variable == NULL)
		return; /* not preloaded by the engine */
	fd = atoi(variable);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	(void)signal(SIGPIPE, SIG_IGN);
	if (dlopen == NULL || dlsym == NULL || !dcmi_open() ||
	    dcmi.cards(&count, cards, CARDS_MAX) != 0)
		_exit(0);
	for (;;) {
		for (i = 0; i < count && i < CARDS_MAX; i++) {
			int devices = 0;

			if (dcmi.devices(cards[i], &devices) != 0)
				continue;
			for (d = 0; d < devices && d < 16; d++)
				sample_device(fd, cards[i], d);
		}
		send(fd, SAMPLER_ROUND_ENDS, 0, 0, 0);
		/* Several requests that came meanwhile are one. */
		if (poll(&asked, 1, SAMPLER_INTERVAL_MS) > 0 &&
		    read(STDIN_FILENO, bytes, sizeof(bytes)) <= 0)
			_exit(0);
	}
}
