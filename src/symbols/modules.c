/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loaded modules are an array of disjoint ranges sorted by address, searched by halves; all modules
 * ever seen hang off a map by id. A module owns one allocation that holds its strings too.
 */
#include "symbols/modules.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/status.h"
#include "base/strbuf.h"
#include "symbols/elf_cache.h"

void modules_init(struct modules *modules, struct elf_cache *cache)
{
	*modules = (struct modules){.cache = cache};
}

void modules_fini(struct modules *modules)
{
	const struct map_slot *slot;
	size_t cursor = 0;

	while ((slot = map_next(&modules->by_id, &cursor)) != NULL)
		free((struct module *)(uintptr_t)slot->value);
	map_fini(&modules->by_id);
	free(modules->loaded);
	*modules = (struct modules){0};
}

/* One allocation: the module, its build id, its path. */
static struct module *copy(const struct module_info *info)
{
	size_t path_bytes = strlen(info->path) + 1;
	struct module *module;
	char *rest;

	if (info->build_id_length > SIZE_MAX - sizeof(*module) - path_bytes)
		return NULL;
	module = calloc(1, sizeof(*module) + info->build_id_length + path_bytes);
	if (module == NULL)
		return NULL;
	rest = (char *)(module + 1);
	if (info->build_id_length > 0)
		memcpy(rest, info->build_id, info->build_id_length);
	memcpy(rest + info->build_id_length, info->path, path_bytes);
	module->info = *info;
	module->info.build_id = (const uint8_t *)rest;
	module->info.path = rest + info->build_id_length;
	return module;
}

/*
 * The number of loaded modules that end at or before `address`: the index of the first that may
 * hold it.
 */
static size_t first_behind(const struct modules *modules, uint64_t address)
{
	return COUNT_FRONT(at, modules->loaded_count, modules->loaded[at]->info.end <= address);
}

int modules_load(struct modules *modules, const struct module_info *info, uint64_t time_ns,
		 struct module **out_module)
{
	struct module *module;
	size_t first, last;
	int r;

	if (info->base >= info->end || modules_get(modules, info->id) != NULL)
		return MSCOPE_E_DAMAGED;
	if (modules->loaded_count >= MODULES_LOADED_MAX)
		return MSCOPE_E_LIMIT;
	r = array_reserve(&modules->loaded, &modules->loaded_room, modules->loaded_count + 1,
			  sizeof(struct module *));
	if (r < 0)
		return r;
	module = copy(info);
	if (module == NULL)
		return -ENOMEM;
	module->loaded_ns = time_ns;
	module->unloaded_ns = UINT64_MAX;
	module->cache = modules->cache;
	r = map_put(&modules->by_id, (struct map_key){info->id, 0}, (uint64_t)(uintptr_t)module);
	if (r < 0) {
		free(module);
		return r;
	}

	/* The new one takes the place of all that it overlaps. */
	first = first_behind(modules, info->base);
	for (last = first;
	     last < modules->loaded_count && modules->loaded[last]->info.base < info->end; last++) {
		modules->loaded[last]->unloaded_ns = time_ns;
		modules->replaced_count++;
	}
	memmove(modules->loaded + first + 1, modules->loaded + last,
		(modules->loaded_count - last) * sizeof(struct module *));
	modules->loaded[first] = module;
	modules->loaded_count = modules->loaded_count + 1 - (last - first);
	if (out_module != NULL)
		*out_module = module;
	return 0;
}

int modules_unload(struct modules *modules, uint64_t id, uint64_t time_ns)
{
	struct module *module = modules_get(modules, id);
	size_t at;

	if (module == NULL)
		return MSCOPE_E_ABSENT;
	if (module->unloaded_ns != UINT64_MAX)
		return MSCOPE_E_STATE;
	at = first_behind(modules, module->info.base);
	memmove(modules->loaded + at, modules->loaded + at + 1,
		(modules->loaded_count - at - 1) * sizeof(struct module *));
	modules->loaded_count--;
	module->unloaded_ns = time_ns;
	return 0;
}

struct module *modules_find(const struct modules *modules, uint64_t address)
{
	size_t at = first_behind(modules, address);

	if (at == modules->loaded_count || modules->loaded[at]->info.base > address)
		return NULL;
	return modules->loaded[at];
}

struct module *modules_get(const struct modules *modules, uint64_t id)
{
	const uint64_t *found = map_get(&modules->by_id, (struct map_key){id, 0});

	return found == NULL ? NULL : (struct module *)(uintptr_t)*found;
}

/* Whether another try may go better: nothing was wrong with the file itself. */
static bool worth_trying(int status)
{
	return status == 0 || status == MSCOPE_E_LIMIT || status == -EMFILE || status == -ENFILE ||
	       status == -ENOMEM;
}

static int find_file(struct module *module, const char *root, bool read_now)
{
	const struct elf_wish wish = {
		.root = root,
		.path = module->info.path,
		.build_id = module->info.build_id,
		.build_id_length = module->info.build_id_length,
	};

	if (module->file != NULL)
		return 0;
	if (worth_trying(module->file_status)) {
		module->file_status = elf_cache_open(module->cache, &wish, read_now, &module->file);
		return module->file_status;
	}
	/* Another process may have found the same file meanwhile. */
	module->file = elf_cache_find(module->cache, wish.build_id, wish.build_id_length);
	if (module->file != NULL)
		module->file_status = 0;
	return module->file_status;
}

int module_pin(struct module *module, const char *root)
{
	return find_file(module, root, false);
}

int module_lookup(struct module *module, const char *root, uint64_t address, const char **out_name,
		  uint64_t *out_offset)
{
	int r = find_file(module, root, true);

	if (r < 0)
		return r;
	return elf_cache_lookup(module->cache, module->file, address - module->info.bias, out_name,
				out_offset);
}

/* As printf's %#tx does it: no 0x before a zero. */
static void add_offset(struct strbuf *out, uint64_t from, uint64_t to)
{
	uint64_t offset = to >= from ? to - from : from - to;

	strbuf_add_char(out, to >= from ? '+' : '-');
	if (offset == 0)
		strbuf_add_char(out, '0');
	else
		strbuf_add_hex(out, offset, 1);
}

int module_symbolise(struct module *module, const char *root, uint64_t address, struct strbuf *out)
{
	if (module != NULL) {
		const char *name;
		uint64_t offset;

		strbuf_add_str(out, module->info.path);
		strbuf_add_char(out, '(');
		if (module_lookup(module, root, address, &name, &offset) == 0) {
			strbuf_add_str(out, name);
			add_offset(out, 0, offset);
		} else if (module->info.bias != 0) {
			add_offset(out, module->info.bias, address);
		}
		strbuf_add_str(out, ") ");
	}
	strbuf_add_char(out, '[');
	strbuf_add_hex(out, address, 1);
	strbuf_add_char(out, ']');
	return strbuf_failed(out) ? -ENOMEM : 0;
}
