/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The map of loaded objects, written before the first stack that may point into a new one. The loader counts its loads and
 * unloads; while both counts stay the same, the list is not walked. dlclose() is hooked for one reason only: an address may mean
 * another function afterwards, so the stack tables of the writers and the rows of the unwinder must not match any more. An object that
 * goes in another way is noticed at the next new stack.
 *
 * One thread writes at a time. The lock is held during the walk, which waits for the loader; so a thread that records its first
 * stack inside dlopen() may not get it. It then goes on, and its stack comes before the module that it points into.
 */
#include "collector/record/module_map.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "collector/loader/hook.h"
#include "collector/loader/walk.h"
#include "collector/lock.h"
#include "collector/sys.h"
#include "collector/unwind/frame_tables.h"
#include "collector/unwind/unwind.h"

#define MODULES_MAX	4096u
#define MODULES_WAIT_NS UINT64_C(1000000000)

struct known {
	uint64_t bias;
	uint64_t identity;
	uint32_t id; /* 0: free slot */
	bool seen;
};

static struct lock lock; /* guards what follows */
static struct known known[MODULES_MAX];
static uint32_t known_count, next_id;
static uint32_t known_epoch; /* unwind_now.epoch when the map was written */
static char path_room[SESSION_PATH_MAX];
static char text_room[SESSION_PATH_MAX + 512];

/* The loader's counts of loads and unloads when the map was written, and collector.generation of the trace that it is in. */
static _Atomic uint64_t known_adds, known_subs;
static _Atomic uint32_t known_generation;

struct counts {
	uint64_t adds;
	uint64_t subs;
};

static int read_counts(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct counts *counts = arg;

	if (size >= offsetof(struct dl_phdr_info, dlpi_subs) + sizeof(info->dlpi_subs)) {
		counts->adds = info->dlpi_adds;
		counts->subs = info->dlpi_subs;
	}
	return 1;
}

/* The build id in a note segment that the loader has mapped. */
static const uint8_t *find_build_id(const struct dl_phdr_info *info, uint32_t *out_bytes)
{
	uint32_t i;

	for (i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		const uint8_t *at = (const uint8_t *)(info->dlpi_addr + p->p_vaddr);
		const uint8_t *end = at + p->p_memsz;

		while (p->p_type == PT_NOTE && (size_t)(end - at) >= sizeof(ElfW(Nhdr))) {
			const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)(const void *)at;
			uint64_t name = round_up_u64(note->n_namesz, 4);
			uint64_t room = (uint64_t)(end - at) - sizeof(*note);

			if (name > room || note->n_descsz > room - name)
				break;
			at += sizeof(*note);
			if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 &&
			    memcmp(at, "GNU", 4) == 0) {
				*out_bytes = note->n_descsz < 64 ? note->n_descsz : 64;
				return at + name;
			}
			room -= name;
			at += name + (round_up_u64(note->n_descsz, 4) < room
					      ? round_up_u64(note->n_descsz, 4)
					      : room);
		}
	}
	*out_bytes = 0;
	return (const uint8_t *)"";
}

static void put_load(struct writer *w, const struct dl_phdr_info *info, const char *path,
		     uint32_t id)
{
	struct event_module_load event = {.id = id, .bias = info->dlpi_addr, .start = UINT64_MAX};
	uint64_t words[EVENT_BYTES_module_load / 8];
	uint32_t part_bytes[2], i;
	const void *parts[2];

	for (i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uint64_t start = info->dlpi_addr + p->p_vaddr;

		if (p->p_type != PT_LOAD)
			continue;
		if (start < event.start)
			event.start = start;
		if (start + p->p_memsz > event.end)
			event.end = start + p->p_memsz;
	}
	if (event.end == 0)
		return;
	parts[0] = find_build_id(info, &part_bytes[0]);
	parts[1] = path;
	part_bytes[1] = (uint32_t)strlen(path);
	if (part_bytes[1] > 4096)
		part_bytes[1] = 4096;
	event.build_id_bytes = part_bytes[0];
	event.path_bytes = part_bytes[1];
	event_module_load_encode(words, &event);
	(void)writer_put(w, EVENT_module_load, 0, words, MSCOPE_COUNT(words), parts, part_bytes, 2);
}

struct walk {
	struct writer *w;
	bool loads; /* false in the first walk, which marks what is still there; the second writes what is new */
};

/*
 * The loader has the path as the program wrote it, perhaps relative to a directory that is not the current one any more; the kernel
 * has the full path. Reads /proc/self/maps with one small buffer, since few objects come here.
 */
static const char *absolute_path(const struct dl_phdr_info *info)
{
	char *buffer = text_room, *absolute = path_room;
	uint64_t inside = 0;
	size_t have = 0;
	uint32_t i;
	ssize_t got;
	int fd;

	for (i = 0; i < info->dlpi_phnum && inside == 0; i++) {
		if (info->dlpi_phdr[i].p_type == PT_LOAD)
			inside = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
	}
	fd = sys_open("/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return info->dlpi_name;
	absolute[0] = '\0';
	while (absolute[0] == '\0' &&
	       (got = sys_read(fd, buffer + have, sizeof(text_room) - 1 - have)) > 0) {
		char *line = buffer, *stop;

		have += (size_t)got;
		buffer[have] = '\0';
		while ((stop = strchr(line, '\n')) != NULL) {
			char *end, *path;
			uint64_t from = strtoull(line, &end, 16), to;

			*stop = '\0';
			to = *end == '-' ? strtoull(end + 1, NULL, 16) : 0;
			path = strchr(line, '/');
			if (inside >= from && inside < to && path != NULL &&
			    strlen(path) < sizeof(path_room))
				memcpy(absolute, path, strlen(path) + 1);
			line = stop + 1;
		}
		have -= (size_t)(line - buffer);
		memmove(buffer, line, have);
	}
	sys_close(fd);
	return absolute[0] != '\0' ? absolute : info->dlpi_name;
}

/* The program itself has no name in the loader's list. */
static const char *program_path(void)
{
	ssize_t length =
		quiet_is_on() ? 0 : readlink("/proc/self/exe", path_room, sizeof(path_room) - 1);

	path_room[length > 0 ? length : 0] = '\0';
	return path_room;
}

/* An object is the same as before if place, name and build id are. */
static uint64_t identify(const struct dl_phdr_info *info)
{
	uint64_t hash = hash_text(info->dlpi_name != NULL ? info->dlpi_name : "");
	uint32_t bytes;
	const uint8_t *build_id = find_build_id(info, &bytes);

	return hash_add(hash, build_id, bytes);
}

static int visit(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct walk *walk = arg;
	uint64_t identity = identify(info);
	struct known *slot = NULL;
	const char *path;
	uint32_t i;

	(void)size;
	for (i = 0; i < known_count; i++) {
		if (known[i].id != 0 && known[i].bias == info->dlpi_addr &&
		    known[i].identity == identity) {
			known[i].seen = true;
			if (walk->loads)
				tables_add(info);
			return 0;
		}
		if (known[i].id == 0 && slot == NULL)
			slot = &known[i];
	}
	if (!walk->loads)
		return 0;
	tables_add(info);
	if (slot == NULL) {
		if (known_count == MODULES_MAX)
			return 0;
		slot = &known[known_count++];
	}
	*slot = (struct known){
		.bias = info->dlpi_addr, .identity = identity, .id = ++next_id, .seen = true};
	path = info->dlpi_name;
	if (path == NULL || path[0] == '\0')
		path = program_path();
	else if (path[0] != '/' && strchr(path, '/') != NULL)
		path = absolute_path(info);
	put_load(walk->w, info, path, slot->id);
	return 0;
}

static void put_unloads(struct writer *w)
{
	uint32_t i;

	for (i = 0; i < known_count; i++) {
		struct event_module_unload event = {.id = known[i].id};
		uint64_t words[EVENT_BYTES_module_unload / 8];

		if (known[i].id == 0 || known[i].seen)
			continue;
		event_module_unload_encode(words, &event);
		(void)writer_put(w, EVENT_module_unload, 0, words, MSCOPE_COUNT(words), NULL, NULL,
				 0);
		known[i].id = 0;
	}
}

void modules_refresh(struct writer *w)
{
	struct counts counts = {0};
	struct walk walk = {.w = w};
	uint32_t i;

	(void)loader_walk(read_counts, &counts);
	/* The generation was stored last, so the counts that are read after it are those of its map or later. */
	if (atomic_load_explicit(&known_generation, memory_order_acquire) == collector.generation &&
	    atomic_load_explicit(&known_adds, memory_order_acquire) == counts.adds &&
	    atomic_load_explicit(&known_subs, memory_order_acquire) == counts.subs)
		return;
	if (!lock_take_within(&lock, MODULES_WAIT_NS))
		return;
	/* A child starts its own numbering; what the parent had written is in the parent's trace. */
	if (atomic_load_explicit(&known_generation, memory_order_relaxed) != collector.generation)
		known_count = next_id = 0;
	/* An object may be gone and another in its place: unloads are written first, then loads. */
	for (i = 0; i < known_count; i++)
		known[i].seen = false;
	(void)loader_walk(visit, &walk);
	put_unloads(w);
	walk.loads = true;
	tables_begin();
	(void)loader_walk(visit, &walk);
	tables_end();
	/* An object has gone without dlclose(): libc unloads some by itself. */
	if (atomic_load_explicit(&known_subs, memory_order_relaxed) != counts.subs &&
	    known_epoch == atomic_load(&unwind_now.epoch))
		unwind_forget();
	known_epoch = atomic_load(&unwind_now.epoch);
	atomic_store_explicit(&known_subs, counts.subs, memory_order_release);
	atomic_store_explicit(&known_adds, counts.adds, memory_order_release);
	atomic_store_explicit(&known_generation, collector.generation, memory_order_release);
	lock_release(&lock);
}

#define HOOK HOOK_DECLARE
#include "collector/record/hooks.def"
#undef HOOK
#define HOOK HOOK_DEFINE
#include "collector/record/hooks.def"
#undef HOOK

MSCOPE_EXPORT int dlclose(void *handle)
{
	hook_dlclose *original = HOOK_ORIGINAL(dlclose);
	int r;

	if (original == NULL)
		return -1;
	unwind_unload_begin();
	r = original(handle);
	unwind_unload_end();
	return r;
}
