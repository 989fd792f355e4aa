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
	if (header->e_type != ET_EXEC && header->e_type != ET_DYN)
		return error_set(err, MSCOPE_E_FOREIGN,
				 "neither an executable nor a shared object");
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
