/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/ld_so.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "symbols/elf_file.h"

#if defined(__x86_64__)
#define OWN_MULTIARCH "x86_64-linux-gnu"
#elif defined(__aarch64__)
#define OWN_MULTIARCH "aarch64-linux-gnu"
#endif

/* Directories that every loader searches; which they are differs between distributions. */
static const char always[] =
	"/lib/" OWN_MULTIARCH ":/usr/lib/" OWN_MULTIARCH ":/lib64:/usr/lib64:/lib:/usr/lib";

enum {
	CACHE_BYTES_MAX = 64 << 20,
	LIBC_BYTES_MAX = 64 << 20,
	CACHE_HEADER_BYTES = 48, /* magic of 20 bytes, then counts and room for later */
	CACHE_ENTRY_BYTES = 24,	 /* flags, key, value, osversion: 4 bytes each; hwcap: 8 */
};

bool ld_so_fits(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct elf_file file;
	bool fits;

	if (fd < 0)
		return false;
	fits = elf_file_open(fd, &file, NULL) == 0 && file.header.e_type == ET_DYN &&
	       file.header.e_machine == ELF_OWN_MACHINE;
	elf_file_fini(&file);
	(void)close(fd);
	return fits;
}

int ld_so_find_along(const char *directories, const char *name, char *out, size_t bytes)
{
	char path[PATH_MAX];

	for (;;) {
		size_t length = strcspn(directories, ":;");
		int n = snprintf(path, sizeof(path), "%.*s%s%s", (int)length, directories,
				 length > 0 ? "/" : "./", name);

		if (n > 0 && (size_t)n < sizeof(path) && (size_t)n < bytes && ld_so_fits(path)) {
			memcpy(out, path, (size_t)n + 1);
			return 0;
		}
		if (directories[length] == '\0')
			return -ENOENT;
		directories += length + 1;
	}
}

/* The whole file, to be freed; NULL when it cannot be read or is too large. */
static char *read_whole(const char *path, size_t limit, size_t *out_bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	size_t bytes = 0;
	char *text = NULL;
	struct stat st;

	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 &&
	    (uint64_t)st.st_size <= limit)
		text = malloc((size_t)st.st_size);
	while (text != NULL && bytes < (size_t)st.st_size) {
		ssize_t got = read(fd, text + bytes, (size_t)st.st_size - bytes);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		bytes += (size_t)got;
	}
	(void)close(fd);
	*out_bytes = bytes;
	return text;
}

static uint32_t word_at(const char *text, size_t at)
{
	uint32_t word;

	memcpy(&word, text + at, sizeof(word));
	return word;
}

/* A string of the cache, or NULL when it does not end inside it. */
static const char *string_at(const char *text, size_t bytes, uint32_t at)
{
	return at < bytes && memchr(text + at, '\0', bytes - at) != NULL ? text + at : NULL;
}

int ld_so_find_cached(const char *cache, const char *name, char *out, size_t bytes)
{
	static const char magic[] = "glibc-ld.so.cache1.1";
	size_t size = 0, i, count;
	char *text = read_whole(cache, CACHE_BYTES_MAX, &size);
	const char *start = text == NULL ? NULL : memmem(text, size, magic, sizeof(magic) - 1);
	int r = -ENOENT;

	/* Older caches have the tables of a still older format before it. Offsets count from the magic. */
	if (start != NULL)
		size -= (size_t)(start - text);
	if (start != NULL && size >= CACHE_HEADER_BYTES) {
		count = word_at(start, sizeof(magic) - 1);
		if (count > (size - CACHE_HEADER_BYTES) / CACHE_ENTRY_BYTES)
			count = (size - CACHE_HEADER_BYTES) / CACHE_ENTRY_BYTES;
		for (i = 0; i < count && r != 0; i++) {
			size_t at = CACHE_HEADER_BYTES + i * CACHE_ENTRY_BYTES;
			const char *key = string_at(start, size, word_at(start, at + 4));
			const char *path = string_at(start, size, word_at(start, at + 8));

			if (key == NULL || path == NULL || strcmp(key, name) != 0 ||
			    strlen(path) >= bytes || !ld_so_fits(path))
				continue;
			memcpy(out, path, strlen(path) + 1);
			r = 0;
		}
	}
	free(text);
	return r;
}

int ld_so_find(const char *name, char *out, size_t bytes)
{
	const char *path = getenv("LD_LIBRARY_PATH");

	if (path != NULL && path[0] != '\0' && ld_so_find_along(path, name, out, bytes) == 0)
		return 0;
	if (ld_so_find_cached(LD_SO_CACHE, name, out, bytes) == 0)
		return 0;
	return ld_so_find_along(always, name, out, bytes);
}

int ld_so_glibc_version(const char *path, char *out, size_t bytes)
{
	static const char title[] = "GNU C Library", word[] = " version ";
	size_t size = 0, length = 0;
	char *text = read_whole(path, LIBC_BYTES_MAX, &size);
	const char *at = text == NULL ? NULL : memmem(text, size, title, sizeof(title) - 1);
	int r = MSCOPE_E_ABSENT;

	/* "GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36." */
	if (at != NULL)
		at = memmem(at, size - (size_t)(at - text) < 200 ? size - (size_t)(at - text) : 200,
			    word, sizeof(word) - 1);
	if (at != NULL) {
		at += sizeof(word) - 1;
		while (at + length < text + size && length + 1 < bytes &&
		       (isdigit((unsigned char)at[length]) || at[length] == '.'))
			length++;
		/* The sentence ends with a full stop. */
		if (length > 0 && at[length - 1] == '.')
			length--;
		if (length > 0) {
			memcpy(out, at, length);
			out[length] = '\0';
			r = 0;
		}
	}
	free(text);
	return r;
}
