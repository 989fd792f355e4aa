/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process that reads. It gives up what it could do harm with: it writes no core file, is the first to go when memory runs
 * out, has no terminal, and opens nothing while libdw is at work, because libdw opens files that DWARF names (.dwo).
 */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/array.h"
#include "base/io.h"
#include "symbols/debug_file.h"
#include "symbols/demangle.h"
#include "symbols/dwarf_reader.h"
#include "symbols/lines_work.h"

_Static_assert(DWARF_FRAMES_MAX == LINES_FRAMES_MAX, "an answer holds all frames");
_Static_assert(DEMANGLE_OUT_BYTES_MAX + 3 < LINES_TEXT_MAX, "a name is not cut twice");

/* An address and the unit that it belongs to. */
struct task {
	uint64_t unit;
	uint64_t vaddr;
	uint32_t module;
	uint32_t want;
};

struct tasks {
	struct task *all;
	size_t count, room;
};

/* Adds `bytes` to the part of our memory that the kernel bounds, as it is now. Without /proc there is no bound. */
static void bound_memory(uint64_t bytes)
{
	unsigned long long data = 0;
	struct rlimit limit;
	char text[256];

	if (!io_read_text("/proc/self/statm", text, sizeof(text)) ||
	    sscanf(text, "%*u %*u %*u %*u %*u %llu", &data) != 1 ||
	    getrlimit(RLIMIT_DATA, &limit) < 0)
		return;
	bytes += (uint64_t)data * (uint64_t)sysconf(_SC_PAGESIZE);
	if (bytes < limit.rlim_max) {
		limit.rlim_cur = bytes;
		(void)setrlimit(RLIMIT_DATA, &limit);
	}
}

static void settle_in(const struct lines *lines)
{
	static const int deadly[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
	const struct rlimit none = {0};
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), score;
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(deadly); i++)
		(void)signal(deadly[i], SIG_DFL);
	for (i = 0; null >= 0 && i < 3; i++)
		(void)dup2(null, (int)i);
	score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (score >= 0) {
		(void)io_write(score, "1000", 4);
		(void)close(score);
	}
	bound_memory(lines->limits.memory_bytes);
	(void)setrlimit(RLIMIT_CORE, &none);
	/* Also keeps collectors of crashes away. After /proc was read, which it would make root's. */
	(void)prctl(PR_SET_DUMPABLE, 0);
}

/* Allows or forbids to open files. */
static void allow_files(bool allowed)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	limit.rlim_cur = allowed ? limit.rlim_max : 0;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
}

/* Publishes a record; false when the board is full. Empties `content`. The release pairs with the acquire in take_records(). */
static bool send_record(struct lines_board *board, enum lines_record_kind kind, size_t index,
			struct strbuf *content)
{
	uint64_t at = atomic_load_explicit(&board->committed, memory_order_relaxed);
	struct lines_record record = {.kind = kind, .index = (uint32_t)index};

	if (strbuf_failed(content))
		return false;
	record.bytes = (uint32_t)content->length;
	/* One record without content always has room left: that it is full. */
	if (kind != RECORD_FULL && sizeof(board->data) - at < 2 * sizeof(record) + content->length)
		return false;
	memcpy(board->data + at, &record, sizeof(record));
	if (content->length > 0)
		memcpy(board->data + at + sizeof(record), content->data, content->length);
	atomic_store_explicit(&board->committed, at + sizeof(record) + content->length,
			      memory_order_release);
	strbuf_reset(content);
	return true;
}

static bool answer_names(const struct lines *lines, struct lines_board *board,
			 struct strbuf *content)
{
	size_t i;

	for (i = lines->named_count; i < lines->want_count; i++) {
		const char *symbol = lines->wants[i].symbol;

		if (symbol == NULL || !demangle_wanted(symbol))
			continue;
		demangle(symbol, content);
		if (!send_record(board, RECORD_NAME, i, content))
			return false;
	}
	return true;
}

static uint16_t cut(size_t bytes)
{
	return (uint16_t)(bytes < LINES_TEXT_MAX ? bytes : LINES_TEXT_MAX);
}

static bool is_endless(const struct lines *lines, const char *name)
{
	size_t i;

	for (i = 0; i < lines->endless_count; i++) {
		if (strcmp(lines->endless[i], name) == 0)
			return true;
	}
	return false;
}

/*
 * Appends one frame. The function that has code of its own is named by its symbol when that says more: DWARF has no mangled
 * name for some functions of C++.
 */
static void add_frame(const struct lines *lines, const struct dwarf_frame *frame,
		      const char *symbol, struct strbuf *content)
{
	const char *mangled = frame->linkage_name;
	struct lines_sent_frame sent = {.line = frame->line};
	size_t head = content->length;

	if (mangled == NULL && symbol != NULL && demangle_wanted(symbol))
		mangled = symbol;
	strbuf_add(content, &sent, sizeof(sent));
	if (mangled != NULL && is_endless(lines, mangled))
		strbuf_add(content, mangled, cut(strlen(mangled)));
	else if (mangled != NULL)
		demangle(mangled, content);
	else if (frame->name != NULL)
		strbuf_add(content, frame->name, cut(strlen(frame->name)));
	sent.function_bytes = (uint16_t)(content->length - head - sizeof(sent));
	if (frame->file != NULL) {
		sent.file_bytes = cut(strlen(frame->file));
		strbuf_add(content, frame->file, sent.file_bytes);
	}
	if (!strbuf_failed(content))
		memcpy(content->data + head, &sent, sizeof(sent));
}

static int compare_tasks(const void *x, const void *y)
{
	const struct task *a = x, *b = y;

	return ORDER_UP(a->module, b->module) ?:
	       ORDER_UP(a->unit, b->unit) ?:
	       ORDER_UP(a->vaddr, b->vaddr);
}

static bool answer_tasks(const struct lines *lines, struct dwarf_reader *reader, struct task *tasks,
			 size_t count, struct lines_board *board, struct strbuf *content)
{
	struct dwarf_frame frames[DWARF_FRAMES_MAX];
	size_t i, f, frame_count;

	for (i = 0; i < count; i++)
		tasks[i].unit = dwarf_reader_unit(reader, tasks[i].vaddr);
	qsort(tasks, count, sizeof(*tasks), compare_tasks);
	for (i = 0; i < count; i++) {
		frame_count = dwarf_reader_frames(reader, tasks[i].vaddr, frames);
		for (f = 0; f < frame_count; f++)
			add_frame(lines, &frames[f],
				  f + 1 == frame_count ? lines->wants[tasks[i].want].symbol : NULL,
				  content);
		if (!send_record(board, RECORD_FRAMES, tasks[i].want, content))
			return false;
	}
	return true;
}

static bool answer_module(const struct lines *lines, struct task *tasks, size_t count,
			  struct lines_board *board, struct strbuf *content)
{
	const struct lines_module *module = &lines->modules[tasks[0].module];
	const struct debug_wish wish = {
		.fd = module->fd,
		.root = module->root,
		.path = module->path,
		.build_id = module->build_id,
		.build_id_length = module->build_id_length,
	};
	struct dwarf_reader *reader = NULL;
	struct debug_files files;
	bool sent;

	if (!send_record(board, RECORD_MODULE, tasks[0].module, content))
		return false;
	allow_files(true);
	if (debug_file_find(&wish, &files) < 0)
		return true;
	allow_files(false);
	/* That there is some and that it cannot be read is told by the end of this process. */
	if (!send_record(board, RECORD_DWARF, tasks[0].module, content) ||
	    dwarf_reader_open(files.fd, files.alt_fd, &reader) < 0)
		_exit(1);
	sent = answer_tasks(lines, reader, tasks, count, board, content);
	dwarf_reader_close(reader);
	(void)close(files.fd);
	if (files.alt_fd >= 0)
		(void)close(files.alt_fd);
	return sent;
}

/* The addresses whose modules are to be read, by module. */
static bool collect_tasks(const struct lines *lines, struct tasks *tasks)
{
	size_t i;

	for (i = lines->settled_count; i < lines->want_count && !lines->names_only; i++) {
		const struct lines_want *want = &lines->wants[i];

		if (want->settled || lines->modules[want->module].state != LINES_READABLE)
			continue;
		if (ARRAY_RESERVE(tasks->all, tasks->room, tasks->count + 1) < 0)
			return false;
		tasks->all[tasks->count++] = (struct task){
			.vaddr = want->vaddr, .module = want->module, .want = (uint32_t)i};
	}
	if (tasks->count > 0)
		qsort(tasks->all, tasks->count, sizeof(*tasks->all), compare_tasks);
	return true;
}

static bool answer_all(const struct lines *lines, const struct tasks *tasks,
		       struct lines_board *board, struct strbuf *content)
{
	size_t first, behind;

	if (!answer_names(lines, board, content))
		return false;
	for (first = 0; first < tasks->count; first = behind) {
		for (behind = first;
		     behind < tasks->count && tasks->all[behind].module == tasks->all[first].module;
		     behind++)
			;
		if (!answer_module(lines, tasks->all + first, behind - first, board, content))
			return false;
	}
	return send_record(board, RECORD_END, 0, content);
}

int lines_answer(const struct lines *lines, struct lines_board *board, pid_t parent)
{
	struct strbuf content = {0};
	struct tasks tasks = {0};

	/* It dies with its parent, also with one that died before this. */
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		return 1;
	settle_in(lines);
	if (!collect_tasks(lines, &tasks))
		return 1;
	if (answer_all(lines, &tasks, board, &content))
		return 0;
	if (strbuf_failed(&content))
		return 1;
	strbuf_reset(&content);
	(void)send_record(board, RECORD_FULL, 0, &content);
	return 0;
}
