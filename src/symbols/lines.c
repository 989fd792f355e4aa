/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known: modules, addresses, frames and texts, each an array that only grows, with maps that lead into them. A failure
 * to store an answer leaves the address with what its symbol says.
 */
#include "symbols/lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/status.h"
#include "symbols/elf_cache.h"
#include "symbols/lines_work.h"
#include "symbols/modules.h"
#include "symbols/origin.h"

struct lines *lines_new(struct elf_cache *cache, const struct lines_limits *limits)
{
	struct lines *lines = calloc(1, sizeof(*lines));

	if (lines == NULL)
		return NULL;
	lines->cache = cache;
	lines->limits = *limits;
	cache->keep_open = true;
	return lines;
}

struct lines *lines_of(struct elf_cache *cache)
{
	static const struct lines_limits limits = LINES_LIMITS_DEFAULT;

	if (cache->lines == NULL && !cache->no_lines)
		cache->lines = lines_new(cache, &limits);
	return cache->lines;
}

void lines_free(struct lines *lines)
{
	size_t i;

	if (lines == NULL)
		return;
	for (i = 0; i < lines->module_count; i++) {
		free(lines->modules[i].root);
		free(lines->modules[i].path);
		free(lines->modules[i].build_id);
	}
	free(lines->modules);
	free(lines->wants);
	free(lines->frames);
	map_fini(&lines->module_by_file);
	index_fini(&lines->want_by_address);
	map_fini(&lines->text_by_hash);
	strbuf_fini(&lines->texts);
	free(lines);
}

static struct map_key key_of(const void *data, size_t bytes)
{
	return (struct map_key){hash_add(HASH_BEGIN, data, bytes), bytes};
}

/* Modules with the same file are one; those without file and build id are none. */
static bool find_key(const struct module *module, struct map_key *out_key)
{
	if (module->info.build_id_length > 0)
		*out_key = key_of(module->info.build_id, module->info.build_id_length);
	else if (module->file != NULL)
		*out_key = (struct map_key){(uint64_t)(uintptr_t)module->file, 0};
	else
		return false;
	return true;
}

/* Index of the module, NULL when there is none. Build ids that share a hash do not exist, unless somebody makes them. */
static const uint64_t *find_module(const struct lines *lines, const struct module *module)
{
	struct map_key key;

	return find_key(module, &key) ? map_get(&lines->module_by_file, key) : NULL;
}

static int add_module(struct lines *lines, const struct module *module, const char *root,
		      uint64_t *out_index)
{
	const struct module_info *info = &module->info;
	struct lines_module added = {
		.build_id_length = info->build_id_length,
		.fd = module->file == NULL ? -1 : elf_cache_descriptor(module->file),
		.state = origin_is_system(info->path) ? LINES_ABSENT : LINES_READABLE,
	};
	struct map_key key;
	int r = ARRAY_RESERVE(lines->modules, lines->module_room, lines->module_count + 1);

	if (r < 0)
		return r;
	if (!find_key(module, &key))
		return MSCOPE_E_ABSENT;
	added.root = strdup(root);
	added.path = strdup(info->path);
	added.build_id = malloc(info->build_id_length + 1);
	if (added.root == NULL || added.path == NULL || added.build_id == NULL ||
	    map_put(&lines->module_by_file, key, lines->module_count) < 0) {
		free(added.root);
		free(added.path);
		free(added.build_id);
		return -ENOMEM;
	}
	if (info->build_id_length > 0)
		memcpy(added.build_id, info->build_id, info->build_id_length);
	*out_index = lines->module_count;
	lines->modules[lines->module_count++] = added;
	return 0;
}

static uint64_t want_hash(uint64_t vaddr, uint64_t module)
{
	return vaddr * UINT64_C(0x9e3779b97f4a7c15) + module;
}

static struct lines_want *want_at(const struct lines *lines, uint64_t vaddr, uint64_t module)
{
	struct index_search search = index_search(want_hash(vaddr, module));
	uint32_t at;

	while (index_next(&lines->want_by_address, &search, &at)) {
		if (lines->wants[at].vaddr == vaddr && lines->wants[at].module == module)
			return &lines->wants[at];
	}
	return NULL;
}

int lines_want(struct lines *lines, struct module *module, const char *root, uint64_t address)
{
	struct lines_want want = {.vaddr = address - module->info.bias};
	const uint64_t *known;
	uint64_t index, offset;
	int r;

	known = find_module(lines, module);
	if (known != NULL && want_at(lines, want.vaddr, *known) != NULL)
		return 0;
	/* Finds the file, too; without a symbol there may still be debug information. */
	if (module_lookup(module, root, address, &want.symbol, &offset) < 0)
		want.symbol = NULL;
	known = find_module(lines, module);
	if (known != NULL) {
		index = *known;
	} else {
		r = add_module(lines, module, root, &index);
		if (r < 0)
			return r == MSCOPE_E_ABSENT ? 0 : r;
	}
	if (lines->want_count >= LINES_ADDRESSES_MAX)
		return MSCOPE_E_LIMIT;
	r = ARRAY_RESERVE(lines->wants, lines->want_room, lines->want_count + 1);
	if (r == 0)
		r = index_add(&lines->want_by_address, want_hash(want.vaddr, index),
			      lines->want_count);
	if (r < 0)
		return r;
	want.module = (uint32_t)index;
	lines->wants[lines->want_count++] = want;
	return 0;
}

/* Offset of the text in lines->texts, 0 when there is no memory for it. Control characters would reach a terminal. */
static uint32_t keep_text(struct lines *lines, const char *text, size_t bytes)
{
	struct map_key key;
	uint64_t *known;
	size_t at, i;

	if (bytes == 0 || bytes > LINES_TEXT_MAX)
		return 0;
	key = key_of(text, bytes);
	known = map_get(&lines->text_by_hash, key);
	if (known != NULL && memcmp(lines->texts.data + *known, text, bytes) == 0)
		return (uint32_t)*known;
	if (lines->texts.length == 0)
		strbuf_add_char(&lines->texts, '\0');
	at = lines->texts.length;
	if (at + bytes + 1 > LINES_TEXT_BYTES_MAX)
		return 0;
	strbuf_add(&lines->texts, text, bytes);
	strbuf_add_char(&lines->texts, '\0');
	if (strbuf_failed(&lines->texts))
		return 0;
	for (i = at; i < at + bytes; i++) {
		unsigned char c = (unsigned char)lines->texts.data[i];

		if (c < 0x20 || c == 0x7f)
			lines->texts.data[i] = '?';
	}
	/* Without its place in the map it is only kept twice. */
	(void)map_put(&lines->text_by_hash, key, at);
	return (uint32_t)at;
}

static bool take_frames(struct lines *lines, struct lines_want *want, const char *content,
			size_t bytes)
{
	size_t first = lines->frame_count, count = 0;

	while (bytes > 0) {
		struct lines_sent_frame sent;
		struct lines_kept_frame kept;

		if (bytes < sizeof(sent) || count >= LINES_FRAMES_MAX)
			return false;
		memcpy(&sent, content, sizeof(sent));
		content += sizeof(sent);
		bytes -= sizeof(sent);
		if (bytes < (size_t)sent.function_bytes + sent.file_bytes)
			return false;
		if (array_reserve(&lines->frames, &lines->frame_room, first + count + 1,
				  sizeof(kept)) < 0)
			return true;
		kept.function = keep_text(lines, content, sent.function_bytes);
		content += sent.function_bytes;
		kept.file = keep_text(lines, content, sent.file_bytes);
		content += sent.file_bytes;
		bytes -= (size_t)sent.function_bytes + sent.file_bytes;
		kept.line = kept.file == 0 ? 0 : sent.line;
		lines->frames[first + count++] = kept;
	}
	want->first_frame = (uint32_t)first;
	want->frame_count = (uint16_t)count;
	want->settled = true;
	lines->frame_count += count;
	return true;
}

bool lines_take_record(struct lines *lines, const struct lines_record *record, const char *content)
{
	switch (record->kind) {
	case RECORD_NAME:
		if (record->index < lines->named_count || record->index >= lines->want_count)
			return false;
		lines->named_count = (size_t)record->index + 1;
		lines->wants[record->index].name = keep_text(lines, content, record->bytes);
		return true;
	case RECORD_MODULE:
		return record->index < lines->module_count;
	case RECORD_DWARF:
		if (record->index >= lines->module_count)
			return false;
		lines->modules[record->index].has_dwarf = true;
		return true;
	case RECORD_FRAMES:
		return record->index < lines->want_count && !lines->wants[record->index].settled &&
		       take_frames(lines, &lines->wants[record->index], content, record->bytes);
	case RECORD_FULL:
	case RECORD_END:
		return true;
	default:
		return false;
	}
}

int lines_read(struct lines *lines)
{
	int r;
	size_t i;

	if (lines->settled_count == lines->want_count)
		return 0;
	r = lines_run(lines);
	for (i = lines->settled_count; i < lines->want_count; i++) {
		enum lines_module_state state = lines->modules[lines->wants[i].module].state;

		lines->wants[i].cut =
			!lines->wants[i].settled &&
			(state == LINES_TOO_SLOW || (state == LINES_READABLE && lines->names_only));
		lines->wants[i].settled = true;
	}
	lines->settled_count = lines->want_count;
	lines->named_count = lines->want_count;
	if (lines->status == 0)
		lines->status = r;
	return r;
}

static const char *text_at(const struct lines *lines, uint32_t offset)
{
	return offset == 0 ? NULL : lines->texts.data + offset;
}

/* What was asked for; NULL when it was not. */
static const struct lines_want *find_want(const struct lines *lines, const struct module *module,
					  uint64_t address)
{
	const uint64_t *index = find_module(lines, module);

	return index == NULL ? NULL : want_at(lines, address - module->info.bias, *index);
}

bool lines_is_cut(const struct lines *lines, const struct module *module, uint64_t address)
{
	const struct lines_want *want = find_want(lines, module, address);

	return want != NULL && want->cut;
}

size_t lines_get(const struct lines *lines, const struct module *module, uint64_t address,
		 struct lines_frame *frames, size_t max)
{
	const struct lines_want *want = find_want(lines, module, address);
	const char *name;
	size_t i, count;

	if (want == NULL || max == 0)
		return 0;
	name = want->name != 0 ? text_at(lines, want->name) : want->symbol;
	count = want->frame_count < max ? want->frame_count : max;
	for (i = 0; i < count; i++) {
		const struct lines_kept_frame *kept = &lines->frames[want->first_frame + i];

		frames[i] = (struct lines_frame){.function = text_at(lines, kept->function),
						 .file = text_at(lines, kept->file),
						 .line = kept->line};
		/* The last one has a symbol as well. */
		if (i + 1 == want->frame_count && frames[i].function == NULL)
			frames[i].function = name;
	}
	if (count == 0 && name != NULL)
		frames[count++] = (struct lines_frame){.function = name};
	return count;
}

void lines_note(const struct lines *lines, struct strbuf *out)
{
	size_t i;

	if (lines->status < 0)
		strbuf_addf(out, "Lines of C frames could not be read: %s\n",
			    mscope_status_str(lines->status));
	for (i = 0; i < lines->module_count; i++) {
		const struct lines_module *module = &lines->modules[i];

		if (module->state == LINES_TOO_SLOW)
			strbuf_addf(
				out,
				"Debug information of %s took longer than %u ms to read; some frames have no lines.\n",
				module->path, lines->limits.module_ms);
		else if (module->state == LINES_DAMAGED)
			strbuf_addf(
				out,
				"Debug information of %s is damaged or too large; some frames have no lines.\n",
				module->path);
	}
	if (lines->unread_count > 0)
		strbuf_addf(
			out,
			"%zu C frames have no lines: reading debug information took longer than %u ms.\n",
			lines->unread_count, lines->limits.total_ms);
}
