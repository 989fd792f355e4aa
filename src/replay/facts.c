/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/facts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/io.h"
#include "dump/format.h"

#define FACTS_STEP (UINT64_C(1) << 20) /* records; the file is sparse */

int facts_init(struct facts *facts, const char *directory, struct mscope_error *err)
{
	*facts = (struct facts){.fd = io_unnamed(directory)};
	if (facts->fd < 0) {
		int r = facts->fd;

		facts->fd = -1;
		return error_set(err, r, "cannot create a file in %s: %s", directory, strerror(-r));
	}
	return 0;
}

void facts_fini(struct facts *facts)
{
	if (facts->records != NULL)
		(void)munmap(facts->records, facts->room * sizeof(*facts->records));
	if (facts->fd >= 0)
		(void)close(facts->fd);
	*facts = (struct facts){.fd = -1};
}

struct fact *facts_at(struct facts *facts, uint64_t allocation_id)
{
	uint64_t room;
	void *p;

	if (facts->fd < 0)
		return NULL;
	if (allocation_id >= facts->room) {
		room = round_up_u64(allocation_id + 1, FACTS_STEP);
		if (ftruncate(facts->fd, (off_t)(room * sizeof(struct fact))) < 0)
			return NULL;
		p = mmap(NULL, room * sizeof(struct fact), PROT_READ | PROT_WRITE, MAP_SHARED,
			 facts->fd, 0);
		if (p == MAP_FAILED)
			return NULL;
		if (facts->records != NULL)
			(void)munmap(facts->records, facts->room * sizeof(*facts->records));
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
