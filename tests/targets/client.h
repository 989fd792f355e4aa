/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the programs have in common that talk to mstx as a framework does. They take options as words, find the mstx functions
 * the way the framework finds them, and write what they did as the other targets do (target.h), one JSON line per log:
 *
 *     {"pid":7,"tid":8,"part":0,"client":"pta","reports":true,"events":[...]}
 *
 *     ["malloc",id,address,size,device,"alloc","huge"]          the driver's memory, as in target.h
 *     ["free",id]
 *     ["register",id,pool,address,size,device,used,total,order] a region that a pool handed out,
 *     ["unregister",id,used,total,order]                        and got back
 *     ["mark",0,domain,message]                                 domain and message may be null
 *     ["range_start",id,domain,message]                         id as the tool gave it; 0 without a tool
 *     ["range_end",id,domain]
 *
 * The events of a log are in the order of its thread. `used` and `total` are what the pool's device has after the step, by the
 * rules of that pool; `order` numbers the steps of all pools of the process, also across threads: a pool calls under its lock.
 * `device` is the physical one (ASCEND_RT_VISIBLE_DEVICES). An id that is unregistered twice was unknown the second time.
 * `reports` says whether the pool found anybody to report to.
 */
#ifndef MSCOPE_TESTS_CLIENT_H
#define MSCOPE_TESTS_CLIENT_H

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/file.h>

#include "target.h"

#define MIB ((uint64_t)1 << 20)

/* Room for the text of one log. Pages that are not written cost nothing. */
#define LOG_BYTES ((size_t)256 << 20)

struct log {
	pid_t tid;
	uint64_t next_id;
	struct truth_text text; /* the events so far */
	char *start;
};

static struct log *logs[TRUTH_MAX_LOGS];
static atomic_size_t logs_count;
static atomic_uint_fast64_t log_order;

/* Options are words: --name=number, --name=word, or --name. */
static inline const char *option_word(int argc, char **argv, const char *name, const char *standard)
{
	size_t length = strlen(name);

	for (int i = 1; i < argc; i++) {
		if (strncmp(argv[i], name, length) == 0 && argv[i][length] == '=')
			return argv[i] + length + 1;
		if (strcmp(argv[i], name) == 0)
			return "";
	}
	return standard;
}

static inline bool option_set(int argc, char **argv, const char *name)
{
	return option_word(argc, argv, name, NULL) != NULL;
}

static inline unsigned option_number(int argc, char **argv, const char *name, unsigned standard)
{
	const char *word = option_word(argc, argv, name, NULL);

	return word != NULL ? (unsigned)atoi(word) : standard;
}

/* A log for the calling thread. */
static inline struct log *log_new(void)
{
	size_t slot = atomic_fetch_add(&logs_count, 1);
	struct log *log;

	target_check(slot < TRUTH_MAX_LOGS, "too many logs");
	log = calloc(1, sizeof(*log));
	target_check(log != NULL, "no memory");
	log->tid = target_tid();
	log->next_id = ((uint64_t)slot << 32) + 1;
	log->start = mmap(NULL, LOG_BYTES, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	target_check(log->start != MAP_FAILED, "mmap failed");
	log->text.at = log->start;
	logs[slot] = log;
	return log;
}

static inline void log_begin(struct log *log, const char *op, uint64_t id)
{
	target_check((size_t)(log->text.at - log->start) < LOG_BYTES - 65536, "log is full");
	truth_put(&log->text, log->text.at == log->start ? "[\"" : ",[\"");
	truth_put(&log->text, op);
	truth_put(&log->text, "\",");
	truth_put_number(&log->text, (int64_t)id);
}

static inline void log_number(struct log *log, uint64_t number)
{
	truth_put(&log->text, ",");
	truth_put_number(&log->text, (int64_t)number);
}

/* Text in UTF-8, or null. */
static inline void log_string(struct log *log, const char *string)
{
	char escaped[8];

	if (string == NULL) {
		truth_put(&log->text, ",null");
		return;
	}
	truth_put(&log->text, ",\"");
	for (; *string != 0; string++) {
		if (*string == '"' || *string == '\\')
			(void)snprintf(escaped, sizeof(escaped), "\\%c", *string);
		else if ((unsigned char)*string < 0x20)
			(void)snprintf(escaped, sizeof(escaped), "\\u%04x", (unsigned)*string);
		else
			(void)snprintf(escaped, sizeof(escaped), "%c", *string);
		truth_put(&log->text, escaped);
	}
	truth_put(&log->text, "\"");
}

static inline void log_end(struct log *log)
{
	truth_put(&log->text, "]");
}

/* Writes all logs where truth_write() would. */
static inline void log_write(const char *client, bool reports)
{
	const char *path = getenv("TRUTH");
	FILE *file = path != NULL ? fopen(path, "ae") : stdout;

	target_check(file != NULL, "cannot open the file for the truth");
	/* Clients that end together write together, in pieces of a buffer's size. */
	if (path != NULL)
		target_check(flock(fileno(file), LOCK_EX) == 0, "cannot lock the truth");
	for (size_t i = 0; i < atomic_load(&logs_count); i++) {
		*logs[i]->text.at = 0;
		(void)fprintf(file,
			      "{\"pid\":%d,\"tid\":%d,\"part\":0,\"client\":\"%s\",\"reports\":%s,"
			      "\"events\":[%s]}\n",
			      getpid(), logs[i]->tid, client, reports ? "true" : "false",
			      logs[i]->start);
	}
	target_check(fflush(file) == 0, "cannot write the truth");
	if (path != NULL)
		(void)fclose(file);
}

/* The physical device behind a logical one. */
static inline unsigned device_physical(unsigned logical)
{
	const char *list = getenv("ASCEND_RT_VISIBLE_DEVICES");

	for (unsigned i = 0; list != NULL && *list != 0; i++) {
		char *end;
		unsigned physical = (unsigned)strtoul(list, &end, 10);

		if (i == logical)
			return physical;
		list = *end == ',' ? end + 1 : NULL;
	}
	return logical;
}

struct segment {
	uint64_t id;
	uint64_t address; /* for a created one the handle */
	uint64_t size;
	bool is_created;
};

/* Takes memory of the logical device as aclrtMalloc asks the driver for it: in huge pages above 1 MiB. */
static inline struct segment segment_alloc(struct log *log, uint64_t size, unsigned device)
{
	bool is_huge = size > MIB;
	unsigned physical = device_physical(device);
	struct segment segment = {.id = log->next_id++, .size = size};
	void *address = NULL;

	target_check(halMemAlloc(&address, size, (is_huge ? FLAG_HUGE : FLAG_NORMAL) | physical) ==
			     0,
		     "halMemAlloc failed");
	segment.address = (uint64_t)(uintptr_t)address;
	log_begin(log, "malloc", segment.id);
	log_number(log, segment.address);
	log_number(log, size);
	log_number(log, physical);
	log_string(log, "alloc");
	log_string(log, is_huge ? "huge" : "normal");
	log_end(log);
	return segment;
}

/* Takes memory without an address, in huge pages. */
static inline struct segment segment_create(struct log *log, uint64_t size, unsigned device)
{
	unsigned physical = device_physical(device);
	struct drv_mem_prop prop = {.side = MEM_DEV_SIDE,
				    .devid = physical,
				    .module_id = 33,
				    .pg_type = MEM_HUGE_PAGE_TYPE};
	struct segment segment = {.id = log->next_id++, .size = size, .is_created = true};
	struct drv_mem_handle *handle = NULL;

	target_check(halMemCreate(&handle, size, &prop, 0) == 0, "halMemCreate failed");
	segment.address = (uint64_t)(uintptr_t)handle;
	log_begin(log, "malloc", segment.id);
	log_number(log, segment.address);
	log_number(log, size);
	log_number(log, physical);
	log_string(log, "create");
	log_string(log, "huge");
	log_end(log);
	return segment;
}

static inline void segment_free(struct log *log, const struct segment *segment)
{
	drvError_t code;

	log_begin(log, "free", segment->id);
	log_end(log);
	if (segment->is_created)
		code = halMemRelease((struct drv_mem_handle *)(uintptr_t)segment->address);
	else
		code = halMemFree((void *)(uintptr_t)segment->address);
	target_check(code == 0, "free failed");
}

static inline void log_register(struct log *log, uint64_t id, const char *pool, uint64_t address,
				uint64_t size, unsigned device, uint64_t used, uint64_t total)
{
	log_begin(log, "register", id);
	log_string(log, pool);
	log_number(log, address);
	log_number(log, size);
	log_number(log, device_physical(device));
	log_number(log, used);
	log_number(log, total);
	log_number(log, atomic_fetch_add(&log_order, 1));
	log_end(log);
}

static inline void log_unregister(struct log *log, uint64_t id, uint64_t used, uint64_t total)
{
	log_begin(log, "unregister", id);
	log_number(log, used);
	log_number(log, total);
	log_number(log, atomic_fetch_add(&log_order, 1));
	log_end(log);
}

/* Fills a structure with what the framework leaves uninitialised: whoever reads it as a pointer or a small number goes wrong. */
static inline void fill_with_garbage(void *structure, size_t size)
{
	memset(structure, 0xa5, size);
}

/* Whether a preloaded file's real name is the one that torch_npu and MindSpore look for. */
static inline bool gate_is_open(void)
{
	static const char wanted[] = "libascend_kernel_hook.so";
	const size_t wanted_length = sizeof(wanted) - 1;
	const char *list = getenv("LD_PRELOAD");

	while (list != NULL && *list != 0) {
		size_t length = strcspn(list, ":");
		char entry[PATH_MAX];
		char real[PATH_MAX];

		if (length > 0 && length < sizeof(entry)) {
			memcpy(entry, list, length);
			entry[length] = 0;
			if (realpath(entry, real) != NULL && strlen(real) > wanted_length &&
			    strcmp(real + strlen(real) - wanted_length, wanted) == 0)
				return true;
		}
		list += length + (list[length] == ':');
	}
	return false;
}

/* $ASCEND_HOME_PATH/lib64/libms_tools_ext.so if there is such a file. */
static inline bool mstx_path(char path[PATH_MAX])
{
	const char *home = getenv("ASCEND_HOME_PATH");

	if (home == NULL ||
	    snprintf(path, PATH_MAX, "%s/lib64/libms_tools_ext.so", home) >= PATH_MAX)
		return false;
	return access(path, F_OK) == 0;
}

#endif
