/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who this process is: host, boot, container, rank, job, command. Plain key=value text in the trace header, so that traces of
 * many ranks and machines can be told apart when they lie in one directory.
 */
#include "collector/process/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "collector/sys.h"

/* Variables in which launchers put the place of a process; copied under their own names. */
static const char *const variables[] = {
	"RANK",
	"LOCAL_RANK",
	"WORLD_SIZE",
	"RANK_ID",
	"RANK_SIZE",
	"DEVICE_ID",
	"OMPI_COMM_WORLD_RANK",
	"OMPI_COMM_WORLD_LOCAL_RANK",
	"PMI_RANK",
	"PMIX_RANK",
	"MPI_LOCALRANKID",
	"SLURM_PROCID",
	"SLURM_LOCALID",
	"SLURM_JOB_ID",
	"SLURM_STEP_ID",
	"TORCHELASTIC_RUN_ID",
	"KUBERNETES_POD_NAME",
	"POD_NAME",
	"ASCEND_RT_VISIBLE_DEVICES",
	/* Settings of PyTorch's allocator, for whatif: run_torch_settings(). */
	"PYTORCH_CUDA_ALLOC_CONF",
	"PYTORCH_ALLOC_CONF",
	"PYTORCH_NPU_ALLOC_CONF",
};

struct text {
	char *at;
	char *end;
};

static void put(struct text *text, const char *key, const char *value, size_t value_bytes)
{
	size_t key_bytes = strlen(key);

	if (value_bytes == 0 || key_bytes + value_bytes + 2 > (size_t)(text->end - text->at))
		return;
	memcpy(text->at, key, key_bytes);
	text->at += key_bytes;
	*text->at++ = '=';
	memcpy(text->at, value, value_bytes);
	text->at += value_bytes;
	*text->at++ = '\0';
}

static size_t read_file(const char *path, char *out, size_t bytes)
{
	int fd = sys_open(path, O_RDONLY | O_CLOEXEC, 0);
	ssize_t got;

	if (fd < 0)
		return 0;
	got = sys_read(fd, out, bytes);
	sys_close(fd);
	return got > 0 ? (size_t)got : 0;
}

/* Without the end of its last line; what ended words is a blank. */
static void put_lines(struct text *text, const char *key, char *buffer, size_t bytes)
{
	size_t i;

	while (bytes > 0 && (buffer[bytes - 1] == '\n' || buffer[bytes - 1] == '\0'))
		bytes--;
	for (i = 0; i < bytes; i++) {
		if (buffer[i] == '\0')
			buffer[i] = ' ';
	}
	put(text, key, buffer, bytes);
}

static void put_file(struct text *text, const char *key, const char *path, size_t limit)
{
	char *buffer = collector.text_scratch;
	size_t most = sizeof(collector.text_scratch);

	put_lines(text, key, buffer, read_file(path, buffer, limit < most ? limit : most));
}

#define COMMAND 4096u /* bytes of it */
#define WORDS                                                                                      \
	8u /* the first words of a command: its program, options of the interpreter, the script */

/* Whether blanks do not tell where the first words end. */
static bool has_blank(const char *words, size_t bytes)
{
	size_t at = 0, word;

	for (word = 0; word < WORDS && at < bytes; word++) {
		size_t length = strnlen(words + at, bytes - at);

		if (memchr(words + at, ' ', length) != NULL)
			return true;
		at += length + 1;
	}
	return false;
}

/* Lengths of the first words, as "7 2 24 ". */
MSCOPE_COLD static void put_lengths(struct text *text, const char *key, const char *words,
				    size_t bytes)
{
	char lengths[WORDS * 6] = "", name[32];
	size_t at = 0, used = 0, word;

	for (word = 0; word < WORDS && at < bytes; word++) {
		size_t length = strnlen(words + at, bytes - at);

		used += (size_t)snprintf(lengths + used, sizeof(lengths) - used, "%zu ", length);
		at += length + 1;
	}
	(void)snprintf(name, sizeof(name), "%s_words", key);
	put(text, name, lengths, used);
}

/* The words of a command, with a blank between them. */
static void put_words(struct text *text, const char *key, const char *path)
{
	char *buffer = collector.text_scratch;
	size_t most = sizeof(collector.text_scratch),
	       got = read_file(path, buffer, most < COMMAND ? most : COMMAND);

	if (has_blank(buffer, got))
		put_lengths(text, key, buffer, got);
	put_lines(text, key, buffer, got);
}

/* Memory of the machine: "MemTotal:       24562312 kB" is its first line. */
static void put_memory(struct text *text)
{
	char buffer[64], *at = buffer;
	size_t got = read_file("/proc/meminfo", buffer, sizeof(buffer) - 1), digits;

	buffer[got] = '\0';
	at += strcspn(at, "0123456789");
	digits = strspn(at, "0123456789");
	put(text, "memory_kib", at, digits);
}

/* A worker that Python's multiprocessing spawned has a command of its own; the script is named by its parent's. */
static void put_command(struct text *text)
{
	static const char worker[] = " --multiprocessing-fork";
	const char *start = text->at;
	char path[32];

	put_words(text, "command", "/proc/self/cmdline");
	if (memmem(start, (size_t)(text->at - start), worker, strlen(worker)) == NULL)
		return;
	(void)snprintf(path, sizeof(path), "/proc/%u/cmdline", (unsigned int)getppid());
	put_words(text, "parent_command", path);
}

uint32_t identity_write(const struct session *session, char *out, uint32_t bytes)
{
	struct text text = {.at = out, .end = out + bytes};
	struct utsname name;
	char *link = collector.text_scratch;
	ssize_t length;
	size_t i;

	if (uname(&name) == 0) {
		put(&text, "host", name.nodename, strlen(name.nodename));
		put(&text, "kernel", name.release, strlen(name.release));
		put(&text, "machine", name.machine, strlen(name.machine));
	}
	put_memory(&text);
	put_file(&text, "boot_id", "/proc/sys/kernel/random/boot_id", 64);
	length = readlink("/proc/self/exe", link, sizeof(collector.text_scratch));
	put(&text, "exe", link, length > 0 ? (size_t)length : 0);
	put_command(&text);
	put_file(&text, "cgroup", "/proc/self/cgroup", 1024);
	put(&text, SESSION_ID_KEY, session->launch_id,
	    strnlen(session->launch_id, sizeof(session->launch_id)));
	put(&text, SESSION_LAUNCH_KEY, session->launch,
	    strnlen(session->launch, sizeof(session->launch)));
	put(&text, SESSION_DRY_KEY, session->dry, strnlen(session->dry, sizeof(session->dry)));
	if (session->watch.on) {
		put(&text, "watch_start", session->watch.start,
		    strnlen(session->watch.start, sizeof(session->watch.start)));
		put(&text, "watch_end", session->watch.end,
		    strnlen(session->watch.end, sizeof(session->watch.end)));
	}
	length = readlink("/proc/self/ns/pid", link, sizeof(collector.text_scratch));
	put(&text, "pid_namespace", link, length > 0 ? (size_t)length : 0);
	for (i = 0; i < MSCOPE_COUNT(variables); i++) {
		const char *value = getenv(variables[i]);

		if (value != NULL)
			put(&text, variables[i], value, strnlen(value, 1024));
	}
	return (uint32_t)(text.at - out);
}

uint64_t identity_start_ticks(void)
{
	char path[64], *buffer = collector.text_scratch, *at;
	size_t got;
	int field;

	/* The main thread's file: qemu-user answers for /proc/self/stat itself, with a start time of its own. */
	if (collector.pid == (uint32_t)getpid())
		(void)snprintf(path, sizeof(path), "/proc/self/task/%u/stat", collector.pid);
	else
		(void)snprintf(path, sizeof(path), "/proc/%u/stat", collector.pid);
	got = read_file(path, buffer, sizeof(collector.text_scratch) - 1);

	/* The name in the second field may hold anything, so count from the last parenthesis: start time is the 22nd field. */
	buffer[got] = '\0';
	at = strrchr(buffer, ')');
	if (at == NULL)
		return 0;
	for (field = 3, at++; field < 22 && at != NULL; field++)
		at = strchr(at + 1, ' ');
	return at == NULL ? 0 : strtoull(at, NULL, 10);
}
