/* SPDX-License-Identifier: Apache-2.0 */
#include "base/spool.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/bus.h"
#include "base/io.h"

#define STEP_BYTES (UINT64_C(16) << 20)
#define BYTES_MAX  (UINT64_C(1) << 40)

/* A page of `view` has dozens of spools, most of them small: where address space is limited (ulimit -v), they begin so. */
#define FIRST_BYTES (UINT64_C(1) << 20)

/* Records that the mapping has at first, and those of its next step. */
static uint64_t first_of(const struct spool *spool)
{
	struct rlimit limit;
	bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;

	return (limited ? FIRST_BYTES : STEP_BYTES) / spool->bytes;
}

static uint64_t step_of(const struct spool *spool)
{
	uint64_t most = STEP_BYTES / spool->bytes;

	return spool->room < most ? spool->room : most;
}

/* As long as the file system and the limits of this process allow: nothing is in it until it is written. */
static uint64_t extend(int fd, uint64_t least)
{
	uint64_t bytes = BYTES_MAX;
	struct rlimit limit;

	/* Beyond the limit the kernel would send a signal. */
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes)
		bytes = limit.rlim_cur;
	while (bytes >= least && ftruncate(fd, (off_t)bytes) < 0)
		bytes /= 2;
	return bytes;
}

int spool_init(struct spool *spool, const char *directory, uint32_t record_bytes,
	       struct mscope_error *err)
{
	int fd = io_unnamed(directory), r;
	void *p = MAP_FAILED;
	uint64_t first;

	*spool = (struct spool){.bytes = record_bytes};
	if (fd < 0)
		return error_set(err, fd, "cannot create a file in %s: %s", directory,
				 strerror(-fd));
	spool->room = first_of(spool);
	first = spool->room * record_bytes;
	spool->room_max = extend(fd, first) / record_bytes;
	errno = EFBIG;
	if (spool->room_max >= spool->room)
		p = mmap(NULL, first, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	r = -errno;
	(void)close(fd);
	if (p == MAP_FAILED) {
		*spool = (struct spool){0};
		return r == -ENOMEM ? error_set(err, r, "no memory, or too little address space")
				    : error_set(err, r, "cannot write a file in %s: %s", directory,
						strerror(-r));
	}
	/* The first store into a page that the disk has no room for is SIGBUS; such a page becomes memory. */
	bus_guard();
	spool->data = p;
	return 0;
}

void spool_fini(struct spool *spool)
{
	if (spool->data != NULL)
		(void)munmap(spool->data, spool->room * spool->bytes);
	*spool = (struct spool){0};
}

void *spool_grow(struct spool *spool, uint64_t index)
{
	uint64_t step, room;
	void *p;

	if (spool->data == NULL)
		return NULL;
	if (index >= spool->room_max) {
		spool->full = true;
		return NULL;
	}
	if (index >= spool->room) {
		step = step_of(spool);
		room = (index / step + 1) * step;
		if (room > spool->room_max)
			room = spool->room_max;
		p = mremap(spool->data, spool->room * spool->bytes, room * spool->bytes,
			   MREMAP_MAYMOVE);
		/* A mapping with pages that became memory cannot be moved or extended, which bounds them. */
		if (p == MAP_FAILED) {
			spool->full = true;
			return NULL;
		}
		spool->data = p;
		spool->room = room;
	}
	return spool->data + index * spool->bytes;
}
