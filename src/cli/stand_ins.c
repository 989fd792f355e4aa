/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/stand_ins.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/io.h"
#include "base/text.h"
#include "symbols/elf_imports.h"
#include "symbols/elf_stub.h"

#define HANDLER	      "simcuda_not_written"
#define CORE	      "libsimcuda.so"
#define LIBRARIES_MAX 64
#define SCANNED_MAX                                                                                \
	(UINT64_C(4) << 20) /* a file of PyTorch that opens libraries by name is smaller */
#define NAME_MAX_BYTES 100
#define TEXTS_MAX      16

/* A library of CUDA that somebody asks for. */
struct library {
	char *soname;
	struct elf_stub_function *functions; /* sorted, each once, when it is written */
	size_t count, room;
	const char *versions[8];
	size_t version_count;
};

struct stand_ins {
	struct library libraries[LIBRARIES_MAX];
	size_t count;
	struct elf_imports *files; /* of PyTorch: what the others point into */
	size_t file_count, file_room;
	struct elf_imports core;
	const char **written; /* functions of the core, sorted */
	size_t written_count;
	char **paths; /* of `files` */
	size_t path_room;
	struct strbuf texts[TEXTS_MAX]; /* whole files, which the names of functions point into */
	size_t text_count;
};

/* Names of NVIDIA's libraries; no other that PyTorch needs begins so. */
static bool is_cuda(const char *soname)
{
	static const char *const stems[] = {"libcu", "libnv", "libnccl"};
	size_t i;

	for (i = 0; i < sizeof(stems) / sizeof(*stems); i++) {
		if (text_starts_with(soname, stems[i]))
			return true;
	}
	return false;
}

static struct library *find(struct stand_ins *all, const char *soname)
{
	size_t i;

	for (i = 0; i < all->count; i++) {
		if (strcmp(all->libraries[i].soname, soname) == 0)
			return &all->libraries[i];
	}
	return NULL;
}

static int add_library(struct stand_ins *all, const char *soname)
{
	if (find(all, soname) != NULL)
		return 0;
	/* It becomes the name of a file, and a part of LD_PRELOAD. */
	if (all->count == LIBRARIES_MAX || strpbrk(soname, "/: ") != NULL)
		return MSCOPE_E_LIMIT;
	all->libraries[all->count].soname = strdup(soname);
	if (all->libraries[all->count].soname == NULL)
		return -ENOMEM;
	all->count++;
	return 0;
}

/* Letters that the functions of a library begin with: "ncclSend" is of libnccl.so.2, "nvshmem_malloc" of libnvshmem_host.so.3. */
static size_t shared_prefix(const char *soname, const char *function)
{
	const char *stem = soname + strlen("lib");
	size_t length = strcspn(stem, "._-");

	return strncasecmp(stem, function, length) == 0 ? length : 0;
}

/* Whose function it is; NULL: of no library of CUDA. */
static struct library *owner(struct stand_ins *all, const struct elf_symbol *symbol)
{
	struct library *best = NULL;
	size_t longest = 0, i;

	if (symbol->library[0] != '\0')
		return find(all, symbol->library);
	for (i = 0; i < all->count; i++) {
		size_t length = shared_prefix(all->libraries[i].soname, symbol->name);

		if (length > longest) {
			longest = length;
			best = &all->libraries[i];
		}
	}
	/* The driver's are called cuCtxGetCurrent. */
	if (best == NULL && text_starts_with(symbol->name, "cu") &&
	    isupper((unsigned char)symbol->name[2]))
		best = find(all, "libcuda.so.1");
	return best;
}

static int by_function(const void *a, const void *b)
{
	const struct elf_stub_function *x = a, *y = b;
	int order = strcmp(x->name, y->name);

	/* The one with a version first. */
	return order != 0 ? order : strcmp(y->version, x->version);
}

static bool is_written(const struct stand_ins *all, const char *name)
{
	return bsearch(&name, all->written, all->written_count, sizeof(*all->written),
		       text_order) != NULL;
}

static int add_version(struct library *library, const char *version)
{
	size_t i;

	for (i = 0; i < library->version_count; i++) {
		if (strcmp(library->versions[i], version) == 0)
			return 0;
	}
	if (version[0] == '\0')
		return 0;
	if (i == sizeof(library->versions) / sizeof(*library->versions))
		return MSCOPE_E_LIMIT;
	library->versions[library->version_count++] = version;
	return 0;
}

static int add_function(struct library *library, const char *name, const char *version)
{
	int r = ARRAY_RESERVE(library->functions, library->room, library->count + 1);

	if (r == 0)
		library->functions[library->count++] = (struct elf_stub_function){name, version};
	return r;
}

static int add_symbol(struct stand_ins *all, const struct elf_symbol *symbol)
{
	struct library *library = symbol->defined ? NULL : owner(all, symbol);
	int r;

	if (library == NULL)
		return 0;
	r = add_version(library, symbol->version);
	if (r < 0 || is_written(all, symbol->name))
		return r;
	return add_function(library, symbol->name, symbol->version);
}

/* ---- functions that are looked up by name ---- */

/* Whether a text can be the name of a function of the driver or of its management library; which. */
static struct library *looked_up_in(struct stand_ins *all, const char *text, size_t length)
{
	size_t i;

	if (length < 6 || length > NAME_MAX_BYTES || text[0] == '_')
		return NULL;
	for (i = 0; i < length; i++) {
		if (!isalnum((unsigned char)text[i]) && text[i] != '_')
			return NULL;
	}
	if (text_starts_with(text, "nvml") && isupper((unsigned char)text[4]))
		return find(all, "libnvidia-ml.so.1");
	return text_starts_with(text, "cu") && isupper((unsigned char)text[2])
		       ? find(all, "libcuda.so.1")
		       : NULL;
}

/* PyTorch opens the driver and its management library at run time, and has the names of their functions as texts. */
static int scan_names(struct stand_ins *all, const char *path)
{
	struct strbuf *text = &all->texts[all->text_count];
	struct stat status;
	const char *at, *end;
	char *data;
	int fd = open(path, O_RDONLY | O_CLOEXEC), r = 0;

	if (fd < 0 || fstat(fd, &status) < 0 || (uint64_t)status.st_size > SCANNED_MAX ||
	    all->text_count == TEXTS_MAX) {
		if (fd >= 0)
			(void)close(fd);
		return 0;
	}
	data = strbuf_room(text, (size_t)status.st_size);
	r = data == NULL ? -ENOMEM : io_read_at(fd, data, (size_t)status.st_size, 0);
	(void)close(fd);
	if (r < 0)
		return r;
	strbuf_end(text, data + status.st_size);
	all->text_count++;
	end = data + status.st_size;
	for (at = data; r == 0 && at < end; at += strlen(at) + 1) {
		struct library *library = looked_up_in(all, at, strlen(at));

		if (library != NULL && !is_written(all, at))
			r = add_function(library, at, "");
	}
	return r;
}

/* ---- reading ---- */

static int read_file(struct elf_imports *out, const char *path, struct mscope_error *err)
{
	int fd = io_open_file(path, O_RDONLY, err);
	int r = fd < 0 ? fd : elf_imports_read(fd, out, err);

	if (fd >= 0)
		(void)close(fd);
	return r;
}

static int read_core(struct stand_ins *all, const char *path, struct mscope_error *err)
{
	int r = read_file(&all->core, path, err);
	size_t i;

	if (r == 0) {
		all->written = calloc(all->core.symbol_count + 1, sizeof(*all->written));
		r = all->written == NULL ? -ENOMEM : 0;
	}
	for (i = 0; r == 0 && i < all->core.symbol_count; i++) {
		if (all->core.symbols[i].defined)
			all->written[all->written_count++] = all->core.symbols[i].name;
	}
	if (r == 0)
		qsort(all->written, all->written_count, sizeof(*all->written), text_order);
	return r;
}

/* Reads what PyTorch's libraries import; files of the folder that are not shared objects are passed over. */
static int read_torch(struct stand_ins *all, const char *torch)
{
	DIR *directory = opendir(torch);
	struct dirent *entry;
	int r = directory == NULL ? -errno : 0;

	while (r == 0 && (entry = readdir(directory)) != NULL) {
		struct mscope_error ignored = {0};
		char path[PATH_MAX];

		/* Older wheels carry CUDA's own libraries beside theirs. */
		if (strstr(entry->d_name, ".so") == NULL || is_cuda(entry->d_name))
			continue;
		(void)snprintf(path, sizeof(path), "%s/%s", torch, entry->d_name);
		r = ARRAY_RESERVE(all->files, all->file_room, all->file_count + 1);
		if (r == 0)
			r = ARRAY_RESERVE(all->paths, all->path_room, all->file_count + 1);
		if (r == 0 && read_file(&all->files[all->file_count], path, &ignored) == 0)
			all->paths[all->file_count++] = strdup(path);
	}
	if (directory != NULL)
		(void)closedir(directory);
	return r;
}

static int sort_out(struct stand_ins *all)
{
	size_t i, k;
	int r = 0;

	for (i = 0; i < all->file_count; i++) {
		for (k = 0; r == 0 && k < all->files[i].needed_count; k++) {
			if (is_cuda(all->files[i].needed[k]))
				r = add_library(all, all->files[i].needed[k]);
		}
	}
	if (r == 0 && all->count == 0)
		return MSCOPE_E_ABSENT;
	/* Opened by name, at run time. */
	if (r == 0)
		r = add_library(all, "libcuda.so.1");
	if (r == 0)
		r = add_library(all, "libnvidia-ml.so.1");
	for (i = 0; i < all->file_count; i++) {
		for (k = 0; r == 0 && k < all->files[i].symbol_count; k++)
			r = add_symbol(all, &all->files[i].symbols[k]);
		if (r == 0 && all->paths[i] != NULL)
			r = scan_names(all, all->paths[i]);
	}
	return r;
}

/* ---- writing ---- */

static int write_library(struct library *library, uint16_t machine, const char *directory)
{
	struct strbuf file = {0}, path = {0};
	size_t i, kept = 0;
	int r;

	if (library->count > 0)
		qsort(library->functions, library->count, sizeof(*library->functions), by_function);
	for (i = 0; i < library->count; i++) {
		if (kept == 0 ||
		    strcmp(library->functions[i].name, library->functions[kept - 1].name) != 0)
			library->functions[kept++] = library->functions[i];
	}
	r = elf_stub_write(&(struct elf_stub){.machine = machine,
					      .soname = library->soname,
					      .needed = CORE,
					      .handler = HANDLER,
					      .functions = library->functions,
					      .function_count = kept,
					      .versions = library->versions,
					      .version_count = library->version_count},
			   &file);
	strbuf_addf(&path, "%s/%s", directory, library->soname);
	if (r == 0)
		r = io_replace(strbuf_str(&path), &file);
	strbuf_fini(&file);
	strbuf_fini(&path);
	return r;
}

static void fini(struct stand_ins *all)
{
	size_t i;

	for (i = 0; i < all->count; i++) {
		free(all->libraries[i].soname);
		free(all->libraries[i].functions);
	}
	for (i = 0; i < all->file_count; i++) {
		elf_imports_fini(&all->files[i]);
		free(all->paths[i]);
	}
	for (i = 0; i < all->text_count; i++)
		strbuf_fini(&all->texts[i]);
	free(all->paths);
	elf_imports_fini(&all->core);
	free(all->files);
	free(all->written);
	free(all);
}

int stand_ins_make(const char *torch, const char *simcuda, const char *directory,
		   struct strbuf *preload, struct mscope_error *err)
{
	struct stand_ins *all = calloc(1, sizeof(*all));
	char core[PATH_MAX];
	size_t i;
	int r = all == NULL ? -ENOMEM : read_core(all, simcuda, err);

	if (r == 0)
		r = read_torch(all, torch);
	if (r == 0)
		r = sort_out(all);
	/* The loader splits LD_PRELOAD at blanks, which the place of our tree may have. */
	(void)snprintf(core, sizeof(core), "%s/" CORE, directory);
	if (r == 0 && symlink(simcuda, core) < 0)
		r = -errno;
	if (r == 0)
		strbuf_add_str(preload, core);
	for (i = 0; r == 0 && i < all->count; i++) {
		r = write_library(&all->libraries[i], all->core.machine, directory);
		strbuf_addf(preload, ":%s/%s", directory, all->libraries[i].soname);
	}
	if (all != NULL)
		fini(all);
	if (r < 0 && err->code == 0)
		return error_set(err, r, "cannot make libraries for %s: %s", torch,
				 mscope_status_str(r));
	return r;
}
