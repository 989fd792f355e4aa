/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store that is open, whatever engine keeps it: `sqlite:FILE`, `postgresql://...`, or `rows:DIRECTORY`, which takes rows as files
 * (store_rows.h). Statements are plain SQL, the same for all; values go in as $1, $2, ... and never become a part of the text.
 *
 * Functions return 0 or a negative code with a sentence in `err`; -EAGAIN is a failure that may pass (the server is away, another
 * writer was faster, the file is locked). One thread.
 */
#ifndef MSCOPE_STORE_STORE_H
#define MSCOPE_STORE_STORE_H

#include "base/status.h"
#include "store/store_rows.h"

struct store;

/* A row of an answer; values are borrowed for the call. 0, or a code that ends the query. */
typedef int store_answer(void *arg, const struct store_value *values, size_t count);

struct store_ops {
	int (*query)(struct store *store, const char *sql, const struct store_value *values,
		     size_t count, store_answer *answer, void *arg, struct mscope_error *err);
	int (*copy)(struct store *store, const struct store_rows *rows, enum store_table table,
		    struct mscope_error *err);
	/* Of a store that is hidden: gives it its name. It has to be closed then. */
	int (*show)(struct store *store, struct mscope_error *err);
	void (*close)(struct store *store);
	bool one_writer;   /* others wait anyway: all of a process is one transaction */
	const char *begin; /* statement that begins a transaction which writes */
	const char *tail;  /* behind each CREATE TABLE */
	const char *probe; /* what every database of this engine answers, also one without tables */
};

/* Begins each engine's own struct. */
struct store {
	const struct store_ops *ops;
	char name[256]; /* as it may be shown: without a password */
	bool hidden;	/* it was not there, and is not until a process is in it */
};

/* What opening takes. */
struct store_choice {
	const char *url;
	const char *helper; /* path of the program that speaks to PostgreSQL (store_pg.c) */
	bool write;	    /* made, or upgraded, if it has to be */
	/* Of the monotonic clock: a server that has not answered by then is unreachable. 0: each question has its own limit. */
	uint64_t until_ns;
};

/* What is wrong with a URL, NULL: nothing. A password in it is refused: others could read it. */
const char *store_url_fault(const char *url);

int store_open(const struct store_choice *choice, struct store **out, struct mscope_error *err);
void store_close(struct store *store);

int store_query(struct store *store, const char *sql, const struct store_value *values,
		size_t count, store_answer *answer, void *arg, struct mscope_error *err);

/* A statement without values and without an answer. */
int store_run(struct store *store, const char *sql, struct mscope_error *err);

/* The engines. */
int store_sqlite_open(const struct store_choice *choice, struct store **out,
		      struct mscope_error *err);
int store_pg_open(const struct store_choice *choice, struct store **out, struct mscope_error *err);
int store_files_open(const struct store_choice *choice, struct store **out,
		     struct mscope_error *err);

/* Whether rows are kept as files, which cannot be asked. */
bool store_is_files(const struct store *store);
int store_files_put(struct store *store, const struct store_rows *rows, struct mscope_error *err);

/*
 * Puts the rows of one process into the store, in one transaction, in place of those that it has of it. What may pass is tried
 * again until `patience_s` seconds are over.
 */
int store_write(const struct store_choice *choice, struct store **store,
		const struct store_rows *rows, double patience_s, struct mscope_error *err);

#endif
