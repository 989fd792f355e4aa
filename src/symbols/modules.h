/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The module map of one traced process: which executable or library lay where, as the trace tells
 * it in the order of time, and from there the text of a C frame.
 *
 * A module stays known by its id after it was unloaded, until modules_fini(). A load that overlaps
 * loaded modules ends them: their unload was not recorded. The files behind modules are shared
 * between processes through a struct elf_cache. Everything a trace says is taken as a claim;
 * nothing here trusts it. Not thread-safe.
 */
#ifndef MSCOPE_SYMBOLS_MODULES_H
#define MSCOPE_SYMBOLS_MODULES_H

#include "base/compiler.h"
#include "base/map.h"

struct elf_cache;
struct cached_elf;
struct strbuf;

/* Upper bound; no real process loads this many modules. */
#define MODULES_LOADED_MAX 65536

/* What a trace tells of a module. */
struct module_info {
	uint64_t id;
	uint64_t base;	  /* first address */
	uint64_t end;	  /* first address behind it */
	uint64_t bias;	  /* what was added to link-time addresses (dlpi_addr); not always `base` */
	const char *path; /* as printed; absolute if its file is to be found */
	const uint8_t *build_id;
	size_t build_id_length; /* 0 when the file had none */
};

struct module {
	struct module_info info; /* path and build id belong to the module */
	uint64_t loaded_ns;
	uint64_t unloaded_ns;	 /* UINT64_MAX while it is loaded */
	struct cached_elf *file; /* borrowed from the cache; NULL as long as there is none */
	int file_status; /* why there is none: a code of elf_cache_open(), 0 before the first try */
	struct elf_cache *cache;
};

struct modules {
	struct elf_cache *cache;
	struct map by_id;	/* id -> struct module */
	struct module **loaded; /* by address, disjoint */
	size_t loaded_count, loaded_room;
	size_t replaced_count; /* modules that ended because another was loaded over them */
};

/* `cache` is borrowed and outlives the map. */
void modules_init(struct modules *modules, struct elf_cache *cache);
void modules_fini(struct modules *modules);

/*
 * Copies `info`. MSCOPE_E_DAMAGED: the id was used before, or base and end do not make a range.
 * MSCOPE_E_LIMIT: too many are loaded. -ENOMEM. The map is unchanged on failure. The module is
 * borrowed; `out_module` may be NULL.
 */
int modules_load(struct modules *modules, const struct module_info *info, uint64_t time_ns,
		 struct module **out_module);

/* MSCOPE_E_ABSENT for an id that never was, MSCOPE_E_STATE for a module that is unloaded. */
int modules_unload(struct modules *modules, uint64_t id, uint64_t time_ns);

/* The loaded module that holds `address`, else NULL. Borrowed. */
struct module *modules_find(const struct modules *modules, uint64_t address);

/* The module with this id, loaded or not, else NULL. Borrowed. */
struct module *modules_get(const struct modules *modules, uint64_t id);

/*
 * Opens the file of a module now, to have it when it has vanished later. `root` is "" or
 * "/proc/PID/root", where the path of the module begins. Returns what elf_cache_open() returns; a
 * failure only means fewer names, and the reason stays in file_status.
 */
int module_pin(struct module *module, const char *root);

/*
 * The function that holds `address`, as elf_lookup() tells it. Opens the file when module_pin() did
 * not; a code of elf_cache_open() or elf_lookup().
 */
int module_lookup(struct module *module, const char *root, uint64_t address, const char **out_name,
		  uint64_t *out_offset);

/*
 * Appends one frame as backtrace_symbols() of glibc prints it:
 *
 *     path(symbol+0x1f) [0x7f0012345678]
 *     path(+0x3e1214) [0xf79abf7d1214]      no symbol, or not the file that was loaded
 *     path() [0x401136]                     the same in a module without load bias
 *     [0x7f0012345678]                      `module` is NULL
 *
 * Opens the file when module_pin() did not. 0, or -ENOMEM when the text could not be appended.
 */
int module_symbolise(struct module *module, const char *root, uint64_t address, struct strbuf *out);

#endif
