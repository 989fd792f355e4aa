/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols/elf_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/status.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	       "headers are used as they are in the file");

#define PROGRAM_HEADERS_MAX 1024
#define SECTIONS_MAX	    (UINT64_C(1) << 20)
#define DYNAMIC_BYTES_MAX   (UINT64_C(1) << 20)
#define BLOCK_ENTRIES	    1024

bool elf_file_has(const struct elf_file *file, uint64_t offset, uint64_t bytes)
{
	return offset <= file->bytes && bytes <= file->bytes - offset;
}

int elf_file_read(const struct elf_file *file, uint64_t offset, uint64_t bytes, uint64_t max,
		  void *out)
{
	char *data;
	int r;

	if (bytes > max)
		return MSCOPE_E_LIMIT;
	if (!elf_file_has(file, offset, bytes))
		return MSCOPE_E_TRUNCATED;
	data = malloc((size_t)bytes + 1);
	if (data == NULL)
		return -ENOMEM;
	data[bytes] = '\0';
	r = io_read_at(file->fd, data, (size_t)bytes, offset);
	if (r < 0) {
		free(data);
		return r;
	}
	memcpy(out, &data, sizeof(data));
	return 0;
}

static int check_header(const Elf64_Ehdr *header, size_t bytes, struct mscope_error *err)
{
	if (bytes < EI_NIDENT || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
		return error_set(err, MSCOPE_E_FOREIGN, "not an ELF file");
	if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB)
		return error_set(err, MSCOPE_E_FOREIGN, "not a 64-bit little-endian ELF file");
	if (bytes < sizeof(*header))
		return error_set(err, MSCOPE_E_TRUNCATED, "the file ends inside the ELF header");
	if (header->e_phnum > PROGRAM_HEADERS_MAX)
		return error_set(err, MSCOPE_E_LIMIT, "%u program headers are too many",
				 header->e_phnum);
	if (header->e_phnum > 0 && header->e_phentsize != sizeof(Elf64_Phdr))
		return error_set(err, MSCOPE_E_DAMAGED, "program headers of %u bytes",
				 header->e_phentsize);
	return 0;
}

int elf_file_open(int fd, struct elf_file *out, struct mscope_error *err)
{
	struct stat st;
	size_t bytes = sizeof(out->header);
	int r;

	*out = (struct elf_file){.fd = fd};
	if (fstat(fd, &st) < 0)
		return error_set(err, -errno, "cannot look at the file: %s", strerror(errno));
	if (!S_ISREG(st.st_mode))
		return error_set(err, MSCOPE_E_FOREIGN, "not a regular file");
	out->bytes = (uint64_t)st.st_size;
	if (out->bytes < bytes)
		bytes = (size_t)out->bytes;
	r = io_read_at(fd, &out->header, bytes, 0);
	if (r < 0)
		return error_set(err, r, "cannot read the ELF header: %s", mscope_status_str(r));
	r = check_header(&out->header, bytes, err);
	if (r < 0)
		return r;
	r = elf_file_read(out, out->header.e_phoff, out->header.e_phnum * sizeof(*out->segments),
			  UINT64_MAX, &out->segments);
	if (r < 0)
		return error_set(err, r, "cannot read the program headers: %s",
				 mscope_status_str(r));
	out->segment_count = out->header.e_phnum;
	return 0;
}

void elf_file_fini(struct elf_file *file)
{
	free(file->segments);
	file->segments = NULL;
	file->segment_count = 0;
}

const Elf64_Phdr *elf_file_segment(const struct elf_file *file, uint32_t type)
{
	size_t i;

	for (i = 0; i < file->segment_count; i++) {
		if (file->segments[i].p_type == type)
			return &file->segments[i];
	}
	return NULL;
}

bool elf_file_place(const struct elf_file *file, uint64_t vaddr, uint64_t *out_offset,
		    uint64_t *out_bytes)
{
	size_t i;

	for (i = 0; i < file->segment_count; i++) {
		const Elf64_Phdr *segment = &file->segments[i];
		uint64_t into = vaddr - segment->p_vaddr;

		if (segment->p_type == PT_LOAD && vaddr >= segment->p_vaddr &&
		    into < segment->p_filesz && segment->p_offset <= UINT64_MAX - into) {
			*out_offset = segment->p_offset + into;
			*out_bytes = segment->p_filesz - into;
			return true;
		}
	}
	return false;
}

int elf_file_take(const struct elf_file *file, uint64_t address, uint64_t bytes, uint64_t max,
		  void *out)
{
	uint64_t offset, there;

	if (bytes > max)
		return MSCOPE_E_LIMIT;
	if (!elf_file_place(file, address, &offset, &there) || bytes > there)
		return MSCOPE_E_DAMAGED;
	return elf_file_read(file, offset, bytes, max, out);
}

int elf_file_sections(const struct elf_file *file, struct elf_sections *out)
{
	const Elf64_Ehdr *header = &file->header;
	uint64_t count = header->e_shnum;
	int r;

	if (header->e_shoff == 0)
		return 0;
	if (header->e_shentsize != sizeof(Elf64_Shdr))
		return MSCOPE_E_DAMAGED;
	if (count == 0) {
		Elf64_Shdr first;

		/* More sections than e_shnum can say: the first header holds their number. */
		r = io_read_at(file->fd, &first, sizeof(first), header->e_shoff);
		if (r < 0)
			return r;
		count = first.sh_size;
	}
	if (count > SECTIONS_MAX)
		return MSCOPE_E_LIMIT;
	r = elf_file_read(file, header->e_shoff, count * sizeof(Elf64_Shdr), UINT64_MAX,
			  &out->headers);
	if (r == 0)
		out->count = (size_t)count;
	return r;
}

int elf_file_dynamic(const struct elf_file *file, struct elf_dynamic *out)
{
	const Elf64_Phdr *segment = elf_file_segment(file, PT_DYNAMIC);
	size_t count;
	int r;

	if (segment == NULL)
		return MSCOPE_E_ABSENT;
	r = elf_file_read(file, segment->p_offset, segment->p_filesz, DYNAMIC_BYTES_MAX,
			  &out->entries);
	if (r < 0)
		return r;
	count = segment->p_filesz / sizeof(*out->entries);
	while (out->count < count && out->entries[out->count].d_tag != DT_NULL)
		out->count++;
	return 0;
}

uint64_t elf_dynamic_value(const struct elf_dynamic *dynamic, int64_t tag)
{
	uint64_t value = 0;
	size_t i;

	for (i = 0; i < dynamic->count; i++) {
		if (dynamic->entries[i].d_tag == tag)
			value = dynamic->entries[i].d_un.d_val;
	}
	return value;
}

/*
 * The number of symbols by the GNU hash table, which does not say it: the chain that begins at the
 * largest bucket holds the last symbol, and a set low bit ends a chain.
 *
 *     buckets, first hashed symbol, bloom words, shift     4 bytes each
 *     bloom words                                          8 bytes each
 *     buckets: the first symbol of each chain              4 bytes each
 *     chains: one entry for each hashed symbol             4 bytes each
 */
static int count_by_gnu_hash(const struct elf_file *file, uint64_t offset, uint64_t bytes,
			     uint64_t *out_count)
{
	uint32_t head[4], block[BLOCK_ENTRIES], largest = 0;
	uint64_t at, entries, done, n, i;
	int r;

	if (bytes < sizeof(head))
		return MSCOPE_E_DAMAGED;
	r = io_read_at(file->fd, head, sizeof(head), offset);
	if (r < 0)
		return r;
	at = sizeof(head) + (uint64_t)head[2] * 8;
	if (at > bytes || head[0] > (bytes - at) / 4)
		return MSCOPE_E_DAMAGED;
	for (done = 0; done < head[0]; done += n) {
		n = head[0] - done < BLOCK_ENTRIES ? head[0] - done : BLOCK_ENTRIES;
		r = io_read_at(file->fd, block, n * 4, offset + at + done * 4);
		if (r < 0)
			return r;
		for (i = 0; i < n; i++)
			largest = block[i] > largest ? block[i] : largest;
	}
	if (largest == 0 || largest < head[1]) {
		*out_count = head[1]; /* nothing is hashed */
		return 0;
	}

	at += (uint64_t)head[0] * 4;
	entries = (bytes - at) / 4;
	for (done = largest - head[1]; done < entries; done += n) {
		n = entries - done < BLOCK_ENTRIES ? entries - done : BLOCK_ENTRIES;
		r = io_read_at(file->fd, block, n * 4, offset + at + done * 4);
		if (r < 0)
			return r;
		for (i = 0; i < n; i++) {
			if (block[i] & 1) {
				*out_count = head[1] + done + i + 1;
				return 0;
			}
		}
	}
	return MSCOPE_E_DAMAGED;
}

int elf_dynamic_symbols(const struct elf_file *file, const struct elf_dynamic *dynamic,
			uint64_t *out_count)
{
	uint64_t hash = elf_dynamic_value(dynamic, DT_HASH);
	uint64_t gnu_hash = elf_dynamic_value(dynamic, DT_GNU_HASH);
	uint64_t offset, bytes;
	uint32_t head[2];
	int r;

	*out_count = 0;
	if (hash != 0 && elf_file_place(file, hash, &offset, &bytes)) {
		/* The classic hash table says the number in its second word. */
		if (bytes < sizeof(head))
			return MSCOPE_E_DAMAGED;
		r = io_read_at(file->fd, head, sizeof(head), offset);
		if (r == 0)
			*out_count = head[1];
		return r;
	}
	if (gnu_hash != 0 && elf_file_place(file, gnu_hash, &offset, &bytes))
		return count_by_gnu_hash(file, offset, bytes, out_count);
	return 0;
}
