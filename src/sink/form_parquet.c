/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parquet: the rows of the csv with typed columns, for engines that read the files of many ranks at once (src/parquet, docs/fleet.md).
 *
 * A Parquet file cannot be read before its footer, which comes last. So a dump is one part or several: a part is written under a
 * name that engines pass over, .NAME.tmp, and renamed when it is whole. The first part has the name of the dump; after a moment at which
 * other processes must find all rows (publish, secure) the next rows go into NAME_2.parquet, NAME_3.parquet, ... A kill leaves whole
 * parts; the trace has the rest, and recover writes it.
 *
 * The footer says which row of the dump is the last, so that a dump that is continued repeats none.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/io.h"
#include "base/map.h"
#include "parquet/parquet.h"
#include "sink/attr_writer.h"
#include "sink/sink.h"

#define EXTENSION ".parquet"
#define PATH_ROOM (PROJECT_PATH_MAX + 128)

/* Memory of all files of this process, and of one of them at least and at most. One that holds more ends its row group. */
#define HELD_ALL   (16u << 20)
#define HELD_LEAST (256u << 10)
#define HELD_ROWS  256u /* rows between two looks at it */

/* NUMBER(symbol, name), TEXT(symbol, name): always there. Others may be NULL; a LONG text has no statistics. */
#define COLUMNS(NUMBER, TEXT, NUMBER_OR_NULL, TEXT_OR_NULL, LONG_OR_NULL)                          \
	NUMBER(ID, "id")                                                                           \
	TEXT(EVENT, "event")                                                                       \
	TEXT(EVENT_TYPE, "event_type")                                                             \
	TEXT_OR_NULL(NAME, "name")                                                                 \
	NUMBER(TIME, "time_ns")                                                                    \
	NUMBER(PID, "process_id")                                                                  \
	NUMBER(TID, "thread_id")                                                                   \
	TEXT(DEVICE, "device_id")                                                                  \
	NUMBER_OR_NULL(ADDRESS, "address")                                                         \
	NUMBER_OR_NULL(SIZE, "size")                                                               \
	NUMBER_OR_NULL(USED, "used")                                                               \
	NUMBER_OR_NULL(TOTAL, "total")                                                             \
	NUMBER_OR_NULL(PROCESS_USED, "process_used")                                               \
	NUMBER_OR_NULL(DEVICE_USED, "device_used")                                                 \
	NUMBER_OR_NULL(STEP, "step")                                                               \
	NUMBER_OR_NULL(ALLOCATION_ID, "allocation_id")                                             \
	TEXT_OR_NULL(OWNER, "owner")                                                               \
	NUMBER_OR_NULL(STREAM, "stream")                                                           \
	LONG_OR_NULL(ATTR, "attr")                                                                 \
	LONG_OR_NULL(PYTHON_STACK, "python_stack")                                                 \
	LONG_OR_NULL(C_STACK, "c_stack")

enum parquet_index {
#define INDEX(symbol, name) PARQUET_##symbol,
	COLUMNS(INDEX, INDEX, INDEX, INDEX, INDEX)
#undef INDEX
		PARQUET_COLUMNS
};

static const struct parquet_column columns[PARQUET_COLUMNS] = {
#define NUMBER(symbol, text)	     {.name = text, .type = PARQUET_NUMBER},
#define TEXT(symbol, text)	     {.name = text, .type = PARQUET_TEXT},
#define NUMBER_OR_NULL(symbol, text) {.name = text, .type = PARQUET_NUMBER, .optional = true},
#define TEXT_OR_NULL(symbol, text)   {.name = text, .type = PARQUET_TEXT, .optional = true},
#define LONG_OR_NULL(symbol, text)                                                                 \
	{.name = text, .type = PARQUET_TEXT, .optional = true, .long_text = true},
	COLUMNS(NUMBER, TEXT, NUMBER_OR_NULL, TEXT_OR_NULL, LONG_OR_NULL)
#undef NUMBER
#undef TEXT
#undef NUMBER_OR_NULL
#undef TEXT_OR_NULL
#undef LONG_OR_NULL
};

/* In the footer: the last row of a part, as DIGITS digits, which makes it easy to find again. */
#define LAST_ROW "msmemscope.last_row"
#define DRY                                                                                        \
	"msmemscope.dry" /* before it: the device of a dry run; not there if a device was used */
#define LAST_DIGITS 20
#define TAIL_BYTES  4096 /* of a part, that certainly have it */

/*
 * Numbers of texts in the dictionaries of the row group in progress, so that words and stacks that come back are neither made nor looked
 * up. A number + 1; 0: not there yet.
 */
struct known {
	uint32_t group; /* row group that they are of */
	uint32_t events[ROW_END], types[ROW_END][POOL_END];
	struct map stacks;	 /* by stack and depths: two numbers, or STACK_NULL */
	struct map_key asked;	 /* by knows_stack(), for the row that follows */
	bool is_asked, is_there; /* the former: by it; the latter: and found */
	uint32_t python, c;	 /* what was found */
};

#define STACK_NULL   UINT32_MAX
#define KNOWN_STACKS 16384u /* remembered at most */

struct form_file {
	char path[PATH_ROOM];	       /* of the first part */
	uint32_t part;		       /* number of the one in progress, or of the next one */
	struct parquet_writer *writer; /* NULL: no part is in progress */
	struct lazy_file file;	       /* it */
	uint64_t last;		       /* row of it */
	bool continues;		       /* rows up to `written` are in parts that are whole */
	uint64_t written;
	char dry[64]; /* of its rows; "": none */
	struct strbuf attr;
	struct known known;
	struct mscope_error failure; /* the first one; nothing is written any more */
};

static uint32_t open_files;

static int failed(struct form_file *file, int code, struct mscope_error *err)
{
	if (file->failure.code == 0)
		(void)error_set(&file->failure, code, "cannot write %s: %s", file->path,
				mscope_status_str(code));
	return error_set(err, file->failure.code, "%s", file->failure.message);
}

/* ---- names ---- */

/* NAME.parquet, NAME_2.parquet, ...; a file of a replacing pass is NAME.parquet.new and the only part. */
static void part_path(const char *path, uint32_t part, char out[PATH_ROOM])
{
	size_t stem = strlen(path) - strlen(EXTENSION);

	if (part == 1)
		(void)snprintf(out, PATH_ROOM, "%s", path);
	else
		(void)snprintf(out, PATH_ROOM, "%.*s_%u" EXTENSION, (int)stem, path, part);
}

/* Beside the part. Engines pass over names that begin with a dot. */
static void temporary_path(const char *path, uint32_t attempt, char out[PATH_ROOM])
{
	const char *slash = strrchr(path, '/');
	int directory = slash == NULL ? 0 : (int)(slash + 1 - path);

	if (attempt == 1)
		(void)snprintf(out, PATH_ROOM, "%.*s.%s.tmp", directory, path, path + directory);
	else
		(void)snprintf(out, PATH_ROOM, "%.*s.%s.%u.tmp", directory, path, path + directory,
			       attempt);
}

/* Parts after the first `kept` ones are of an earlier pass. */
static void remove_parts(const char *path, uint32_t kept)
{
	char name[PATH_ROOM];
	uint32_t part = kept + 1;

	do
		part_path(path, part++, name);
	while (unlink(name) == 0);
}

static void parquet_replaced(const char *path)
{
	remove_parts(path, 1);
}

/* The last row of a part that is whole; false: there is none, or it does not say. */
static bool last_row(const char *path, uint64_t *out)
{
	char tail[TAIL_BYTES + 1];
	const char *key;
	struct stat st;
	size_t bytes;
	int fd = io_open_file(path, O_RDONLY, NULL);
	bool found = false;

	if (fd < 0)
		return false;
	if (fstat(fd, &st) == 0) {
		bytes = st.st_size < TAIL_BYTES ? (size_t)st.st_size : TAIL_BYTES;
		if (io_read_at(fd, tail, bytes, (uint64_t)st.st_size - bytes) == 0) {
			key = memmem(tail, bytes, LAST_ROW, strlen(LAST_ROW));
			/* After the key: the field and the length of the value, a byte each. */
			key = key == NULL ? NULL : key + strlen(LAST_ROW) + 2;
			found = key != NULL && key + LAST_DIGITS <= tail + bytes;
			tail[found ? key + LAST_DIGITS - tail : 0] = '\0';
			if (found)
				*out = strtoull(key, NULL, 10);
		}
	}
	(void)close(fd);
	return found;
}

/* ---- a part ---- */

static int write_bytes(void *arg, const void *data, size_t bytes)
{
	struct form_file *file = arg;
	int fd = lazy_file_fd(&file->file);

	return fd < 0 ? fd : io_write(fd, data, bytes);
}

/*
 * Opens the temporary file of a part. Another process may write the same one, as two who store one trace do: a lock says so, and ends
 * with its owner. A file that was left is taken over if it is ours alone.
 */
static int open_temporary(struct form_file *file, const char *part)
{
	struct stat st, named;
	char path[PATH_ROOM];
	uint32_t attempt;
	int r = -EBUSY;

	for (attempt = 1; attempt < 100; attempt++) {
		temporary_path(part, attempt, path);
		r = lazy_file_open(&file->file, path, O_WRONLY | O_CREAT | O_NOFOLLOW, 0600);
		if (r < 0)
			break;
		/* A file system without locks has no second writer that knows of them. */
		if ((flock(file->file.fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) &&
		    fstat(file->file.fd, &st) == 0 && stat(path, &named) == 0 &&
		    st.st_ino == named.st_ino && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
		    st.st_nlink == 1) {
			r = fchmod(file->file.fd, 0600) < 0 || ftruncate(file->file.fd, 0) < 0
				    ? -errno
				    : 0;
			break;
		}
		(void)lazy_file_close(&file->file);
		r = -EBUSY;
	}
	return r;
}

static int begin_part(struct form_file *file, struct mscope_error *err)
{
	char path[PATH_ROOM];
	int r;

	part_path(file->path, file->part, path);
	r = open_temporary(file, path);
	if (r == 0)
		r = parquet_new(columns, PARQUET_COLUMNS, write_bytes, file, &file->writer);
	return r < 0 ? failed(file, r, err) : 0;
}

/* Another row group has other numbers. */
static void forget(struct form_file *file)
{
	map_fini(&file->known.stacks);
	file->known = (struct known){.group = parquet_groups(file->writer)};
}

/* Forgets the part in progress. */
static void drop_part(struct form_file *file)
{
	if (file->writer != NULL)
		forget(file);
	parquet_free(file->writer);
	file->writer = NULL;
	if (file->file.path != NULL)
		(void)unlink(file->file.path);
	(void)lazy_file_close(&file->file);
}

static int end_part(struct form_file *file, struct mscope_error *err)
{
	char digits[LAST_DIGITS + 4], path[PATH_ROOM];
	struct parquet_pair pairs[] = {{DRY, file->dry}, {LAST_ROW, digits}};
	size_t first = file->dry[0] == '\0' ? 1 : 0;
	int r;

	if (file->failure.code != 0)
		return failed(file, 0, err);
	if (file->writer == NULL)
		return 0;
	(void)snprintf(digits, sizeof(digits), "%0*llu", LAST_DIGITS,
		       (unsigned long long)file->last);
	r = parquet_end_file(file->writer, &pairs[first], MSCOPE_COUNT(pairs) - first);
	part_path(file->path, file->part, path);
	/* Some file systems tell only now that the disk is full. */
	if (r == 0 && file->file.fd >= 0 && close(file->file.fd) < 0)
		r = -errno;
	if (r == 0) {
		file->file.fd = -1;
		if (rename(file->file.path, path) < 0)
			r = -errno;
	}
	if (r < 0) {
		drop_part(file);
		return failed(file, r, err);
	}
	forget(file);
	parquet_free(file->writer);
	file->writer = NULL;
	(void)lazy_file_close(&file->file);
	file->part++;
	return 0;
}

/* ---- the form ---- */

static int parquet_open(const char *path, bool resume, uint64_t first_id, struct form_file **out,
			struct mscope_error *err)
{
	struct form_file *file = calloc(1, sizeof(*file));
	char part[PATH_ROOM];
	uint64_t last;

	(void)first_id; /* rows say themselves which they are */
	if (file == NULL)
		return error_set(err, -ENOMEM, "no memory");
	(void)snprintf(file->path, sizeof(file->path), "%s", path);
	file->part = 1;
	file->file.fd = -1;
	while (resume) {
		part_path(path, file->part, part);
		if (access(part, F_OK) < 0)
			break;
		if (last_row(part, &last)) {
			file->written =
				file->continues && file->written > last ? file->written : last;
			file->continues = true;
		}
		file->part++;
	}
	if (!resume && strcmp(path + strlen(path) - strlen(EXTENSION), EXTENSION) == 0)
		remove_parts(path, 1);
	open_files++;
	*out = file;
	return 0;
}

static void put_text(struct parquet_writer *writer, size_t column, const char *text)
{
	if (text == NULL)
		parquet_put_null(writer, column);
	else
		parquet_put_text(writer, column, text, strlen(text));
}

static void put_stack(struct parquet_writer *writer, size_t column, struct stack_text stack)
{
	if (stack.bytes == 0)
		parquet_put_null(writer, column);
	else
		parquet_put_text(writer, column, stack.text, stack.bytes);
}

/* A word of a small set. */
static void put_word(struct parquet_writer *writer, size_t column, const char *text,
		     uint32_t *known)
{
	if (*known != 0) {
		parquet_put_entry(writer, column, *known - 1);
		return;
	}
	put_text(writer, column, text);
	*known = parquet_last_entry(writer, column) + 1; /* 0 again where there is none */
}

static void put_known_stack(struct parquet_writer *writer, size_t column, uint32_t entry)
{
	if (entry == STACK_NULL)
		parquet_put_null(writer, column);
	else
		parquet_put_entry(writer, column, entry);
}

/* Both stacks of a row, by number where they were there before. */
static int put_stacks(struct form_file *file, struct stack_text python, struct stack_text c)
{
	struct parquet_writer *writer = file->writer;
	struct known *known = &file->known;
	uint32_t python_entry, c_entry;
	bool asked = known->is_asked;

	known->is_asked = false;
	if (asked && known->is_there) {
		put_known_stack(writer, PARQUET_PYTHON_STACK, known->python);
		put_known_stack(writer, PARQUET_C_STACK, known->c);
		return 0;
	}
	put_stack(writer, PARQUET_PYTHON_STACK, python);
	put_stack(writer, PARQUET_C_STACK, c);
	python_entry = parquet_last_entry(writer, PARQUET_PYTHON_STACK);
	c_entry = parquet_last_entry(writer, PARQUET_C_STACK);
	if (!asked || python_entry == PARQUET_NO_ENTRY || c_entry == PARQUET_NO_ENTRY)
		return 0;
	if (known->stacks.count >= KNOWN_STACKS)
		map_fini(&known->stacks);
	python_entry = python.bytes == 0 ? STACK_NULL : python_entry;
	c_entry = c.bytes == 0 ? STACK_NULL : c_entry;
	return map_put(&known->stacks, known->asked, (uint64_t)python_entry << 32 | c_entry);
}

static bool parquet_knows_stack(struct form_file *file, uint32_t stack, uint32_t c_depth,
				uint32_t python_depth)
{
	struct known *known = &file->known;
	const uint64_t *found;

	/* Rows that are not written are not to be remembered. */
	if (file->writer == NULL || file->failure.code != 0)
		return false;
	if (known->group != parquet_groups(file->writer))
		forget(file);
	known->asked = (struct map_key){stack, (uint64_t)c_depth << 32 | python_depth};
	known->is_asked = true;
	found = map_get(&known->stacks, known->asked);
	known->is_there = found != NULL;
	if (found != NULL) {
		known->python = (uint32_t)(*found >> 32);
		known->c = (uint32_t)*found;
	}
	return found != NULL;
}

static void put_known(struct parquet_writer *writer, size_t column, uint64_t value, bool known)
{
	if (known)
		parquet_put_number(writer, column, (int64_t)value);
	else
		parquet_put_null(writer, column);
}

static int put_attr(struct form_file *file, const struct row *row)
{
	static const uint8_t targets[NUMBER_COUNT] = {
		[NUMBER_ALLOCATION_ID] = PARQUET_ALLOCATION_ID,
		[NUMBER_SIZE] = PARQUET_SIZE,
		[NUMBER_USED] = PARQUET_USED,
		[NUMBER_TOTAL] = PARQUET_TOTAL,
		[NUMBER_PROCESS_USED] = PARQUET_PROCESS_USED,
		[NUMBER_DEVICE_USED] = PARQUET_DEVICE_USED,
		[NUMBER_STREAM] = PARQUET_STREAM,
	};
	struct attr_columns split;
	char *to;
	size_t i;

	strbuf_reset(&file->attr);
	to = strbuf_room(&file->attr, attr_room(row));
	if (to == NULL)
		return -ENOMEM;
	strbuf_end(&file->attr, attr_split(to, row, &split));
	for (i = 0; i < NUMBER_COUNT; i++)
		put_known(file->writer, targets[i], split.numbers[i], split.present >> i & 1);
	put_text(file->writer, PARQUET_OWNER, split.owner);
	put_text(file->writer, PARQUET_ATTR, file->attr.length == 0 ? NULL : file->attr.data);
	return 0;
}

/* Whether the row group in progress has all the rows, or holds all the memory, that it may. */
static bool group_is_full(const struct parquet_writer *writer)
{
	uint32_t rows = parquet_rows(writer), most = HELD_ALL / (open_files == 0 ? 1 : open_files);

	if (rows >= PARQUET_GROUP_ROWS)
		return true;
	return rows % HELD_ROWS == 0 &&
	       (parquet_held(writer) >= (most < HELD_LEAST ? HELD_LEAST : most) ||
		parquet_wants_group(writer));
}

static int parquet_row(struct form_file *file, const struct row *row, const char *device,
		       struct stack_text python, struct stack_text c, struct mscope_error *err)
{
	uint8_t pool = row->context->pool < POOL_END ? row->context->pool : POOL_UNKNOWN;
	struct parquet_writer *writer;
	struct known *known = &file->known;
	int r;

	if (file->failure.code != 0)
		return failed(file, 0, err);
	if (file->continues && row->id <= file->written)
		return 0;
	if (file->writer == NULL && (r = begin_part(file, err)) < 0)
		return r;
	writer = file->writer;
	if (row->dry != NULL)
		(void)snprintf(file->dry, sizeof(file->dry), "%s", row->dry);
	if (known->group != parquet_groups(writer))
		forget(file);
	parquet_put_number(writer, PARQUET_ID, (int64_t)row->id);
	put_word(writer, PARQUET_EVENT, row_event(row->kind), &known->events[row->kind]);
	put_word(writer, PARQUET_EVENT_TYPE, row_event_type(row->kind, pool),
		 &known->types[row->kind][pool]);
	put_text(writer, PARQUET_NAME, row->name);
	parquet_put_number(writer, PARQUET_TIME, (int64_t)row->time_ns);
	parquet_put_number(writer, PARQUET_PID, row->pid);
	parquet_put_number(writer, PARQUET_TID, row->tid);
	put_text(writer, PARQUET_DEVICE, device);
	put_known(writer, PARQUET_ADDRESS, row->address, row_has_address(row->kind));
	put_known(writer, PARQUET_STEP, row->step, row->step != 0);
	r = put_stacks(file, python, c);
	if (r == 0)
		r = put_attr(file, row);
	if (r == 0)
		r = parquet_end_row(writer);
	file->last = row->id;
	if (r == 0 && group_is_full(writer))
		r = parquet_end_group(writer);
	if (r < 0) {
		/* A disk that is full gets back what the part took of it. */
		drop_part(file);
		return failed(file, r, err);
	}
	return 0;
}

/* Rows are kept until a part is whole; there is nothing that others could read before. */
static int parquet_flush(struct form_file *file, struct mscope_error *err)
{
	return file->failure.code != 0 ? failed(file, 0, err) : 0;
}

static int parquet_close(struct form_file *file, bool keep, struct mscope_error *err)
{
	int r = keep ? end_part(file, err) : 0;

	drop_part(file);
	strbuf_fini(&file->attr);
	free(file);
	open_files--;
	return r;
}

const struct sink_form form_parquet = {
	.extension = EXTENSION,
	.calls = CALLS_IN_CSV,
	.open = parquet_open,
	.row = parquet_row,
	.knows_stack = parquet_knows_stack,
	.flush = parquet_flush,
	.publish = end_part,
	.secure = end_part,
	.replaced = parquet_replaced,
	.close = parquet_close,
};
