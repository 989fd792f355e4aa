/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing a process. What all runs share goes first, each statement by itself: it is named by its content, so it may be there
 * already, and it does no harm if what refers to it never comes. Then the rows of the process take the place of older ones, in one
 * transaction. So storing again changes nothing, and a kill at any moment leaves all of a process or nothing.
 *
 * Shared rows go in by the order of their keys, so that writers never wait for one another in a circle, and no transaction changes
 * a row of another process: 1,000 ranks of a run do not queue. Where writers queue anyway (SQLite), what is shared goes into the
 * transaction too: nothing is left of a process that could not be stored.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "store/store.h"

#define BATCH                                                                                      \
	50u /* rows of a statement that inserts shared rows; stacks that one question asks for */

/* ---- what is shared ---- */

struct keys {
	const struct store_rows *rows;
	int64_t *all; /* of stacks, sorted; */
	bool *known;  /* in the store already */
	size_t count;
};

static int by_number(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return ORDER_UP(*x, *y);
}

static bool *find_key(const struct keys *keys, int64_t key)
{
	const int64_t *found =
		keys->count == 0 ? NULL
				 : bsearch(&key, keys->all, keys->count, sizeof(key), by_number);

	return found == NULL ? NULL : &keys->known[found - keys->all];
}

static int note_known(void *arg, const struct store_value *values, size_t count)
{
	bool *known = count == 0 ? NULL : find_key(arg, values[0].number);

	if (known != NULL)
		*known = true;
	return 0;
}

/* Which of the stacks the store has. They come with all of their frames. */
static int find_known(struct store *store, struct keys *keys, struct mscope_error *err)
{
	struct strbuf sql = {0};
	size_t from, i;
	int r = 0;

	strbuf_add_str(&sql, "SELECT stack FROM stacks WHERE stack IN (");
	for (i = 0; i < BATCH; i++)
		strbuf_addf(&sql, "%s$%zu", i == 0 ? "" : ", ", i + 1);
	strbuf_add_char(&sql, ')');
	for (from = 0; r == 0 && from < keys->count; from += BATCH) {
		struct store_value values[BATCH];

		for (i = 0; i < BATCH; i++)
			values[i] = store_int(
				keys->all[from + i < keys->count ? from + i : keys->count - 1]);
		r = store_query(store, strbuf_str(&sql), values, BATCH, note_known, keys, err);
	}
	strbuf_fini(&sql);
	return r;
}

static int by_key(const void *a, const void *b)
{
	const struct store_value *const *x = a, *const *y = b;

	if ((*x)[0].number != (*y)[0].number)
		return (*x)[0].number < (*y)[0].number ? -1 : 1;
	return (*x)[1].type == STORE_INT && (*x)[1].number != (*y)[1].number
		       ? ((*x)[1].number < (*y)[1].number ? -1 : 1)
		       : 0;
}

/* Inserts rows that are not there yet, BATCH at a time, by their keys. */
static int insert_new(struct store *store, enum store_table table, const struct store_value **list,
		      size_t count, struct mscope_error *err)
{
	size_t columns = store_schema(table)->column_count, from, i;
	struct store_value values[BATCH * STORE_COLUMNS_MAX];
	struct strbuf sql = {0};
	size_t made = 0;
	int r = 0;

	if (count > 0)
		qsort(list, count, sizeof(*list), by_key);
	for (from = 0; r == 0 && from < count; from += BATCH) {
		size_t many = count - from < BATCH ? count - from : BATCH;

		if (many != made) {
			strbuf_reset(&sql);
			store_sql_insert(table, many, true, &sql);
			made = many;
		}
		for (i = 0; i < many; i++)
			memcpy(&values[i * columns], list[from + i], columns * sizeof(*values));
		r = store_query(store, strbuf_str(&sql), values, many * columns, NULL, NULL, err);
	}
	strbuf_fini(&sql);
	return r;
}

/* The rows of a shared table that belong to stacks that the store lacks; of frames all, if there is such a stack. */
static int write_shared(struct store *store, const struct store_rows *rows, enum store_table table,
			const struct keys *keys, struct mscope_error *err)
{
	size_t count = rows->tables[table].count, chosen = 0, i;
	const struct store_value **list = calloc(count + 1, sizeof(*list));
	int r;

	if (list == NULL)
		return error_set(err, -ENOMEM, "no memory");
	for (i = 0; i < count; i++) {
		const struct store_value *row = store_rows_at(rows, table, i, 0);
		const bool *known = table == STORE_frames ? NULL : find_key(keys, row[0].number);

		if (known == NULL || !*known)
			list[chosen++] = row;
	}
	r = insert_new(store, table, list, chosen, err);
	free(list);
	return r;
}

/* Stacks last: one that is there has its frames. */
static int write_stacks(struct store *store, const struct store_rows *rows,
			struct mscope_error *err)
{
	size_t count = rows->tables[STORE_stacks].count, i;
	struct keys keys = {.rows = rows,
			    .all = calloc(count + 1, sizeof(int64_t)),
			    .known = calloc(count + 1, sizeof(bool)),
			    .count = count};
	bool some = false;
	int r = keys.all == NULL || keys.known == NULL ? error_set(err, -ENOMEM, "no memory") : 0;

	for (i = 0; r == 0 && i < count; i++)
		keys.all[i] = store_rows_at(rows, STORE_stacks, i, 0)->number;
	if (r == 0 && count > 0) {
		qsort(keys.all, count, sizeof(*keys.all), by_number);
		r = find_known(store, &keys, err);
	}
	for (i = 0; r == 0 && i < count; i++)
		some = some || !keys.known[i];
	if (some)
		r = write_shared(store, rows, STORE_frames, &keys, err);
	if (r == 0 && some)
		r = write_shared(store, rows, STORE_stack_frames, &keys, err);
	if (r == 0 && some)
		r = write_shared(store, rows, STORE_stacks, &keys, err);
	free(keys.all);
	free(keys.known);
	return r;
}

struct name_check {
	const struct store_value *name;
	bool same;
};

static int compare_name(void *arg, const struct store_value *values, size_t count)
{
	struct name_check *check = arg;

	check->same = count > 0 && values[0].bytes == check->name->bytes &&
		      memcmp(values[0].text, check->name->text, values[0].bytes) == 0;
	return 0;
}

/* The run is there once; job and commit follow who says them last. */
static int write_run(struct store *store, const struct store_rows *rows, struct mscope_error *err)
{
	const struct store_value *run = store_rows_at(rows, STORE_runs, 0, 0);
	struct name_check check = {.name = &run[1]};
	size_t i, count = rows->tables[STORE_tags].count;
	int r = insert_new(store, STORE_runs, &run, 1, err);

	if (r == 0)
		r = store_query(store, "SELECT name FROM runs WHERE run = $1", run, 1, compare_name,
				&check, err);
	if (r == 0 && !check.same)
		r = error_set(err, -EEXIST,
			      "%s: another run has the same key as '%.100s'; choose another name",
			      store->name, run[1].text);
	if (r == 0 && run[2].bytes > 0)
		r = store_query(store, "UPDATE runs SET job = $2 WHERE run = $1 AND job <> $2",
				(struct store_value[]){run[0], run[2]}, 2, NULL, NULL, err);
	if (r == 0 && run[3].bytes > 0)
		r = store_query(store, "UPDATE runs SET code = $2 WHERE run = $1 AND code <> $2",
				(struct store_value[]){run[0], run[3]}, 2, NULL, NULL, err);
	for (i = 0; r == 0 && i < count; i++) {
		const struct store_value *tag = store_rows_at(rows, STORE_tags, i, 0);

		r = insert_new(store, STORE_tags, &tag, 1, err);
	}
	return r;
}

/* ---- the process ---- */

static int replace_rows(struct store *store, const struct store_rows *rows,
			struct mscope_error *err)
{
	const struct store_value *key = store_rows_at(rows, STORE_processes, 0, 0);
	struct strbuf sql = {0};
	int i, r = 0;

	for (i = STORE_processes; r == 0 && i < STORE_stacks; i++) {
		strbuf_reset(&sql);
		strbuf_addf(&sql, "DELETE FROM %s WHERE run = $1 AND process = $2",
			    store_schema((enum store_table)i)->name);
		r = store_query(store, strbuf_str(&sql), key, 2, NULL, NULL, err);
	}
	strbuf_fini(&sql);
	for (i = STORE_processes; r == 0 && i < STORE_stacks; i++) {
		if (rows->tables[i].count > 0)
			r = store->ops->copy(store, rows, (enum store_table)i, err);
	}
	return r;
}

static int write_once(struct store *store, const struct store_rows *rows, struct mscope_error *err)
{
	bool begun = false;
	int r = 0;

	if (store_is_files(store))
		return store_files_put(store, rows, err);
	if (store->ops->one_writer) {
		r = store_run(store, store->ops->begin, err);
		begun = r == 0;
	}
	if (r == 0)
		r = write_stacks(store, rows, err);
	if (r == 0)
		r = write_run(store, rows, err);
	if (r == 0 && !begun) {
		r = store_run(store, store->ops->begin, err);
		begun = r == 0;
	}
	if (r == 0)
		r = replace_rows(store, rows, err);
	if (r == 0)
		r = store_run(store, "COMMIT", err);
	if (r < 0 && begun)
		(void)store_run(store, "ROLLBACK", NULL);
	return r;
}

/* A store that was made for this process gets its name now, and is opened by it. */
static int show(const struct store_choice *choice, struct store **store, struct mscope_error *err)
{
	int r = (*store)->ops->show(*store, err);

	store_close(*store);
	*store = NULL;
	if (r == 0)
		(void)store_open(choice, store, NULL); /* or by the next process */
	return r;
}

static double seconds(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* A random part of a time that doubles, so that 1,000 ranks which failed together do not come back together. */
static void back_off(unsigned int tries, double left_s)
{
	static uint64_t random;
	double wait = tries < 7 ? 0.05 * (double)(1u << tries) : 5;
	struct timespec time;

	if (random == 0)
		random = (uint64_t)getpid() * UINT64_C(0x9e3779b97f4a7c15) +
			 (uint64_t)(seconds() * 1e9);
	random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
	wait *= 0.5 + (double)(random >> 33) / (double)(UINT64_C(1) << 32);
	if (wait > left_s)
		wait = left_s;
	time.tv_sec = (time_t)wait;
	time.tv_nsec = (long)((wait - (double)time.tv_sec) * 1e9);
	(void)nanosleep(&time, NULL);
}

int store_write(const struct store_choice *choice, struct store **store,
		const struct store_rows *rows, double patience_s, struct mscope_error *err)
{
	double end = seconds() + patience_s;
	unsigned int tries = 0;
	int r;

	if (rows->failed)
		return error_set(err, -ENOMEM, "out of memory");
	for (;;) {
		r = *store != NULL ? 0 : store_open(choice, store, err);
		if (r == 0)
			r = write_once(*store, rows, err);
		if (r == 0 && (*store)->hidden)
			r = show(choice, store, err);
		if (r != -EAGAIN || seconds() >= end)
			return r;
		store_close(*store); /* a connection that failed may never work again */
		*store = NULL;
		back_off(tries++, end - seconds());
	}
}
