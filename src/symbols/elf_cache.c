/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One map serves both kinds of identity: its keys are hashes, and what hangs off a key is compared
 * in full. A file that turns out not to be the wanted one is closed again and leaves no trace here.
 */
#include "symbols/elf_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/hash.h"
#include "base/status.h"
#include "symbols/elf.h"
#include "symbols/lines.h"

/* Which file it is when there is no build id to tell. */
struct identity {
	dev_t device;
	ino_t inode;
	off_t bytes;
	struct timespec changed;
};

struct cached_elf {
	struct cached_elf *next; /* of the same hash */
	struct elf *elf;
	struct identity identity;
	bool pinned;
	int kept_fd; /* of a pinned file whose symbols were read; -1 */
};

static struct map_key key_of_build_id(const uint8_t *build_id, size_t length)
{
	return (struct map_key){hash_add(HASH_BEGIN, build_id, length), length};
}

static struct map_key key_of_identity(const struct identity *identity)
{
	return (struct map_key){(uint64_t)identity->device, (uint64_t)identity->inode};
}

static bool same_identity(const struct identity *x, const struct identity *y)
{
	return x->device == y->device && x->inode == y->inode && x->bytes == y->bytes &&
	       x->changed.tv_sec == y->changed.tv_sec && x->changed.tv_nsec == y->changed.tv_nsec;
}

static bool has_build_id(const struct elf *elf, const uint8_t *build_id, size_t length)
{
	size_t have_length;
	const uint8_t *have = elf_build_id(elf, &have_length);

	return have_length == length && (length == 0 || memcmp(have, build_id, length) == 0);
}

static struct cached_elf *chain(const struct elf_cache *cache, struct map_key key)
{
	const uint64_t *head = map_get(&cache->files, key);

	return head == NULL ? NULL : (struct cached_elf *)(uintptr_t)*head;
}

struct cached_elf *elf_cache_find(const struct elf_cache *cache, const uint8_t *build_id,
				  size_t build_id_length)
{
	struct cached_elf *file;

	if (build_id_length == 0)
		return NULL;
	for (file = chain(cache, key_of_build_id(build_id, build_id_length)); file != NULL;
	     file = file->next) {
		if (has_build_id(file->elf, build_id, build_id_length))
			return file;
	}
	return NULL;
}

static struct cached_elf *find_identity(const struct elf_cache *cache,
					const struct identity *identity)
{
	struct cached_elf *file;

	for (file = chain(cache, key_of_identity(identity)); file != NULL; file = file->next) {
		if (has_build_id(file->elf, NULL, 0) && same_identity(&file->identity, identity))
			return file;
	}
	return NULL;
}

/*
 * A path inside a container may lead over an absolute symbolic link (as /etc/alternatives has
 * them), which plain openat() would follow from our root instead. The path is what the traced
 * process says, so that nothing is waited for and no terminal taken.
 */
int elf_cache_open_below(const char *root, const char *path)
{
	const int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
	struct open_how how = {.flags = (unsigned int)flags, .resolve = RESOLVE_IN_ROOT};
	int dir, fd, saved;

	if (path[0] != '/')
		return -ENOENT;
	if (root[0] == '\0') {
		fd = open(path, flags);
		return fd < 0 ? -errno : fd;
	}
	dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -errno;
	fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
	/* EPERM comes from container filters that do not know the call. */
	if (fd < 0 && (errno == ENOSYS || errno == EPERM))
		fd = openat(dir, path + strspn(path, "/"), flags);
	saved = errno;
	(void)close(dir);
	return fd < 0 ? -saved : fd;
}

/* Puts `file` in front of its chain. */
static int insert(struct elf_cache *cache, struct cached_elf *file)
{
	size_t length;
	const uint8_t *build_id = elf_build_id(file->elf, &length);
	struct map_key key =
		length > 0 ? key_of_build_id(build_id, length) : key_of_identity(&file->identity);

	file->next = chain(cache, key);
	return map_put(&cache->files, key, (uint64_t)(uintptr_t)file);
}

int elf_cache_open(struct elf_cache *cache, const struct elf_wish *wish, bool read_now,
		   struct cached_elf **out_file)
{
	struct cached_elf *file = elf_cache_find(cache, wish->build_id, wish->build_id_length);
	struct identity identity;
	struct stat st;
	int fd, r;

	if (file != NULL) {
		*out_file = file;
		return 0;
	}
	if (!read_now && (cache->pinned_count >= ELF_CACHE_PINNED_MAX ||
			  cache->pinned_count >= descriptors_limit() / 4))
		return MSCOPE_E_LIMIT;

	fd = elf_cache_open_below(wish->root, wish->path);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0) {
		r = -errno;
		goto out;
	}
	identity = (struct identity){st.st_dev, st.st_ino, st.st_size, st.st_mtim};
	if (wish->build_id_length == 0) {
		struct cached_elf *known = find_identity(cache, &identity);

		if (known != NULL) {
			*out_file = known;
			r = 0;
			goto out;
		}
	}

	file = calloc(1, sizeof(*file));
	if (file == NULL) {
		r = -ENOMEM;
		goto out;
	}
	file->identity = identity;
	file->kept_fd = -1;
	r = elf_open(fd, &file->elf, NULL);
	if (r < 0)
		goto out;
	fd = -1;
	r = has_build_id(file->elf, wish->build_id, wish->build_id_length) ? insert(cache, file)
									   : MSCOPE_E_ABSENT;
	if (r < 0)
		goto out;
	file->pinned = true;
	cache->pinned_count++;
	cache->file_count++;
	*out_file = file;
	return 0;

out:
	if (file != NULL)
		elf_close(file->elf);
	free(file);
	if (fd >= 0)
		(void)close(fd);
	return r;
}

int elf_cache_lookup(struct elf_cache *cache, struct cached_elf *file, uint64_t vaddr,
		     const char **out_name, uint64_t *out_offset)
{
	if (file->pinned && file->kept_fd < 0) {
		/* Reading symbols closes the file's own descriptor. */
		if (cache->keep_open && cache->pinned_count <= ELF_CACHE_PINNED_MAX)
			file->kept_fd = fcntl(elf_descriptor(file->elf), F_DUPFD_CLOEXEC, 3);
		if (file->kept_fd < 0) {
			file->pinned = false;
			cache->pinned_count--;
		}
	}
	return elf_lookup(file->elf, vaddr, out_name, out_offset);
}

int elf_cache_descriptor(const struct cached_elf *file)
{
	return file->kept_fd >= 0 ? file->kept_fd : elf_descriptor(file->elf);
}

void elf_cache_fini(struct elf_cache *cache)
{
	const struct map_slot *slot;
	size_t cursor = 0;

	while ((slot = map_next(&cache->files, &cursor)) != NULL) {
		struct cached_elf *file = (struct cached_elf *)(uintptr_t)slot->value;

		while (file != NULL) {
			struct cached_elf *next = file->next;

			elf_close(file->elf);
			if (file->kept_fd >= 0)
				(void)close(file->kept_fd);
			free(file);
			file = next;
		}
	}
	lines_free(cache->lines);
	map_fini(&cache->files);
	*cache = (struct elf_cache){0};
}
