/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/anonymize.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/text.h"
#include "replay/replay.h"
#include "symbols/origin.h"
#include "trace/layout.h"
#include "trace/pack.h"
#include "trace/record.h"
#include "trace/session.h"

#define PLACE "/anonymous/"

#define IDENTITY_ROOM (TRACE_TABLE_AT - TRACE_IDENTITY_AT)

/* One trace on its way. */
struct rewriting {
	struct anonymous *names;
	struct layout_table layout;
	struct pack_writer *pack;
	struct strbuf out;  /* records of the chunk in progress */
	struct strbuf text; /* scratch, like the next one */
	struct strbuf other;
	int error;
};

void anonymous_fini(struct anonymous *names)
{
	interned_fini(&names->names);
}

static void fail(struct rewriting *w, int error)
{
	if (w->error == 0)
		w->error = error;
}

/* ---- names ---- */

/* Appends the word for a name: what it is, and a number. */
static void add_word(struct rewriting *w, const char *what, const char *name, size_t length,
		     struct strbuf *out)
{
	struct strbuf key = {0};
	uint32_t number = 0;
	bool new;

	strbuf_addf(&key, "%s ", what);
	strbuf_add(&key, name, length);
	fail(w, strbuf_failed(&key)
			? -ENOMEM
			: interned_number(&w->names->names, key.data, key.length, &number, &new));
	strbuf_addf(out, "%s%u", what, number + 1);
	strbuf_fini(&key);
}

static bool consists_of(const char *text, const char *characters)
{
	return text[strspn(text, characters)] == '\0';
}

/* Texts that are the same for everybody: of operators, types and shapes, and what steps are known by. */
#define SETTINGS_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:,>[]"

static bool is_public_text(const char *text)
{
	static const char *const starts[] = {"aten::", "torch.",     "torch::",	     "aclnn",
					     "npu::",  "prim::",     "c10::",	     "model@",
					     "PTA",    "autograd::", "ProfilerStep#"};
	static const char letters[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:<>@#";
	size_t i;

	if (text_starts_with(text, POOL_SETTINGS_START) &&
	    consists_of(text + strlen(POOL_SETTINGS_START), SETTINGS_LETTERS))
		return true;
	if (strcmp(text, STEP_MESSAGE) == 0 || consists_of(text, "0123456789 ,.[]()x-"))
		return true;
	for (i = 0; i < MSCOPE_COUNT(starts); i++) {
		if (text_starts_with(text, starts[i]))
			return consists_of(text, letters);
	}
	return false;
}

/* The part of a script's path that everybody has; NULL: it is not of PyTorch or the standard library. */
static const char *public_script(const char *file)
{
	static const char *const packages[] = {"torch/", "torch_npu/", "torchvision/", "numpy/"};
	const char *at = strstr(file, "/site-packages/");
	size_t i;

	if (text_starts_with(file, "<frozen "))
		return file;
	if (at == NULL)
		at = strstr(file, "/dist-packages/");
	if (at == NULL) {
		at = strstr(file, "/lib/python3");
		return at == NULL || text_starts_with(file, "/home") ? NULL : at + 1;
	}
	for (i = 0; i < MSCOPE_COUNT(packages); i++) {
		if (text_starts_with(at + strlen("/site-packages/"), packages[i]))
			return at + 1;
	}
	return NULL;
}

static void add_script(struct rewriting *w, const char *file, struct strbuf *out)
{
	const char *known = public_script(file);

	if (known == file) {
		strbuf_add_str(out, file);
		return;
	}
	strbuf_add_str(out, PLACE);
	if (known != NULL) {
		strbuf_add_str(out, known);
		return;
	}
	/* Whose code it is stays to be seen. */
	if (origin_of_script(file) != ORIGIN_USER)
		strbuf_add_str(out, "site-packages/");
	add_word(w, "file", file, strlen(file), out);
	strbuf_add_str(out, ".py");
}

static void add_module(struct rewriting *w, const char *path, struct strbuf *out)
{
	strbuf_add_str(out, PLACE);
	if (origin_of_module(path) != ORIGIN_USER)
		strbuf_add_str(out, text_base_name(path));
	else
		add_word(w, "module", path, strlen(path), out);
}

/* ---- records ---- */

/* A text of the payload, NUL-terminated, in a scratch buffer. */
static const char *take_text(struct rewriting *w, struct strbuf *scratch, const uint8_t *at,
			     size_t length)
{
	strbuf_reset(scratch);
	strbuf_add(scratch, at, length);
	if (strbuf_failed(scratch))
		fail(w, -ENOMEM);
	return strbuf_str(scratch);
}

/* Ends the record that begins at `from`: pads it, and fills in its length. */
static void end_record(struct rewriting *w, size_t from)
{
	static const char zeros[8];
	uint32_t bytes;

	strbuf_add(&w->out, zeros, (8 - (w->out.length - from) % 8) % 8);
	bytes = (uint32_t)(w->out.length - from);
	if (!strbuf_failed(&w->out))
		memcpy(w->out.data + from + 8, &bytes, sizeof(bytes));
}

/* Sets a field of the record that begins at `from`: bits of a word. */
static void set_bits(struct rewriting *w, size_t from, size_t word, unsigned int shift,
		     uint64_t mask, uint64_t value)
{
	uint64_t bits;

	if (strbuf_failed(&w->out))
		return;
	memcpy(&bits, w->out.data + from + word * 8, sizeof(bits));
	bits = (bits & ~(mask << shift)) | (value & mask) << shift;
	memcpy(w->out.data + from + word * 8, &bits, sizeof(bits));
}

/* text_def and kept_text, which are laid out alike. */
static void put_text(struct rewriting *w, const uint8_t *record, size_t fixed, size_t bytes)
{
	struct event_text_def def;
	uint64_t words[3];
	size_t from = w->out.length, length;
	const char *text;

	memcpy(words, record, sizeof(words));
	event_text_def_decode(words, &def);
	length = def.text_bytes <= bytes - fixed ? (size_t)def.text_bytes : bytes - fixed;
	text = take_text(w, &w->text, record + fixed, length);
	strbuf_add(&w->out, record, fixed);
	if (is_public_text(text))
		strbuf_add_str(&w->out, text);
	else
		add_word(w, "name", text, strlen(text), &w->out);
	set_bits(w, from, 2, 0, UINT32_MAX, w->out.length - from - fixed);
	end_record(w, from);
}

static void put_code(struct rewriting *w, const uint8_t *record, size_t fixed, size_t bytes)
{
	struct event_code_def def;
	uint64_t words[4];
	size_t from = w->out.length, at;
	const char *file, *name;

	memcpy(words, record, sizeof(words));
	event_code_def_decode(words, &def);
	if (def.file_bytes + def.name_bytes + def.table_bytes > bytes - fixed)
		return;
	file = take_text(w, &w->text, record + fixed, (size_t)def.file_bytes);
	name = take_text(w, &w->other, record + fixed + def.file_bytes, (size_t)def.name_bytes);
	strbuf_add(&w->out, record, fixed);
	add_script(w, file, &w->out);
	set_bits(w, from, 2, 48, UINT16_MAX, w->out.length - from - fixed);
	at = w->out.length;
	if (public_script(file) != NULL || name[0] == '<')
		strbuf_add_str(&w->out, name);
	else
		add_word(w, "function", name, strlen(name), &w->out);
	set_bits(w, from, 3, 0, UINT16_MAX, w->out.length - at);
	strbuf_add(&w->out, record + fixed + def.file_bytes + def.name_bytes,
		   (size_t)def.table_bytes);
	end_record(w, from);
}

static void put_module(struct rewriting *w, const uint8_t *record, size_t fixed, size_t bytes)
{
	struct event_module_load def;
	uint64_t words[6];
	size_t from = w->out.length;

	memcpy(words, record, sizeof(words));
	event_module_load_decode(words, &def);
	if (def.build_id_bytes + def.path_bytes > bytes - fixed)
		return;
	strbuf_add(&w->out, record, fixed);
	/* A build id would find the file. */
	set_bits(w, from, 5, 0, UINT16_MAX, 0);
	add_module(
		w,
		take_text(w, &w->text, record + fixed + def.build_id_bytes, (size_t)def.path_bytes),
		&w->out);
	set_bits(w, from, 5, 16, UINT16_MAX, w->out.length - from - fixed);
	end_record(w, from);
}

static void put_record(struct rewriting *w, const uint8_t *record, size_t bytes)
{
	size_t fixed = w->layout.types[record[0]].words * 8u, from = w->out.length;

	switch (record[0]) {
	case EVENT_text_def:
	case EVENT_kept_text:
		put_text(w, record, fixed, bytes);
		break;
	case EVENT_code_def:
		put_code(w, record, fixed, bytes);
		break;
	case EVENT_module_load:
		put_module(w, record, fixed, bytes);
		break;
	case EVENT_note: /* free words, which may name anything */
	case EVENT_keeper:
	case EVENT_host_container:
		break;
	case EVENT_thread:
		strbuf_add(&w->out, record, bytes);
		set_bits(w, from, 2, 0, UINT64_MAX, 0);
		set_bits(w, from, 3, 0, UINT64_MAX, 0);
		break;
	case EVENT_host_process:
		strbuf_add(&w->out, record, bytes);
		set_bits(w, from, 4, 0, UINT64_MAX, 0);
		set_bits(w, from, 5, 0, UINT64_MAX, 0);
		break;
	default:
		strbuf_add(&w->out, record, bytes);
		break;
	}
}

/* A note carries time like other records: what follows counts from the writer's base, and not from it. */
static void put_chunk(struct rewriting *w, const struct pack_block *block, const uint8_t *data)
{
	struct pack_block meta = *block;
	size_t at = 0, bytes;

	strbuf_reset(&w->out);
	while (at < block->raw_bytes &&
	       (bytes = layout_record_bytes(&w->layout, data + at, block->raw_bytes - at)) > 0) {
		put_record(w, data + at, bytes);
		at += bytes;
	}
	if (strbuf_failed(&w->out))
		fail(w, -ENOMEM);
	meta.raw_bytes = (uint32_t)w->out.length;
	if (w->error == 0)
		fail(w, pack_writer_put(w->pack, &meta, strbuf_str(&w->out)));
}

/* ---- the header ---- */

/* Keys of the identity whose values name nobody. */
static bool is_public_key(const char *key, size_t length)
{
	static const char *const keys[] = {"kernel",
					   "machine",
					   "memory_kib",
					   "program",
					   "source",
					   "RANK",
					   "LOCAL_RANK",
					   "WORLD_SIZE",
					   "RANK_ID",
					   "RANK_SIZE",
					   "DEVICE_ID",
					   "PMI_RANK",
					   "PMIX_RANK",
					   "SLURM_PROCID",
					   "SLURM_LOCALID",
					   "OMPI_COMM_WORLD_RANK",
					   "OMPI_COMM_WORLD_LOCAL_RANK",
					   "PYTORCH_CUDA_ALLOC_CONF",
					   "PYTORCH_ALLOC_CONF",
					   "PYTORCH_NPU_ALLOC_CONF",
					   SESSION_DRY_KEY,
					   SESSION_LAUNCH_KEY};
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(keys); i++) {
		if (strlen(keys[i]) == length && memcmp(keys[i], key, length) == 0)
			return true;
	}
	return false;
}

static void put_header(struct rewriting *w, struct trace_header *h)
{
	struct pack_block meta = {.kind = PACK_HEADER, .raw_bytes = TRACE_HEADER_BYTES};
	char *begin = (char *)h + TRACE_IDENTITY_AT, *at = begin;
	size_t left = h->identity_bytes <= IDENTITY_ROOM ? h->identity_bytes : IDENTITY_ROOM;
	struct strbuf identity = {0};

	while (left > 0) {
		size_t length = strnlen(at, left);
		const char *equals = memchr(at, '=', length);
		size_t key = equals == NULL ? 0 : (size_t)(equals - at);

		if (equals != NULL && is_public_key(at, key)) {
			strbuf_add(&identity, at, length);
			strbuf_add_char(&identity, '\0');
		} else if (equals != NULL && key == 4 && memcmp(at, "host", 4) == 0) {
			strbuf_add_str(&identity, "host=");
			add_word(w, "host", equals + 1, length - key - 1, &identity);
			strbuf_add_char(&identity, '\0');
		} else if (equals != NULL && key == 3 && memcmp(at, "exe", 3) == 0) {
			strbuf_add_str(&identity, "exe=" PLACE);
			add_word(w, "program", equals + 1, length - key - 1, &identity);
			strbuf_add_char(&identity, '\0');
		}
		length += length < left;
		at += length;
		left -= length;
	}
	if (strbuf_failed(&identity) || identity.length > IDENTITY_ROOM) {
		fail(w, -ENOMEM);
	} else {
		memset(begin, 0, IDENTITY_ROOM);
		memcpy(begin, strbuf_str(&identity), identity.length);
		h->identity_bytes = (uint32_t)identity.length;
		fail(w, pack_writer_put(w->pack, &meta, h));
	}
	strbuf_fini(&identity);
}

static int read_layout(struct rewriting *w, const struct trace_header *h)
{
	return h->table_bytes > TRACE_HEADER_BYTES - TRACE_TABLE_AT
		       ? MSCOPE_E_DAMAGED
		       : layout_parse((const char *)h + TRACE_TABLE_AT, h->table_bytes, &w->layout);
}

/* ---- the whole ---- */

static void put_block(struct rewriting *w, int fd, const struct pack_entry *entry)
{
	uint8_t *data;

	/* Names of frames would be those of functions. */
	if (entry->block.kind == PACK_FRAMES)
		return;
	data = aligned_alloc(64, (entry->block.raw_bytes / 64 + 1) * 64u);
	if (data == NULL) {
		fail(w, -ENOMEM);
		return;
	}
	fail(w, pack_entry_read(fd, entry, data));
	if (w->error == 0 && entry->block.kind == PACK_HEADER) {
		if (entry->block.raw_bytes != TRACE_HEADER_BYTES)
			fail(w, MSCOPE_E_DAMAGED);
		else
			fail(w, read_layout(w, (struct trace_header *)(void *)data));
		if (w->error == 0)
			put_header(w, (struct trace_header *)(void *)data);
	} else if (w->error == 0 && entry->block.kind == PACK_CHUNK) {
		put_chunk(w, &entry->block, data);
	} else if (w->error == 0) {
		fail(w, pack_writer_put(w->pack, &entry->block, data));
	}
	free(data);
}

static int rewrite(struct rewriting *w, const char *from, const char *to, int *out_fd,
		   struct mscope_error *err)
{
	struct pack_index index = {0};
	int fd = open(from, O_RDONLY | O_CLOEXEC), r;
	size_t i;

	if (fd < 0)
		return error_set(err, -errno, "cannot open %s: %s", from, strerror(errno));
	r = pack_index_read(fd, &index, err);
	if (r == 0)
		r = pack_writer_open(to, &w->pack, err);
	if (r == 0) {
		for (i = 0; i < index.count && w->error == 0; i++)
			put_block(w, fd, &index.entries[i]);
		*out_fd = w->error == 0 ? fcntl(pack_writer_fd(w->pack), F_DUPFD_CLOEXEC, 0) : -1;
		if (w->error == 0 && *out_fd < 0)
			fail(w, -errno);
		pack_writer_close(w->pack);
		r = w->error == 0
			    ? 0
			    : error_set(err, w->error, "cannot make a trace without names: %s",
					mscope_status_str(w->error));
	}
	pack_index_fini(&index);
	(void)close(fd);
	strbuf_fini(&w->out);
	strbuf_fini(&w->text);
	strbuf_fini(&w->other);
	return r;
}

int input_anonymize(struct input *input, struct anonymous *names, struct mscope_error *err)
{
	struct rewriting w = {.names = names};
	char path[64];
	int fd, made = -1, r;

	if (input->raw[0] != '\0')
		return error_set(
			err, MSCOPE_E_STATE,
			"%s is incomplete and cannot be made anonymous; run first: msmemscope recover",
			input->found);
	fd = io_unnamed(io_scratch());
	if (fd < 0)
		return error_set(err, fd, "cannot make a temporary file: %s",
				 mscope_status_str(fd));
	(void)snprintf(path, sizeof(path), PACK_UNNAMED "%d", fd);
	r = rewrite(&w, input->pack, path, &made, err);
	(void)close(fd);
	if (r < 0)
		return r;
	run_close(input->run);
	input->run = NULL;
	if (input->imported || input->anonymous)
		io_close(&input->import_fd);
	input->anonymous = true;
	input->import_fd = made;
	(void)snprintf(input->pack, sizeof(input->pack), PACK_UNNAMED "%d", made);
	return input_reopen(input, &input->run, err);
}
