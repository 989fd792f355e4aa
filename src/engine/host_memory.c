/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/host_memory.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/io.h"
#include "engine/traced_process.h"
#include "trace/builder.h"
#include "trace/context.h"
#include "trace/run.h"

#define TABLE_NS     UINT64_C(500000000)
#define TABLE_SHARE  50u /* at most one part in 50 of the time */
#define LIMITS_NS    UINT64_C(1000000000)
#define LEAST_CHANGE (256u << 10)
#define MOST_CHANGE  (1u << 20)
#define NO_LIMIT     (UINT64_C(1) << 60)

/* Shared pages are asked for while all members together have less than this. */
#define SHARES_MAX (UINT64_C(4) << 30)

bool host_has_changed(uint64_t told_bytes, uint64_t bytes)
{
	uint64_t change = told_bytes > bytes ? told_bytes - bytes : bytes - told_bytes;
	uint64_t least = told_bytes / 1024;

	least = least < LEAST_CHANGE ? LEAST_CHANGE : least > MOST_CHANGE ? MOST_CHANGE : least;
	return change >= least;
}

/* ---- processes of the machine ---- */

static int by_pid(const void *a, const void *b)
{
	const struct host_entry *x = a, *y = b;

	return ORDER_UP(x->pid, y->pid);
}

static const struct host_entry *entry_of(const struct host_entry *all, size_t count, uint32_t pid)
{
	const struct host_entry key = {.pid = pid};

	return count == 0 ? NULL : bsearch(&key, all, count, sizeof(*all), by_pid);
}

/* Only processes that are new are asked for their parent: one that lost its parent since stays the child of that. */
static void read_table(struct host_table *table)
{
	struct host_entry *all = NULL;
	const struct host_entry *known;
	size_t count = 0, room = 0;
	DIR *directory = opendir("/proc");
	const struct dirent *entry;
	struct process_stat stat;

	if (directory == NULL)
		return;
	while ((entry = readdir(directory)) != NULL) {
		uint32_t pid = (uint32_t)strtoul(entry->d_name, NULL, 10);

		if (pid == 0 || ARRAY_RESERVE(all, room, count + 1) < 0)
			continue;
		known = entry_of(table->all, table->count, pid);
		if (known != NULL)
			all[count++] = *known;
		else if (process_stat(pid, &stat))
			all[count++] = (struct host_entry){.pid = pid, .parent = stat.parent};
	}
	(void)closedir(directory);
	qsort(all, count, sizeof(*all), by_pid);
	free(table->all);
	table->all = all;
	table->count = count;
	table->room = room;
}

void host_table_look(struct host_table *table, uint64_t now_ns)
{
	uint64_t took;

	if (now_ns < table->due_ns)
		return;
	read_table(table);
	took = clock_monotonic_ns() - now_ns;
	table->due_ns = now_ns + (took * TABLE_SHARE > TABLE_NS ? took * TABLE_SHARE : TABLE_NS);
	table->reads++;
}

void host_table_fini(struct host_table *table)
{
	free(table->all);
	*table = (struct host_table){0};
}

/* ---- one family ---- */

static void tell_member(struct run *run, const struct host_member *member, uint64_t share_bytes,
			enum host_process_state state, uint64_t now_ns)
{
	uint64_t words[EVENT_BYTES_host_process / 8];
	struct event_host_process event = {.pid = member->inner,
					   .parent = member->parent,
					   .resident_bytes = member->told_bytes,
					   .share_bytes = share_bytes,
					   .state = state};

	memcpy(&event.name_low, member->name, 8);
	memcpy(&event.name_high, member->name + 8, 8);
	event_host_process_encode(words, &event);
	(void)run_inject(run, EVENT_host_process, now_ns, words, MSCOPE_COUNT(words));
}

static bool is_member(const struct host_family *family, uint32_t pid)
{
	size_t i;

	for (i = 0; i < family->count; i++) {
		if (family->members[i].pid == pid)
			return true;
	}
	return false;
}

static void add_member(struct host_family *family, const struct host_entry *entry)
{
	struct process_stat stat;
	struct host_member *member;
	uint32_t inner = process_inner_pid(entry->pid);

	/* One that has ended stays in the table until its parent has asked for its status. */
	if (family->count == HOST_MEMBERS_MAX || !process_stat(entry->pid, &stat) ||
	    stat.state == 'Z' ||
	    ARRAY_RESERVE(family->members, family->room, family->count + 1) < 0)
		return;
	member = &family->members[family->count++];
	*member = (struct host_member){.pid = entry->pid,
				       .inner = inner == 0 ? entry->pid : inner,
				       .parent = process_inner_pid(entry->parent),
				       .start_ticks = stat.start_ticks};
	memcpy(member->name, stat.name, sizeof(member->name));
}

/* Numbers of children are mostly higher than those of their parents, so a second walk finds few. */
static void find_members(struct host_family *family, const struct host_table *table, uint32_t root)
{
	size_t before, i;

	do {
		before = family->count;
		for (i = 0; i < table->count; i++) {
			const struct host_entry *entry = &table->all[i];

			if ((entry->parent == root || is_member(family, entry->parent)) &&
			    entry->pid != root && !is_member(family, entry->pid))
				add_member(family, entry);
		}
	} while (family->count > before);
}

/* Names change: a worker gives itself one after it was forked. False: the number is of another process by now. */
static bool look_again(struct host_member *member, bool *out_renamed)
{
	struct process_stat stat;

	*out_renamed = false;
	if (!process_stat(member->pid, &stat) || stat.start_ticks != member->start_ticks ||
	    stat.state == 'Z')
		return false;
	if (memcmp(stat.name, member->name, sizeof(stat.name)) != 0) {
		memcpy(member->name, stat.name, sizeof(stat.name));
		*out_renamed = true;
	}
	return true;
}

static void sample_members(struct host_family *family, struct run *run, bool again, uint64_t now_ns)
{
	size_t i, kept = 0;

	for (i = 0; i < family->count; i++) {
		struct host_member *member = &family->members[i];
		bool renamed = false, runs = !again || look_again(member, &renamed);
		uint64_t bytes = runs ? process_resident_bytes(member->pid) : UINT64_MAX;

		/* One that has ended has no memory, also before its parent has asked for its status. */
		if (bytes == UINT64_MAX || bytes == 0) {
			member->told_bytes = member->seen_bytes;
			tell_member(run, member, UINT64_MAX, HOST_PROCESS_ENDED, now_ns);
			continue;
		}
		member->seen_bytes = bytes;
		if (renamed || host_has_changed(member->told_bytes, bytes)) {
			member->told_bytes = bytes;
			tell_member(run, member, UINT64_MAX, HOST_PROCESS_RUNS, now_ns);
		}
		family->members[kept++] = *member;
	}
	family->count = kept;
}

/* ---- limits ---- */

static uint64_t read_number(const char *directory, const char *name)
{
	char path[512], text[64], *end;
	uint64_t value;

	(void)snprintf(path, sizeof(path), "%s/%s", directory, name);
	if (!io_read_text(path, text, sizeof(text)))
		return UINT64_MAX;
	value = strtoull(text, &end, 10);
	return end == text ? UINT64_MAX : value;
}

/* A line "key value" of a small file. */
static uint64_t read_key(const char *directory, const char *name, const char *key)
{
	char path[512], text[2048], *line, *rest;
	size_t length = strlen(key);

	if (directory[0] == '\0')
		(void)snprintf(path, sizeof(path), "%s", name);
	else
		(void)snprintf(path, sizeof(path), "%s/%s", directory, name);
	if (!io_read_text(path, text, sizeof(text)))
		return UINT64_MAX;
	for (line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
		if (strncmp(line, key, length) == 0 && (line[length] == ' ' || line[length] == ':'))
			return strtoull(line + length + 1, NULL, 10);
	}
	return UINT64_MAX;
}

static bool has_word(const char *list, const char *word)
{
	const char *at = strstr(list, word);
	size_t length = strlen(word);

	return at != NULL && (at == list || at[-1] == ',') &&
	       (at[length] == '\0' || at[length] == ',');
}

/* The path of the process in the hierarchy that accounts for memory: "0::/path", or "4:memory:/path" of the old form. */
static bool find_path(uint32_t pid, char out[256], bool *out_unified)
{
	char path[64], line[512];
	bool found = false;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%u/cgroup", pid);
	file = fopen(path, "re");
	while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
		char *names = strchr(line, ':');
		char *at = names == NULL ? NULL : strchr(names + 1, ':');
		bool unified;

		if (at == NULL)
			continue;
		*at++ = '\0';
		at[strcspn(at, "\n")] = '\0';
		unified = names[1] == '\0';
		if ((unified && found) || (!unified && !has_word(names + 1, "memory")))
			continue;
		(void)snprintf(out, 256, "%.255s", at);
		*out_unified = unified;
		found = true;
	}
	if (file != NULL)
		(void)fclose(file);
	return found;
}

/* Where that hierarchy is mounted, and which part of it. */
static bool find_mount(bool unified, char root[256], char place[256])
{
	FILE *file = fopen("/proc/self/mountinfo", "re");
	char line[1024];
	bool found = false;

	while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL) {
		char *type = strstr(line, " - ");

		if (type == NULL || sscanf(line, "%*s %*s %*s %255s %255s", root, place) != 2)
			continue;
		type += 3;
		type[strcspn(type, "\n")] = '\0';
		if (unified)
			found = strncmp(type, "cgroup2 ", 8) == 0;
		else
			found = strncmp(type, "cgroup ", 7) == 0 &&
				has_word(strrchr(type, ' ') + 1, "memory");
		/* The options of the file system start with "rw". */
		if (!found && !unified && strncmp(type, "cgroup ", 7) == 0)
			found = strstr(strrchr(type, ' ') + 1, ",memory") != NULL;
	}
	if (file != NULL)
		(void)fclose(file);
	return found;
}

static uint64_t limit_in(const struct host_limits *limits, const char *directory)
{
	uint64_t bytes =
		read_number(directory, limits->unified ? "memory.max" : "memory.limit_in_bytes");

	return bytes < NO_LIMIT ? bytes : UINT64_MAX;
}

/* The lowest limit of the cgroup and those above it holds. */
static void find_limits(struct host_limits *limits, uint32_t pid)
{
	char path[256], root[256], place[256], at[sizeof(limits->own)];
	uint64_t lowest = UINT64_MAX;
	const char *below = path;
	size_t mount;

	*limits = (struct host_limits){0};
	if (!find_path(pid, path, &limits->unified) || !find_mount(limits->unified, root, place))
		return;
	if (strcmp(root, "/") != 0) {
		size_t length = strlen(root);

		below = strncmp(path, root, length) == 0 ? path + length : "";
	}
	if (strcmp(below, "/") == 0)
		below = "";
	mount = strlen(place);
	if (snprintf(at, sizeof(at), "%s%s", place, below) >= (int)sizeof(at))
		return;
	memcpy(limits->own, at, sizeof(at));
	for (;;) {
		uint64_t bytes = limit_in(limits, at);
		char *slash;

		if (bytes < lowest) {
			lowest = bytes;
			memcpy(limits->limiting, at, sizeof(at));
		}
		slash = strrchr(at, '/');
		if (slash == NULL || (size_t)(slash - at) < mount)
			break;
		*slash = '\0';
	}
}

static bool differs(uint64_t told, uint64_t now, uint64_t least)
{
	return (told > now ? told - now : now - told) >= least;
}

static void tell_limits(struct host_limits *limits, struct run *run, bool last, uint64_t now_ns)
{
	uint64_t words[EVENT_BYTES_host_limit / 8], total, available;
	struct event_host_limit event = {.limit_bytes = UINT64_MAX,
					 .used_bytes = UINT64_MAX,
					 .kills = UINT64_MAX,
					 .hits = UINT64_MAX};
	const char *of = limits->limiting;

	if (limits->own[0] != '\0')
		event.kills = limits->unified
				      ? read_key(limits->own, "memory.events", "oom_kill")
				      : read_key(limits->own, "memory.oom_control", "oom_kill");
	if (of[0] != '\0') {
		event.limit_bytes = limit_in(limits, of);
		event.used_bytes = read_number(of, limits->unified ? "memory.current"
								   : "memory.usage_in_bytes");
		event.hits = limits->unified ? read_key(of, "memory.events", "max")
					     : read_number(of, "memory.failcnt");
	}
	total = read_key("", "/proc/meminfo", "MemTotal");
	available = read_key("", "/proc/meminfo", "MemAvailable");
	event.total_bytes = total == UINT64_MAX ? 0 : total * 1024;
	event.available_bytes = available == UINT64_MAX ? 0 : available * 1024;
	if (limits->told && limits->told_kills == event.kills &&
	    (last ||
	     (!differs(limits->told_used, event.used_bytes, event.limit_bytes / 64) &&
	      !differs(limits->told_available, event.available_bytes, event.total_bytes / 16 + 1))))
		return;
	limits->told = true;
	limits->told_used = event.used_bytes;
	limits->told_kills = event.kills;
	limits->told_available = event.available_bytes;
	event_host_limit_encode(words, &event);
	(void)run_inject(run, EVENT_host_limit, now_ns, words, MSCOPE_COUNT(words));
}

/* ---- what the engine calls ---- */

void host_family_look(struct host_family *family, const struct host_table *table, struct run *run,
		      uint32_t pid, uint64_t now_ns)
{
	bool again = family->table_reads != table->reads;

	if (pid == 0)
		return;
	if (!family->limits_found) {
		family->limits_found = true;
		find_limits(&family->limits, pid);
	}
	if (again) {
		family->table_reads = table->reads;
		find_members(family, table, pid);
	}
	sample_members(family, run, again, now_ns);
	if (now_ns - family->limits_ns >= LIMITS_NS) {
		family->limits_ns = now_ns;
		tell_limits(&family->limits, run, false, now_ns);
	}
}

void host_family_shares(struct host_family *family, struct run *run, uint32_t pid, uint64_t now_ns)
{
	struct host_member own = {.pid = pid, .inner = process_inner_pid(pid)};
	struct process_stat stat;
	uint64_t all, share;
	size_t i;

	if (family->count == 0 || pid == 0 || !process_stat(pid, &stat))
		return;
	memcpy(own.name, stat.name, sizeof(own.name));
	own.told_bytes = process_resident_bytes(pid);
	for (all = own.told_bytes, i = 0; i < family->count; i++)
		all += family->members[i].seen_bytes;
	if (own.told_bytes == UINT64_MAX || all > SHARES_MAX)
		return;
	share = process_share_bytes(pid);
	if (share != UINT64_MAX)
		tell_member(run, &own, share, HOST_PROCESS_RUNS, now_ns);
	for (i = 0; i < family->count; i++) {
		share = process_share_bytes(family->members[i].pid);
		if (share == UINT64_MAX)
			continue;
		family->members[i].told_bytes = family->members[i].seen_bytes;
		tell_member(run, &family->members[i], share, HOST_PROCESS_RUNS, now_ns);
	}
}

void host_family_end(struct host_family *family, struct run *run, uint64_t now_ns)
{
	if (family->limits.told)
		tell_limits(&family->limits, run, true, now_ns);
}

void host_family_fini(struct host_family *family)
{
	free(family->members);
	*family = (struct host_family){0};
}
