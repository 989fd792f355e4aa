/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/remote.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "trace/chunk.h"

#define COLLECTOR_FILE "libascend_kernel_hook.so"
#define PAUSE_NS       2000000L
#define FLUSH_WAIT_MS  30000u

static void pause_shortly(void)
{
	(void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
}

/* ---- its memory ---- */

static bool read_at(uint32_t pid, uint64_t address, void *out, size_t bytes)
{
	struct iovec own = {out, bytes}, its = {(void *)(uintptr_t)address, bytes};

	return process_vm_readv((pid_t)pid, &own, 1, &its, 1, 0) == (ssize_t)bytes;
}

static bool write_at(uint32_t pid, uint64_t address, const void *data, size_t bytes)
{
	struct iovec own = {(void *)(uintptr_t)data, bytes};
	struct iovec its = {(void *)(uintptr_t)address, bytes};

	return process_vm_writev((pid_t)pid, &own, 1, &its, 1, 0) == (ssize_t)bytes;
}

/* ---- where the collector has its block ---- */

struct image {
	/* What is added to addresses of the file; 0 for a program that is not moved. */
	uint64_t base;
	uint64_t symbols, names, hash;
};

/* The loader relocates these addresses in most objects. */
static uint64_t absolute(uint64_t base, uint64_t value)
{
	return value < base ? value + base : value;
}

static bool image_open(uint32_t pid, uint64_t base, struct image *out)
{
	Elf64_Ehdr head;
	Elf64_Phdr part;
	Elf64_Dyn entry;
	uint64_t at = 0;
	uint32_t i;

	*out = (struct image){.base = base};
	if (!read_at(pid, base, &head, sizeof(head)) ||
	    memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_phentsize != sizeof(part))
		return false;
	if (head.e_type == ET_EXEC)
		out->base = 0;
	for (i = 0; i < head.e_phnum; i++) {
		if (!read_at(pid, base + head.e_phoff + i * sizeof(part), &part, sizeof(part)))
			return false;
		if (part.p_type == PT_DYNAMIC)
			at = out->base + part.p_vaddr;
	}
	for (i = 0; at != 0 && i < 256; i++, at += sizeof(entry)) {
		if (!read_at(pid, at, &entry, sizeof(entry)) || entry.d_tag == DT_NULL)
			break;
		if (entry.d_tag == DT_SYMTAB)
			out->symbols = absolute(base, entry.d_un.d_ptr);
		else if (entry.d_tag == DT_STRTAB)
			out->names = absolute(base, entry.d_un.d_ptr);
		else if (entry.d_tag == DT_GNU_HASH)
			out->hash = absolute(base, entry.d_un.d_ptr);
	}
	return out->symbols != 0 && out->names != 0 && out->hash != 0;
}

/* Address of a symbol that has at least this many bytes; 0 if there is none. */
static uint64_t image_find(uint32_t pid, const struct image *image, const char *name, size_t least)
{
	uint32_t head[4], hash = 5381, index, entry = 0, tries;
	uint64_t buckets, chain;
	char found[64];
	Elf64_Sym sym;
	const char *c;

	for (c = name; *c != '\0'; c++)
		hash = hash * 33 + (uint8_t)*c;
	if (!read_at(pid, image->hash, head, sizeof(head)) || head[0] == 0)
		return 0;
	buckets = image->hash + sizeof(head) + head[2] * sizeof(uint64_t);
	chain = buckets + head[0] * sizeof(uint32_t);
	if (!read_at(pid, buckets + hash % head[0] * sizeof(uint32_t), &index, sizeof(index)) ||
	    index < head[1])
		return 0;
	for (tries = 0; tries < 4096 && (entry & 1) == 0; tries++, index++) {
		if (!read_at(pid, chain + (index - head[1]) * sizeof(uint32_t), &entry,
			     sizeof(entry)) ||
		    !read_at(pid, image->symbols + index * sizeof(sym), &sym, sizeof(sym)) ||
		    !read_at(pid, image->names + sym.st_name, found, strlen(name) + 1))
			return 0;
		if (memcmp(found, name, strlen(name) + 1) == 0 && sym.st_size >= least &&
		    sym.st_shndx != SHN_UNDEF)
			return image->base + sym.st_value;
	}
	return 0;
}

static bool take_block(struct remote *remote, uint64_t base)
{
	struct control_block block;
	struct image image;

	if (!image_open(remote->pid, base, &image))
		return false;
	remote->block_at =
		image_find(remote->pid, &image, CONTROL_NAME, sizeof(struct control_block));
	if (remote->block_at == 0 ||
	    !read_at(remote->pid, remote->block_at, &block, sizeof(block)) ||
	    block.bytes != sizeof(block) ||
	    memcmp(block.magic, CONTROL_MAGIC, sizeof(block.magic)) != 0)
		return false;
	remote->generation_at = (uint64_t)(uintptr_t)block.generation;
	remote->recording_at = (uint64_t)(uintptr_t)block.recording;
	return true;
}

static bool ends_in(const char *text, const char *end)
{
	size_t length = strlen(text), bytes = strlen(end);

	return length >= bytes && strcmp(text + length - bytes, end) == 0;
}

/* Whether functions of the interpreter or of the C library may be there. */
static bool may_have(const char *path, const char *program)
{
	const char *name = strrchr(path, '/');

	return strcmp(path, program) == 0 ||
	       (name != NULL &&
		(strncmp(name, "/libpython", 10) == 0 || strncmp(name, "/libc.so", 8) == 0 ||
		 strncmp(name, "/libc-", 6) == 0));
}

uint64_t remote_symbol(uint32_t pid, const char *name)
{
	char file[64], line[PATH_MAX + 128], path[PATH_MAX + 1], program[PATH_MAX];
	uint64_t found = 0;
	struct image image;
	ssize_t length;
	FILE *maps;

	(void)snprintf(file, sizeof(file), "/proc/%u/exe", pid);
	length = readlink(file, program, sizeof(program) - 1);
	program[length > 0 ? length : 0] = '\0';
	(void)snprintf(file, sizeof(file), "/proc/%u/maps", pid);
	maps = fopen(file, "re");
	while (maps != NULL && found == 0 && fgets(line, sizeof(line), maps) != NULL) {
		unsigned long long start, offset;

		path[0] = '\0';
		if (sscanf(line, "%llx-%*x %*s %llx %*s %*s %4096[^\n]", &start, &offset, path) ==
			    3 &&
		    offset == 0 && may_have(path, program) && image_open(pid, start, &image))
			found = image_find(pid, &image, name, 0);
	}
	if (maps != NULL)
		(void)fclose(maps);
	return found;
}

int remote_find(uint32_t pid, struct remote *out, struct mscope_error *err)
{
	char name[64], line[PATH_MAX + 128], path[PATH_MAX + 1];
	bool found = false, seen = false;
	int why = 0;
	FILE *maps;

	*out = (struct remote){.pid = pid};
	(void)snprintf(name, sizeof(name), "/proc/%u", pid);
	if (access(name, F_OK) < 0)
		return error_set(err, MSCOPE_E_USAGE, "no such process: %u", pid);
	(void)snprintf(name, sizeof(name), "/proc/%u/maps", pid);
	maps = fopen(name, "re");
	if (maps == NULL)
		return error_set(err, -EPERM, "no permission to inspect process %u: %s", pid,
				 strerror(errno));
	while (fgets(line, sizeof(line), maps) != NULL) {
		unsigned long long start, offset;

		path[0] = '\0';
		if (sscanf(line, "%llx-%*x %*s %llx %*s %*s %4096[^\n]", &start, &offset, path) < 2)
			continue;
		if (!found && offset == 0 && ends_in(path, "/" COLLECTOR_FILE)) {
			seen = true;
			errno = 0;
			found = take_block(out, start);
			why = errno;
		} else if (ends_in(path, SESSION_RAW)) {
			(void)snprintf(out->raw, sizeof(out->raw), "%.*s", PATH_MAX - 1, path);
		}
	}
	(void)fclose(maps);
	if (found)
		return 0;
	if (!seen)
		return error_set(
			err, -ENOENT,
			"process %u does not have the collector: start it with msmemscope, preload the collector, or call start() in its Python code",
			pid);
	if (why == EPERM)
		return error_set(
			err, -EPERM,
			"process %u can be controlled only by a user who may debug it: its own user, or root if kernel.yama.ptrace_scope is not 0",
			pid);
	return error_set(err, -EPROTO, "the collector in process %u is of another version", pid);
}

/* ---- commands ---- */

static uint32_t read_word(const struct remote *remote, uint64_t at)
{
	uint32_t word = 0;

	(void)read_at(remote->pid, at, &word, sizeof(word));
	return word;
}

#define MEMBER(remote, name) ((remote)->block_at + offsetof(struct control_block, name))

static bool write_command(const struct remote *remote, uint32_t number, uint32_t kind,
			  const char *session)
{
	return (session == NULL ||
		write_at(remote->pid, MEMBER(remote, session), session, strlen(session) + 1)) &&
	       write_at(remote->pid, MEMBER(remote, kind), &kind, sizeof(kind)) &&
	       write_at(remote->pid, MEMBER(remote, asked), &number, sizeof(number));
}

/* A name that one process at a time has, without a file: two commands at once would overwrite each other. -1: not had. */
static int take_turn(uint32_t pid, uint32_t limit_ms)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), length;
	uint32_t waited;

	length = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "msmemscope-ctl-%u", pid);
	for (waited = 0; fd >= 0 && waited * (PAUSE_NS / 1000) < limit_ms * 1000ul; waited++) {
		if (bind(fd, (const struct sockaddr *)&name,
			 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
				     (size_t)length)) == 0 ||
		    errno != EADDRINUSE)
			return fd;
		pause_shortly();
	}
	if (fd >= 0)
		(void)close(fd);
	return -1;
}

static int ask(const struct remote *remote, enum control_kind kind, const char *session,
	       uint32_t limit_ms, int32_t *out_result, struct mscope_error *err)
{
	uint32_t number = read_word(remote, MEMBER(remote, done)) + 1, word, waited;

	if (!write_command(remote, number, kind, session))
		return error_set(err, -errno, "cannot reach process %u: %s", remote->pid,
				 strerror(errno));
	for (waited = 0; waited * (PAUSE_NS / 1000) < limit_ms * 1000ul; waited++) {
		word = read_word(remote, remote->generation_at);
		/* The process may have written it at the same time. */
		if ((word & CONTROL_ASKED) == 0 &&
		    read_word(remote, MEMBER(remote, done)) != number) {
			word |= CONTROL_ASKED;
			if (!write_at(remote->pid, remote->generation_at, &word, sizeof(word)))
				return error_set(err, -ESRCH, "process %u has ended", remote->pid);
		}
		if (read_word(remote, MEMBER(remote, done)) == number) {
			*out_result = (int32_t)read_word(remote, MEMBER(remote, result));
			return 0;
		}
		pause_shortly();
	}
	return error_set(
		err, -ETIMEDOUT,
		"process %u has not allocated or freed since; the command takes effect when it does",
		remote->pid);
}

int remote_ask(const struct remote *remote, enum control_kind kind, const char *session,
	       uint32_t limit_ms, int32_t *out_result, struct mscope_error *err)
{
	int turn, r;

	if (session != NULL && strlen(session) >= SESSION_PATH_MAX)
		return error_set(err, -ENAMETOOLONG, "the path of the session is too long");
	turn = take_turn(remote->pid, 2 * limit_ms);
	r = ask(remote, kind, session, limit_ms, out_result, err);
	if (turn >= 0)
		(void)close(turn);
	return r;
}

int remote_wait_looked(const struct remote *remote, uint32_t limit_ms, struct mscope_error *err)
{
	uint32_t number = read_word(remote, MEMBER(remote, done)), waited;

	for (waited = 0; waited * (PAUSE_NS / 1000) < limit_ms * 1000ul; waited++) {
		uint32_t looked;

		if (!read_at(remote->pid, MEMBER(remote, looked), &looked, sizeof(looked)))
			return error_set(err, -ESRCH, "process %u has ended", remote->pid);
		if (looked == number)
			return 0;
		pause_shortly();
	}
	return error_set(err, -ETIMEDOUT,
			 "no answer yet: the main thread of process %u is not running Python code",
			 remote->pid);
}

/* ---- the engine ---- */

static void *map_file(const char *path, size_t bytes, const char *magic)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	void *at;

	if (fd < 0)
		return NULL;
	if (lseek(fd, 0, SEEK_END) < (off_t)bytes) {
		(void)close(fd);
		return NULL;
	}
	at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	(void)close(fd);
	if (at == MAP_FAILED)
		return NULL;
	if (memcmp(at, magic, 8) != 0) {
		(void)munmap(at, bytes);
		return NULL;
	}
	return at;
}

static bool engine_lives(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool held = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;

	if (fd >= 0)
		(void)close(fd);
	return held;
}

/* Asks as the process itself does (collector/process/control.c); while it waits for an answer of its own, that comes first. */
static int request(struct trace_header *header, struct session *session, const char *path,
		   uint32_t kind)
{
	uint32_t number = 0, waited, beat = 0, silent = 0;
	struct timespec now;

	for (waited = 0; silent < FLUSH_WAIT_MS; waited++, silent += 2) {
		uint32_t asked = atomic_load(&header->request);

		if (number == 0 && atomic_load(&header->answer) == asked) {
			(void)clock_gettime(CLOCK_MONOTONIC, &now);
			atomic_store(&header->request_ns,
				     (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
			atomic_store(&header->request_kind, kind);
			number = atomic_fetch_add(&header->request, 1) + 1;
			atomic_fetch_add(&session->wake, 1);
			(void)syscall(SYS_futex, &session->wake, FUTEX_WAKE, INT_MAX, NULL, NULL,
				      0);
		}
		if (number != 0 && (int32_t)(atomic_load(&header->answer) - number) >= 0)
			return 0;
		if (waited % 50 == 0 && !engine_lives(path))
			return -ESRCH;
		if (atomic_load(&header->heartbeat) != beat) {
			beat = atomic_load(&header->heartbeat);
			silent = 0;
		}
		pause_shortly();
	}
	return -ETIMEDOUT;
}

/* Waits for the engine of a process. */
static int ask_engine(const struct remote *remote, uint32_t kind, struct mscope_error *err)
{
	char path[PATH_MAX + sizeof(SESSION_FILE)];
	struct trace_header *header;
	struct session *session;
	char *slash;
	int r = -ESRCH;

	(void)snprintf(path, sizeof(path), "%s", remote->raw);
	slash = strrchr(path, '/');
	if (slash == NULL)
		return error_set(err, -ESRCH, "process %u has no trace", remote->pid);
	(void)snprintf(slash + 1, sizeof(path) - (size_t)(slash + 1 - path), SESSION_FILE);
	header = map_file(remote->raw, sizeof(*header), TRACE_MAGIC);
	session = map_file(path, sizeof(*session), SESSION_MAGIC);
	if (header != NULL && session != NULL)
		r = request(header, session, path, kind);
	if (header != NULL)
		(void)munmap(header, sizeof(*header));
	if (session != NULL)
		(void)munmap(session, sizeof(*session));
	if (r < 0)
		return error_set(err, r,
				 r == -ESRCH ? "no engine follows process %u"
					     : "the engine of process %u does not answer",
				 remote->pid);
	return 0;
}

int remote_flush(const struct remote *remote, struct mscope_error *err)
{
	return ask_engine(remote, TRACE_REQUEST_FLUSH, err);
}

int remote_complete(const struct remote *remote, struct mscope_error *err)
{
	return ask_engine(remote, TRACE_REQUEST_COMPLETE, err);
}
