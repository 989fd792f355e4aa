/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/facts.h"

#include "dump/format.h"

int facts_init(struct facts *facts, const char *directory, struct mscope_error *err)
{
	*facts = (struct facts){0};
	return spool_init(&facts->records, directory, sizeof(struct fact), err);
}

void facts_fini(struct facts *facts)
{
	spool_fini(&facts->records);
	*facts = (struct facts){0};
}

struct fact *facts_at(struct facts *facts, uint64_t allocation_id)
{
	return spool_at(&facts->records, allocation_id);
}

struct fact facts_get(const struct facts *facts, uint64_t allocation_id)
{
	const struct fact *records = (const void *)facts->records.data;

	return allocation_id < facts->records.room ? records[allocation_id] : (struct fact){0};
}

void inefficiency_text(uint32_t bits, struct strbuf *out)
{
	char *to = strbuf_room(out, INEFFICIENCY_ROOM);

	if (to != NULL)
		strbuf_end(out, inefficiency_put(to, bits));
}
