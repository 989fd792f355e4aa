/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/facts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/io.h"
#include "dump/format.h"

#define FACTS_STEP	(UINT64_C(1) << 20) /* records; the file is sparse */
#define FACTS_BYTES_MAX (UINT64_C(1) << 40)

/* As long as the file system and the limits of this process allow: nothing is in it until it is written. */
static uint64_t extend(int fd)
{
	uint64_t bytes = FACTS_BYTES_MAX;
	struct rlimit limit;

	/* Beyond the limit the kernel would send a signal. */
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes)
		bytes = limit.rlim_cur;
	while (bytes >= FACTS_STEP * sizeof(struct fact) && ftruncate(fd, (off_t)bytes) < 0)
		bytes /= 2;
	return bytes / sizeof(struct fact);
}

int facts_init(struct facts *facts, const char *directory, struct mscope_error *err)
{
	int fd = io_unnamed(directory), r;
	void *p = MAP_FAILED;

	*facts = (struct facts){0};
	if (fd < 0)
		return error_set(err, fd, "cannot create a file in %s: %s", directory,
				 strerror(-fd));
	facts->room_max = extend(fd);
	errno = EFBIG;
	if (facts->room_max >= FACTS_STEP)
		p = mmap(NULL, FACTS_STEP * sizeof(struct fact), PROT_READ | PROT_WRITE, MAP_SHARED,
			 fd, 0);
	r = -errno;
	(void)close(fd);
	if (p == MAP_FAILED)
		return error_set(err, r, "cannot write a file in %s: %s", directory, strerror(-r));
	facts->records = p;
	facts->room = FACTS_STEP;
	return 0;
}

void facts_fini(struct facts *facts)
{
	if (facts->records != NULL)
		(void)munmap(facts->records, facts->room * sizeof(*facts->records));
	*facts = (struct facts){0};
}

struct fact *facts_at(struct facts *facts, uint64_t allocation_id)
{
	uint64_t room;
	void *p;

	if (facts->records == NULL || allocation_id >= facts->room_max)
		return NULL;
	if (allocation_id >= facts->room) {
		room = round_up_u64(allocation_id + 1, FACTS_STEP);
		if (room > facts->room_max)
			room = facts->room_max;
		p = mremap(facts->records, facts->room * sizeof(struct fact),
			   room * sizeof(struct fact), MREMAP_MAYMOVE);
		if (p == MAP_FAILED)
			return NULL;
		facts->records = p;
		facts->room = room;
	}
	return &facts->records[allocation_id];
}

struct fact facts_get(const struct facts *facts, uint64_t allocation_id)
{
	return allocation_id < facts->room ? facts->records[allocation_id] : (struct fact){0};
}

void inefficiency_text(uint32_t bits, struct strbuf *out)
{
	char *to = strbuf_room(out, INEFFICIENCY_ROOM);

	if (to != NULL)
		strbuf_end(out, inefficiency_put(to, bits));
}
