/* SPDX-License-Identifier: Apache-2.0 */
/*
 * make_seeds TRACE PACK COLUMNS REAL: writes the first inputs of fuzz_trace, fuzz_pack and fuzz_columns into these folders, from
 * one small trace that has every kind of record and most of what replay distinguishes. REAL is a packed trace to begin with as well.
 */
#include "trace/columns.h"
#include "trace/pack.h"
#include "trace/session.h"
#include "../unit/trace_maker.h"

#define SCRATCH "make_seeds.scratch"

struct seed {
	uint8_t bytes[65536];
	size_t length;
};

static struct seed seed;

static void begin(const void *bytes, size_t length)
{
	memcpy(seed.bytes, bytes, length);
	seed.length = length;
}

static void add(const void *bytes, size_t length)
{
	if (length > sizeof(seed.bytes) - seed.length)
		maker_fail("seed");
	memcpy(seed.bytes + seed.length, bytes, length);
	seed.length += length;
}

static void save(const char *directory, const char *name)
{
	char path[4096];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/%s", directory, name);
	file = fopen(path, "wb");
	if (file == NULL || fwrite(seed.bytes, 1, seed.length, file) != seed.length ||
	    fclose(file) != 0)
		maker_fail(path);
}

/* One record of each kind, all fields small. */
static void put_every_kind(struct maker_writer *w, uint64_t now)
{
#define FIXED					0
#define VARIABLE				8
#define FIELD(name, word, shift, bits, meaning) .name = 1,
#define EVENT(number, event, fixed_words, shape, fields, meaning)                                  \
	{                                                                                          \
		struct event_##event in_ = {fields};                                               \
		uint64_t words_[fixed_words] = {0};                                                \
                                                                                                   \
		event_##event##_encode(words_, &in_);                                              \
		if ((shape) == VARIABLE)                                                           \
			maker_variable(w, now++, number, words_, sizeof(words_), "payload", 8);    \
		else if ((number) != EVENT_time_base)                                              \
			maker_put(w, now++, number, 1, words_, sizeof(words_));                    \
	}
#include "trace/events.def"
#undef EVENT
#undef FIELD
}

/* What a script on a framework records: functions, operators that take tensors, labels, steps, windows, watched memory. */
static void put_framework(struct maker_writer *w, uint64_t now)
{
	uint64_t frames[] = {0x10100, 1, 1 | UINT64_C(4) << 32};
	uint32_t kind;

	maker_context(w, now++, 2, POOL_pta, BLOCK_ALLOC, 0);
	maker_text(w, now++, 1, "aten.mul");
	maker_text(w, now++, 2, "torch.float32");
	maker_text(w, now++, 3, "torch.Size([2, 3])");
	maker_text(w, now++, 4, "model@weight");
	maker_text(w, now++, 5, "step start");
	maker_text(w, now++, TEXT_ONCE | 1, "1/0/mul");
	maker_code(w, now++, 1, "/a.pyf", 5, 7);
	maker_python_stack(w, now++, 2, frames, 2);
	for (kind = CALL_ENTER; kind <= CALL_MODULE_ENTER; kind++)
		MAKER_EVENT(w, now++, 0, call, .what = 1, .at = 1, .kind = kind);
	MAKER_EVENT(w, now++, 0, step, .number = 1);
	MAKER_EVENT(w, now++, 0, label, .text = 4, .kind = LABEL_PUSH);
	maker_alloc(w, now++, 2, 0x100000, 512, 2);
	for (kind = LAYER_ATEN; kind < LAYER_END; kind++) {
		MAKER_EVENT(w, now++, 2, operation, .name = 1, .kind = OPERATION_BEGINS,
			    .layer = kind, .path = TEXT_ONCE | 1, .stack = 2);
		MAKER_EVENT(w, now++, 2, access, .address = 0x100010, .size_bytes = 16, .name = 1,
			    .kind = kind, .layer = kind, .dtype = 2, .shape = 3, .stack = 2);
		MAKER_EVENT(w, now++, 2, watch_dump, .name = 1, .flags = kind - 1, .checksum = kind,
			    .size_bytes = 16, .watched = 1, .number = 1);
	}
	while (--kind >= LAYER_ATEN)
		MAKER_EVENT(w, now++, 2, operation, .name = 1, .kind = OPERATION_ENDED,
			    .layer = kind);
	MAKER_EVENT(w, now++, 2, label, .address = 0x100010, .text = 4, .kind = LABEL_MODEL);
	MAKER_EVENT(w, now++, 2, label, .address = 0x100000, .text = 1, .kind = LABEL_TENSOR);
	MAKER_EVENT(w, now++, 0, label, .text = 4, .kind = LABEL_POP);
	MAKER_EVENT(w, now++, 0, state, .state = RECORDING_SHADOW);
	maker_alloc(w, now++, 2, 0x200000, 512, 0);
	MAKER_EVENT(w, now++, 0, settings, .events = 15, .level = 3, .analysis = 15,
		    .all_devices = 1, .c_depth = 1, .python_depth = 1);
	MAKER_EVENT(w, now++, 0, state, .state = RECORDING_ON);
	MAKER_EVENT(w, now++, 2, mark, .text = 5, .kind = 2, .range = 1);
	MAKER_EVENT(w, now++, 2, kernel_launch, .name = 1, .stream = 1, .task = 1);
	MAKER_EVENT(w, now++, 2, kernel_execute, .stream = 1, .task = 1, .kind = 2);
	maker_free(w, now++, 2, 0x100000);
	MAKER_EVENT(w, now++, 2, mark, .kind = 3, .range = 1);
}

static void make_trace(struct maker *m)
{
	struct maker_writer a = {.maker = m, .number = 1}, b = {.maker = m, .number = 2};
	uint64_t frames[] = {0x10100, 0x10200, 0x55555}, now = 2000, i;

	maker_thread(&a, now++, 71);
	maker_thread(&b, now++, 72);
	maker_context(&a, now++, 1, POOL_hal, BLOCK_ALLOC, 0);
	maker_context(&b, now++, 1, POOL_hal, BLOCK_ALLOC, DEVICE_UNKNOWN);
	maker_module(&a, now++, 1, 0x10000, 0x20000, "/lib/a.so");
	maker_stack(&a, now++, 1, frames, 3);
	for (i = 0; i < 8; i++) {
		maker_alloc(&a, now++, 1, 0x1000 * i, 100 + i, i % 2);
		if (i % 4 != 3)
			maker_free(&b, now++, 1, 0x1000 * i);
		if (i % 4 == 1)
			maker_undo(&b, now++, 1, 0x1000 * i);
	}
	maker_seal(&a);
	maker_alloc(&a, now + 6000000000u, 1, 0x1000, 1, 0);
	maker_alloc(&a, now + 6000000001u, 1, 0x1000, 1, 0);
	maker_seal(&a);
	put_framework(&a, now + 6000000010u);
	put_every_kind(&a, now + 6000000200u);
}

static void trace_seed(const struct maker *m, const char *directory)
{
	uint32_t number, count = atomic_load(&m->header->next_chunk);

	begin("", 1); /* the header stays as it is */
	for (number = 0; number < count; number++) {
		const struct chunk *chunk = maker_chunk(m, number);
		uint32_t length = atomic_load(&chunk->committed) - CHUNK_HEADER_BYTES;
		uint32_t base = (uint32_t)chunk->base_ns;
		uint8_t head[] = {0,
				  (uint8_t)chunk->writer,
				  (uint8_t)chunk->sequence,
				  (uint8_t)base,
				  (uint8_t)(base >> 8),
				  (uint8_t)(base >> 16),
				  (uint8_t)(base >> 24),
				  0,
				  0,
				  (uint8_t)length,
				  (uint8_t)(length >> 8)};

		add(head, sizeof(head));
		add((const char *)chunk + CHUNK_HEADER_BYTES, length);
	}
	save(directory, "whole");
}

static void put_chunk(struct pack_writer *writer, const struct maker *m, uint32_t number,
		      uint32_t as)
{
	const struct chunk *chunk = maker_chunk(m, number);
	struct pack_block meta = {.kind = PACK_CHUNK,
				  .raw_bytes = atomic_load(&chunk->committed) - CHUNK_HEADER_BYTES,
				  .writer = as != 0 ? as : chunk->writer,
				  .sequence = chunk->sequence,
				  .base_ns = as != 0 ? 0 : chunk->base_ns};

	if (pack_writer_put(writer, &meta, (const char *)chunk + CHUNK_HEADER_BYTES) < 0)
		maker_fail("pack_writer_put");
}

static void pack_seeds(const struct maker *m, const char *directory)
{
	static const uint64_t frame[] = {1, 0x10100, 4,
					 0x656d616e}; /* module, address, length, "name" */
	uint32_t number, count = atomic_load(&m->header->next_chunk);
	struct pack_block stored = {
		.magic = PACK_BLOCK_MAGIC, .kind = PACK_CHUNK, .codec = PACK_STORED};
	struct pack_writer *writer;
	static uint8_t bytes[65536];
	ssize_t length;

	(void)unlink(SCRATCH);
	if (pack_writer_open(SCRATCH, &writer, NULL) < 0)
		maker_fail(SCRATCH);
	/* What a checkpoint says: the same records as the engine's own. */
	put_chunk(writer, m, count - 1, CHECKPOINT_WRITER);
	for (number = 0; number < count; number++)
		put_chunk(writer, m, number, 0);
	if (pack_writer_put(writer, &(struct pack_block){.kind = PACK_FRAMES, .raw_bytes = 28},
			    frame) < 0 ||
	    pack_writer_put(writer, &(struct pack_block){.kind = PACK_END}, "") < 0)
		maker_fail("pack_writer_put");
	length = pread(pack_writer_fd(writer), bytes, sizeof(bytes), 8);
	pack_writer_close(writer);
	(void)unlink(SCRATCH);
	begin("\2", 1);
	add(bytes, (size_t)length);
	save(directory, "packed");
	/* The same uncompressed, for mutations to reach into; its sums are for the fuzzer to make. */
	begin("\3", 1);
	for (number = 0; number < count; number++) {
		const struct chunk *chunk = maker_chunk(m, number);

		stored.raw_bytes = stored.packed_bytes =
			atomic_load(&chunk->committed) - CHUNK_HEADER_BYTES;
		stored.writer = chunk->writer;
		stored.sequence = chunk->sequence;
		stored.base_ns = chunk->base_ns;
		add(&stored, sizeof(stored));
		add((const char *)chunk + CHUNK_HEADER_BYTES, stored.raw_bytes);
	}
	stored.kind = PACK_FRAMES;
	stored.raw_bytes = stored.packed_bytes = 28;
	add(&stored, sizeof(stored));
	add(frame, 28);
	save(directory, "stored");
}

static void columns_seeds(const struct maker *m, const char *directory)
{
	const struct chunk *chunk = maker_chunk(m, 0);
	uint32_t bytes = atomic_load(&chunk->committed) - CHUNK_HEADER_BYTES;
	static uint8_t columns[65536];
	uint8_t head[] = {0, (uint8_t)bytes, (uint8_t)(bytes >> 8)};

	begin("\1", 1);
	add((const char *)chunk + CHUNK_HEADER_BYTES, bytes);
	save(directory, "records");
	begin(head, sizeof(head));
	add(columns, columns_split((const char *)chunk + CHUNK_HEADER_BYTES, bytes, columns));
	save(directory, "columns");
}

/* As it is, with the sums that it has. */
static void real_seed(const char *path, const char *directory)
{
	static uint8_t bytes[65535];
	FILE *file = fopen(path, "rb");
	size_t length;

	if (file == NULL)
		maker_fail(path);
	length = fread(bytes, 1, sizeof(bytes), file);
	(void)fclose(file);
	begin("", 1);
	add(bytes + 8, length - 8);
	save(directory, "real");
}

int main(int argc, char **argv)
{
	struct maker m;

	if (argc != 5) {
		fprintf(stderr, "usage: make_seeds TRACE PACK COLUMNS REAL\n");
		return 2;
	}
	maker_make(&m, SCRATCH, MAKER_CHUNK_BYTES, MAKER_CHUNKS);
	make_trace(&m);
	trace_seed(&m, argv[1]);
	pack_seeds(&m, argv[2]);
	columns_seeds(&m, argv[3]);
	real_seed(argv[4], argv[2]);
	(void)unlink(SCRATCH);
	(void)munmap(m.header, m.bytes);
	return 0;
}
