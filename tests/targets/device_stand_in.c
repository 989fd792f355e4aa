/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for libcuda.so: as much of it as watch asks for, over memory that the process itself cannot read. What is handed to
 * the stream is done when somebody waits for it. While the stream is captured into a graph, waiting fails and ends the capture.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ERROR_CAPTURE 900

int cuStreamSynchronize(void *stream);
int cuCtxSynchronize(void);
int cuStreamIsCapturing(void *stream, int *status);
int cuMemcpyDtoH_v2(void *out, uint64_t address, size_t bytes);
uint64_t stand_in_alloc(size_t bytes);
void stand_in_fill_later(int value);
void stand_in_capture(int on);
int stand_in_captures(void);

static uint8_t *inside; /* the memory as the device sees it */
static uint64_t outside;
static size_t room;
static int later = -1, capturing;

uint64_t stand_in_alloc(size_t bytes)
{
	int fd = memfd_create("device", MFD_CLOEXEC);
	void *map;

	if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
		return 0;
	inside = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	map = mmap(NULL, bytes, PROT_NONE, MAP_SHARED, fd, 0);
	(void)close(fd);
	outside = (uint64_t)(uintptr_t)map;
	room = bytes;
	return inside == MAP_FAILED || map == MAP_FAILED ? 0 : outside;
}

void stand_in_fill_later(int value)
{
	later = value;
}

void stand_in_capture(int on)
{
	capturing = on;
}

int stand_in_captures(void)
{
	return capturing;
}

int cuStreamSynchronize(void *stream)
{
	(void)stream;
	if (capturing) {
		capturing = 0;
		return ERROR_CAPTURE;
	}
	if (later >= 0)
		memset(inside, later, room);
	later = -1;
	return 0;
}

int cuCtxSynchronize(void)
{
	return cuStreamSynchronize(NULL);
}

int cuStreamIsCapturing(void *stream, int *status)
{
	(void)stream;
	*status = capturing;
	return 0;
}

int cuMemcpyDtoH_v2(void *out, uint64_t address, size_t bytes)
{
	if (address < outside || address + bytes > outside + room)
		return 1;
	memcpy(out, inside + (address - outside), bytes);
	return 0;
}
