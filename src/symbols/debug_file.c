/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols/debug_file.h"

#include <fcntl.h>
#include <gelf.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/status.h"
#include "base/strbuf.h"
#include "symbols/elf_cache.h"

#define DEBUG_DIRECTORY "/usr/lib/debug"

/* As for build ids of modules: shorter ones make no path, longer ones are not known. */
#define BUILD_ID_BYTES_MIN 3
#define BUILD_ID_BYTES_MAX 64

/* What a file must be to count. */
struct proof {
	const uint8_t *build_id;
	size_t build_id_length; /* 0: the checksum decides */
	uint32_t crc;
};

/* An opened ELF file. Zeroed with fd -1 it is none. */
struct opened {
	int fd;
	Elf *elf;
};

static void opened_close(struct opened *file)
{
	(void)elf_end(file->elf);
	if (file->fd >= 0)
		(void)close(file->fd);
	*file = (struct opened){.fd = -1};
}

/* Takes the descriptor. */
static bool opened_init(struct opened *file, int fd)
{
	struct stat st;

	*file = (struct opened){.fd = fd};
	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		file->elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	if (file->elf != NULL && elf_kind(file->elf) == ELF_K_ELF)
		return true;
	opened_close(file);
	return false;
}

/* The first section of this name that lies in the file, else NULL. */
static Elf_Scn *find_section(Elf *elf, const char *name)
{
	Elf_Scn *section = NULL;
	size_t names;

	if (elf_getshdrstrndx(elf, &names) != 0)
		return NULL;
	while ((section = elf_nextscn(elf, section)) != NULL) {
		GElf_Shdr header;
		const char *found;

		if (gelf_getshdr(section, &header) == NULL || header.sh_type == SHT_NOBITS)
			continue;
		found = elf_strptr(elf, names, header.sh_name);
		if (found != NULL && strcmp(found, name) == 0)
			return section;
	}
	return NULL;
}

static bool has_dwarf(Elf *elf)
{
	return find_section(elf, ".debug_info") != NULL ||
	       find_section(elf, ".zdebug_info") != NULL;
}

/* What lies in a section; NULL when there is none. */
static const char *read_section(Elf *elf, const char *name, size_t *out_bytes)
{
	Elf_Scn *section = find_section(elf, name);
	Elf_Data *data = section == NULL ? NULL : elf_getdata(section, NULL);

	if (data == NULL || data->d_buf == NULL)
		return NULL;
	*out_bytes = data->d_size;
	return data->d_buf;
}

/* By the section, because segments of a file that was split off may point anywhere. */
static bool has_build_id(Elf *elf, const uint8_t *build_id, size_t length)
{
	size_t bytes;
	const char *note = read_section(elf, ".note.gnu.build-id", &bytes);
	GElf_Nhdr head;

	if (note == NULL || bytes < sizeof(head) + sizeof("GNU"))
		return false;
	memcpy(&head, note, sizeof(head));
	note += sizeof(head);
	return head.n_type == NT_GNU_BUILD_ID && head.n_namesz == sizeof("GNU") &&
	       memcmp(note, "GNU", sizeof("GNU")) == 0 && head.n_descsz == length &&
	       bytes - sizeof(head) - sizeof("GNU") >= length && length > 0 &&
	       memcmp(note + sizeof("GNU"), build_id, length) == 0;
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
	if (has_dwarf(out_file->elf) &&
	    (proof->build_id_length > 0
		     ? has_build_id(out_file->elf, proof->build_id, proof->build_id_length)
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

static bool try_link(const struct debug_wish *wish, Elf *module, struct opened *out_file)
{
	static const char *const before[] = {"", "", DEBUG_DIRECTORY}, *const behind[] = {
									       "", ".debug/", ""};
	struct proof proof = {.build_id = wish->build_id, .build_id_length = wish->build_id_length};
	const char *slash = strrchr(wish->path, '/');
	size_t i, bytes, length;
	const char *name = read_section(module, ".gnu_debuglink", &bytes);

	if (slash == NULL || name == NULL || bytes < sizeof(proof.crc))
		return false;
	/* The checksum ends the section; padding comes before it. */
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

/*
 * The file that `debug` shares DWARF with. Its name is absolute, or relative to a directory that is not known for sure; the
 * build id leads to it wherever distributions install it.
 */
static int find_alt(const struct debug_wish *wish, Elf *debug)
{
	size_t bytes = 0;
	const char *name = read_section(debug, ".gnu_debugaltlink", &bytes);
	const char *end = name == NULL ? NULL : memchr(name, '\0', bytes);
	struct proof proof;
	struct opened file;
	int fd;

	if (end == NULL)
		return -1;
	proof.build_id = (const uint8_t *)end + 1;
	proof.build_id_length = bytes - (size_t)(end + 1 - name);
	if (!try_build_id(wish->root, proof.build_id, proof.build_id_length, &file)) {
		struct strbuf path = {0};
		bool found;

		strbuf_add_str(&path, name);
		found = proof.build_id_length > 0 && try_roots(wish->root, &path, &proof, &file);
		strbuf_fini(&path);
		if (!found)
			return -1;
	}
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

	(void)elf_version(EV_CURRENT);
	if (opened_init(&module, fd)) {
		/* Another file may have taken the place of the one that was loaded. */
		if (wish->fd < 0 &&
		    !has_build_id(module.elf, wish->build_id, wish->build_id_length)) {
			opened_close(&module);
		} else if (has_dwarf(module.elf)) {
			debug = module;
			module = (struct opened){.fd = -1};
			found = true;
		}
	}
	if (!found)
		found = try_build_id(wish->root, wish->build_id, wish->build_id_length, &debug);
	if (!found && module.elf != NULL)
		found = try_link(wish, module.elf, &debug);
	opened_close(&module);
	if (!found)
		return MSCOPE_E_ABSENT;
	out_files->alt_fd = find_alt(wish, debug.elf);
	out_files->fd = debug.fd;
	debug.fd = -1;
	opened_close(&debug);
	return 0;
}
