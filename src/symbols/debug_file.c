/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols/debug_file.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/status.h"
#include "base/strbuf.h"
#include "symbols/elf_cache.h"
#include "symbols/elf_file.h"

#define DEBUG_DIRECTORY "/usr/lib/debug"

/* As for build ids of modules: shorter ones make no path, longer ones are not known. */
#define BUILD_ID_BYTES_MIN 3
#define BUILD_ID_BYTES_MAX 64

/* Of the sections that are read whole: names and notes. */
#define SECTION_BYTES_MAX (UINT64_C(1) << 24)

/* What a file must be to count. */
struct proof {
	const uint8_t *build_id;
	size_t build_id_length; /* 0: the checksum decides */
	uint32_t crc;
};

/* An opened ELF file. Zeroed with fd -1 it is none. */
struct opened {
	int fd;
	struct elf_file elf;
	struct elf_sections sections;
	char *names; /* of sections */
	uint64_t names_bytes;
};

/* Also of one that never was more than zeroed. */
static void opened_close(struct opened *file)
{
	elf_file_fini(&file->elf);
	free(file->sections.headers);
	free(file->names);
	if (file->fd >= 0)
		(void)close(file->fd);
	*file = (struct opened){.fd = -1};
}

/* Without names no section is found. */
static int read_names(struct opened *file)
{
	const struct elf_sections *sections = &file->sections;
	uint64_t index = file->elf.header.e_shstrndx;

	if (sections->count == 0)
		return 0;
	if (index == SHN_XINDEX)
		index = sections->headers[0].sh_link;
	if (index >= sections->count)
		return MSCOPE_E_DAMAGED;
	file->names_bytes = sections->headers[index].sh_size;
	return elf_file_read(&file->elf, sections->headers[index].sh_offset, file->names_bytes,
			     SECTION_BYTES_MAX, &file->names);
}

/* Takes the descriptor. */
static bool opened_init(struct opened *file, int fd)
{
	*file = (struct opened){.fd = fd};
	if (fd >= 0 && elf_file_open(fd, &file->elf, NULL) == 0 &&
	    elf_file_sections(&file->elf, &file->sections) == 0 && read_names(file) == 0)
		return true;
	opened_close(file);
	return false;
}

/* The first section of this name that lies in the file, else NULL. */
static const Elf64_Shdr *find_section(const struct opened *file, const char *name)
{
	size_t i;

	for (i = 1; i < file->sections.count; i++) {
		const Elf64_Shdr *section = &file->sections.headers[i];

		if (section->sh_type != SHT_NOBITS && section->sh_name < file->names_bytes &&
		    strcmp(file->names + section->sh_name, name) == 0)
			return section;
	}
	return NULL;
}

static bool has_dwarf(const struct opened *file)
{
	return find_section(file, ".debug_info") != NULL ||
	       find_section(file, ".zdebug_info") != NULL;
}

/* New memory with what lies in a section, ended by a NUL; NULL when there is none. */
static char *read_section(const struct opened *file, const char *name, size_t *out_bytes)
{
	const Elf64_Shdr *section = find_section(file, name);
	char *data;

	if (section == NULL || elf_file_read(&file->elf, section->sh_offset, section->sh_size,
					     SECTION_BYTES_MAX, &data) < 0)
		return NULL;
	*out_bytes = (size_t)section->sh_size;
	return data;
}

/* By the section, because segments of a file that was split off may point anywhere. */
static bool has_build_id(const struct opened *file, const uint8_t *build_id, size_t length)
{
	size_t bytes, name_at = sizeof(Elf64_Nhdr), id_at = name_at + sizeof("GNU");
	char *note = read_section(file, ".note.gnu.build-id", &bytes);
	Elf64_Nhdr head;
	bool has = false;

	if (note != NULL && bytes >= id_at) {
		memcpy(&head, note, sizeof(head));
		has = head.n_type == NT_GNU_BUILD_ID && head.n_namesz == sizeof("GNU") &&
		      memcmp(note + name_at, "GNU", sizeof("GNU")) == 0 &&
		      head.n_descsz == length && bytes - id_at >= length && length > 0 &&
		      memcmp(note + id_at, build_id, length) == 0;
	}
	free(note);
	return has;
}

static bool has_crc(int fd, uint32_t wanted)
{
	uLong crc = crc32(0, NULL, 0);
	unsigned char block[1 << 16];
	off_t at = 0;
	ssize_t n;

	while ((n = pread(fd, block, sizeof(block), at)) > 0) {
		crc = crc32(crc, block, (uInt)n);
		at += n;
	}
	return n == 0 && (uint32_t)crc == wanted;
}

/* Opens `path` below `root` if it has DWARF and is what is looked for. */
static bool try_path(const char *root, const char *path, const struct proof *proof,
		     struct opened *out_file)
{
	if (!opened_init(out_file, elf_cache_open_below(root, path)))
		return false;
	if (has_dwarf(out_file) &&
	    (proof->build_id_length > 0
		     ? has_build_id(out_file, proof->build_id, proof->build_id_length)
		     : has_crc(out_file->fd, proof->crc)))
		return true;
	opened_close(out_file);
	return false;
}

/* The same below our own root where that is another. Out of memory is as good as no file. */
static bool try_roots(const char *root, const struct strbuf *path, const struct proof *proof,
		      struct opened *out_file)
{
	if (strbuf_failed(path))
		return false;
	return try_path(root, strbuf_str(path), proof, out_file) ||
	       (root[0] != '\0' && try_path("", strbuf_str(path), proof, out_file));
}

static bool try_build_id(const char *root, const uint8_t *build_id, size_t length,
			 struct opened *out_file)
{
	const struct proof proof = {.build_id = build_id, .build_id_length = length};
	struct strbuf path = {0};
	bool found;
	size_t i;

	if (length < BUILD_ID_BYTES_MIN || length > BUILD_ID_BYTES_MAX)
		return false;
	strbuf_add_str(&path, DEBUG_DIRECTORY "/.build-id/");
	for (i = 0; i < length; i++)
		strbuf_addf(&path, i == 1 ? "/%02x" : "%02x", build_id[i]);
	strbuf_add_str(&path, ".debug");
	found = try_roots(root, &path, &proof, out_file);
	strbuf_fini(&path);
	return found;
}

/* `name` is what .gnu_debuglink has: a name, padding, and the checksum at the end. */
static bool try_named(const struct debug_wish *wish, const char *name, size_t bytes,
		      struct opened *out_file)
{
	static const char *const before[] = {"", "", DEBUG_DIRECTORY}, *const behind[] = {
									       "", ".debug/", ""};
	struct proof proof = {.build_id = wish->build_id, .build_id_length = wish->build_id_length};
	const char *slash = strrchr(wish->path, '/');
	size_t i, length;

	if (slash == NULL || bytes < sizeof(proof.crc))
		return false;
	length = strnlen(name, bytes - sizeof(proof.crc));
	if (length == 0 || length == bytes - sizeof(proof.crc) || memchr(name, '/', length) != NULL)
		return false;
	memcpy(&proof.crc, name + bytes - sizeof(proof.crc), sizeof(proof.crc));
	for (i = 0; i < 3; i++) {
		struct strbuf path = {0};
		bool found;

		strbuf_add_str(&path, before[i]);
		strbuf_add(&path, wish->path, (size_t)(slash + 1 - wish->path));
		strbuf_add_str(&path, behind[i]);
		strbuf_add_str(&path, name);
		found = try_roots(wish->root, &path, &proof, out_file);
		strbuf_fini(&path);
		if (found)
			return true;
	}
	return false;
}

static bool try_link(const struct debug_wish *wish, const struct opened *module,
		     struct opened *out_file)
{
	size_t bytes;
	char *name = read_section(module, ".gnu_debuglink", &bytes);
	bool found = name != NULL && try_named(wish, name, bytes, out_file);

	free(name);
	return found;
}

/*
 * The file that `debug` shares DWARF with. Its name is absolute, or relative to a directory that is not known for sure; the
 * build id leads to it wherever distributions install it.
 */
static int find_alt(const struct debug_wish *wish, const struct opened *debug)
{
	size_t bytes = 0;
	char *name = read_section(debug, ".gnu_debugaltlink", &bytes);
	const char *end = name == NULL ? NULL : memchr(name, '\0', bytes);
	struct opened file = {.fd = -1};
	struct strbuf path = {0};
	struct proof proof;
	int fd;

	if (end != NULL) {
		proof.build_id = (const uint8_t *)end + 1;
		proof.build_id_length = bytes - (size_t)(end + 1 - name);
		strbuf_add_str(&path, name);
		if (!try_build_id(wish->root, proof.build_id, proof.build_id_length, &file) &&
		    proof.build_id_length > 0)
			(void)try_roots(wish->root, &path, &proof, &file);
		strbuf_fini(&path);
	}
	free(name);
	fd = file.fd;
	file.fd = -1;
	opened_close(&file);
	return fd;
}

int debug_file_find(const struct debug_wish *wish, struct debug_files *out_files)
{
	struct opened module, debug = {.fd = -1};
	bool found = false;
	int fd = wish->fd >= 0 ? fcntl(wish->fd, F_DUPFD_CLOEXEC, 0)
			       : elf_cache_open_below(wish->root, wish->path);

	if (opened_init(&module, fd)) {
		/* Another file may have taken the place of the one that was loaded. */
		if (wish->fd < 0 && !has_build_id(&module, wish->build_id, wish->build_id_length)) {
			opened_close(&module);
		} else if (has_dwarf(&module)) {
			debug = module;
			module = (struct opened){.fd = -1};
			found = true;
		}
	}
	if (!found)
		found = try_build_id(wish->root, wish->build_id, wish->build_id_length, &debug);
	if (!found && module.fd >= 0)
		found = try_link(wish, &module, &debug);
	opened_close(&module);
	if (!found)
		return MSCOPE_E_ABSENT;
	out_files->alt_fd = find_alt(wish, &debug);
	out_files->fd = debug.fd;
	debug.fd = -1;
	opened_close(&debug);
	return 0;
}
