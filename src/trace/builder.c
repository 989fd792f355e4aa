/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/builder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "trace/table.h"

void builder_fini(struct builder *b)
{
	strbuf_fini(&b->records);
	*b = (struct builder){0};
}

void builder_fail(struct builder *b, int error)
{
	if (b->error == 0)
		b->error = error;
}

void builder_begin_chunk(struct builder *b, uint64_t base_ns)
{
	builder_flush(b);
	b->open = true;
	b->chunk_ns = b->base_ns = base_ns;
}

void builder_flush(struct builder *b)
{
	struct pack_block meta = {.kind = PACK_CHUNK,
				  .raw_bytes = (uint32_t)b->records.length,
				  .writer = b->writer,
				  .sequence = b->sequence,
				  .base_ns = b->chunk_ns};

	if (!b->open)
		return;
	b->open = false;
	b->sequence++;
	if (strbuf_failed(&b->records))
		builder_fail(b, -ENOMEM);
	if (b->error == 0 && b->pack != NULL)
		builder_fail(b, pack_writer_put(b->pack, &meta, b->records.data));
	strbuf_reset(&b->records);
}

void builder_put(struct builder *b, enum event_type type, uint32_t context, uint64_t *words,
		 size_t count)
{
	size_t full = b->chunk_bytes != 0 ? b->chunk_bytes : BUILDER_CHUNK_BYTES;

	if (b->pack != NULL && b->records.length >= full)
		builder_flush(b);
	if (!b->open)
		builder_begin_chunk(b, b->time_ns);
	if (b->time_ns - b->base_ns > UINT32_MAX) {
		uint64_t base[] = {record_word0(EVENT_time_base, 0, 0), b->time_ns};

		strbuf_add(&b->records, base, sizeof(base));
		b->base_ns = b->time_ns;
	}
	words[0] = record_word0(type, context, (uint32_t)(b->time_ns - b->base_ns));
	strbuf_add(&b->records, words, count * sizeof(*words));
	if (MSCOPE_UNLIKELY(strbuf_failed(&b->records)))
		builder_fail(b, -ENOMEM);
}

void builder_begin(struct builder *b, enum event_type type, uint32_t context, uint64_t *words,
		   size_t count)
{
	builder_put(b, type, context, words, count);
	b->record_at = b->records.length - count * sizeof(*words);
}

void builder_payload(struct builder *b, const void *bytes, size_t length)
{
	if (length > 0)
		strbuf_add(&b->records, bytes, length);
}

void builder_end(struct builder *b)
{
	static const char zeros[8];
	size_t bytes = b->records.length - b->record_at;
	uint32_t padded = (uint32_t)round_up_u64(bytes, 8);

	strbuf_add(&b->records, zeros, padded - bytes);
	if (strbuf_failed(&b->records)) {
		builder_fail(b, -ENOMEM);
		return;
	}
	/* Every event with a payload has its length in the low half of word 1. */
	memcpy(b->records.data + b->record_at + 8, &padded, sizeof(padded));
}

void builder_put_context(struct builder *b, uint64_t id, const struct context *context)
{
	BUILDER_PUT(b, context_def, 0, .id = id, .pool = context->pool, .kind = context->kind,
		    .page = context->page, .vendor = context->vendor, .device = context->device,
		    .module = context->module, .flags = context->flags);
}

void builder_put_text(struct builder *b, uint64_t id, const char *text, size_t length)
{
	BUILDER_BEGIN(b, text_def, 0, .id = id, .text_bytes = length);
	builder_payload(b, text, length);
	builder_end(b);
}

void preamble_init(struct trace_header *header, const char *identity, size_t identity_bytes)
{
	trace_header_init(header);
	header->table_bytes = (uint32_t)trace_table_bytes();
	memcpy((char *)header + TRACE_TABLE_AT, trace_table_text(), header->table_bytes);
	header->identity_bytes = (uint32_t)identity_bytes;
	memcpy((char *)header + TRACE_IDENTITY_AT, identity, identity_bytes);
}

struct trace_header *preamble_new(const char *identity, size_t identity_bytes)
{
	/* As aligned as the struct that it begins with. */
	struct trace_header *header =
		aligned_alloc(_Alignof(struct trace_header), TRACE_HEADER_BYTES);

	if (header == NULL)
		return NULL;
	memset((void *)header, 0, TRACE_HEADER_BYTES);
	preamble_init(header, identity, identity_bytes);
	return header;
}

int preamble_put(struct pack_writer *pack, const void *preamble)
{
	struct pack_block meta = {.kind = PACK_HEADER, .raw_bytes = TRACE_HEADER_BYTES};

	return pack_writer_put(pack, &meta, preamble);
}
