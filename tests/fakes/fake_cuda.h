/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the three stand-ins share: the file in which processes keep what they use of each device, and the seam between driver and CUPTI.
 */
#ifndef MSCOPE_TESTS_FAKE_CUDA_H
#define MSCOPE_TESTS_FAKE_CUDA_H

#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define FAKE_EXPORT	   __attribute__((visibility("default")))
#define FAKE_DEVICES_MAX   16u
#define FAKE_PROCESSES_MAX 64u
#define FAKE_MIB	   UINT64_C(1048576)

struct fake_process {
	_Atomic int32_t pid; /* 0: free */
	_Atomic uint64_t used;
};

struct fake_device {
	struct fake_process processes[FAKE_PROCESSES_MAX];
};

struct fake_state {
	struct fake_device devices[FAKE_DEVICES_MAX];
};

static inline uint64_t fake_setting(const char *name, uint64_t otherwise)
{
	const char *value = getenv(name);

	return value == NULL || *value == '\0' ? otherwise : strtoull(value, NULL, 10);
}

/* Physical devices of the machine. */
static inline uint32_t fake_device_count(void)
{
	uint64_t count = fake_setting("FAKE_CUDA_DEVICES", 2);

	return count > FAKE_DEVICES_MAX ? FAKE_DEVICES_MAX : (uint32_t)count;
}

/* How many of them are whole; the others are parts of one more card, which is divided (MIG). */
static inline uint32_t fake_whole_count(void)
{
	uint64_t whole = fake_setting("FAKE_CUDA_WHOLE", FAKE_DEVICES_MAX);

	return whole > fake_device_count() ? fake_device_count() : (uint32_t)whole;
}

static inline uint64_t fake_total(uint32_t device)
{
	return (fake_setting("FAKE_CUDA_MEMORY_MB", 8192) +
		device * fake_setting("FAKE_CUDA_MEMORY_STEP_MB", 0)) *
	       FAKE_MIB;
}

/* FAKE_DEVICES_MAX: of the card that is divided. */
static inline void fake_uuid(uint32_t device, unsigned char *out)
{
	uint32_t word = (device + 1) * 2654435761u;
	uint32_t i;

	for (i = 0; i < 16; i++) {
		word = (word ^ word >> 15) * 0x2c1b3c6du;
		out[i] = (unsigned char)(word >> 24);
	}
}

/* As NVML writes it; 41 bytes. */
static inline void fake_uuid_text(uint32_t device, char *out, size_t bytes)
{
	unsigned char u[16];

	fake_uuid(device, u);
	(void)snprintf(out, bytes,
		       "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
		       device >= fake_whole_count() && device < FAKE_DEVICES_MAX ? "MIG" : "GPU",
		       u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11],
		       u[12], u[13], u[14], u[15]);
}

static inline uint64_t fake_other(uint32_t device)
{
	return device == 0 ? fake_setting("FAKE_CUDA_OTHER_MB", 0) * FAKE_MIB : 0;
}

static inline struct fake_state *fake_state_open(void)
{
	const char *path = getenv("FAKE_CUDA_STATE");
	int fd =
		path == NULL || *path == '\0' ? -1 : open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	void *state = MAP_FAILED;

	if (fd >= 0 && ftruncate(fd, sizeof(struct fake_state)) == 0)
		state = mmap(NULL, sizeof(struct fake_state), PROT_READ | PROT_WRITE, MAP_SHARED,
			     fd, 0);
	if (fd >= 0)
		(void)close(fd);
	if (state == MAP_FAILED)
		state = mmap(NULL, sizeof(struct fake_state), PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return state == MAP_FAILED ? NULL : state;
}

/* A process that was killed gives everything back. */
static inline bool fake_lives(int32_t pid)
{
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/%d", pid);
	return pid != 0 && access(path, F_OK) == 0;
}

static inline uint64_t fake_used(const struct fake_state *state, uint32_t device)
{
	uint64_t used = fake_other(device);
	uint32_t i;

	for (i = 0; i < FAKE_PROCESSES_MAX; i++) {
		const struct fake_process *process = &state->devices[device].processes[i];

		if (fake_lives(atomic_load(&process->pid)))
			used += atomic_load(&process->used);
	}
	return used;
}

/* Domains and sites as CUPTI numbers them. */
enum { FAKE_DOMAIN_DRIVER = 1, FAKE_DOMAIN_RESOURCE = 3 };
enum { FAKE_ENTER = 0, FAKE_EXIT = 1 };

/* One callback, from the driver to CUPTI. */
struct fake_event {
	uint32_t domain;
	uint32_t cbid;
	uint32_t site;
	uint32_t context_uid;
	const char *name;
	const void *parameters;
	int *result; /* at the exit */
	const char *symbol;
	void *context;
	uint64_t *correlation_data;
	uint32_t correlation;
};

typedef void fake_listener(const struct fake_event *event);

/* A kernel that runs, from the driver to CUPTI. */
struct fake_kernel {
	const char *name;
	uint64_t start_ns, end_ns; /* fake_now_ns() */
	uint32_t device, context_uid, stream, correlation;
};

typedef void fake_kernel_listener(const struct fake_kernel *kernel);

static inline uint64_t fake_now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Of libcuda.so.1. NULL: nobody listens. */
void fake_cuda_listen(fake_listener *listener);
void fake_cuda_listen_kernels(fake_kernel_listener *listener);
int fake_cuda_context_device(void *context, uint32_t *out_device);
const char *fake_cuda_name(uint32_t cbid);

#endif
