/* SPDX-License-Identifier: Apache-2.0 */
#include "store/store.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static bool is_pg(const char *url)
{
	return text_starts_with(url, "postgresql://") || text_starts_with(url, "postgres://");
}

/* Whether a URL of PostgreSQL carries a secret: USER:PASSWORD@, or password= and the like among its parameters. */
static bool has_password(const char *url)
{
	const char *at = strstr(url, "://") + 3;
	size_t authority = strcspn(at, "/?");
	const char *user = memchr(at, '@', authority);
	const char *key = strchr(at, '?');

	if (user != NULL && memchr(at, ':', (size_t)(user - at)) != NULL)
		return true;
	for (; key != NULL; key = strchr(key, '&')) {
		key++;
		if (strncasecmp(key, "password=", 9) == 0 ||
		    strncasecmp(key, "sslpassword=", 12) == 0)
			return true;
	}
	return false;
}

const char *store_url_fault(const char *url)
{
	if (is_pg(url))
		return has_password(url)
			       ? "do not write a password in the URL: put it in ~/.pgpass or $PGPASSWORD"
			       : NULL;
	if ((text_starts_with(url, "sqlite:") && url[7] != '\0') ||
	    (text_starts_with(url, "rows:") && url[5] != '\0'))
		return NULL;
	return "a store is sqlite:FILE, postgresql://HOST/DATABASE or rows:DIRECTORY";
}

/* ---- version ---- */

static int take_number(void *arg, const struct store_value *values, size_t count)
{
	if (count > 0)
		*(int64_t *)arg = values[0].number;
	return 0;
}

/* The version of the tables; 0: there are none, or `err` says what else went wrong. */
static int64_t version_of(struct store *store, struct mscope_error *err)
{
	int64_t version = 0;

	/* Fails where the table is missing, which is no failure here. */
	(void)store_query(store, "SELECT version FROM store_version", NULL, 0, take_number,
			  &version, err);
	return version;
}

/* Makes or upgrades the tables in one transaction. */
static int upgrade(struct store *store, int64_t version, struct mscope_error *err)
{
	struct strbuf sql = {0};
	char *statement, *rest = NULL;
	int r;

	store_sql_upgrade((int)version, store->ops->tail, &sql);
	r = strbuf_failed(&sql) ? error_set(err, -ENOMEM, "no memory")
				: store_run(store, store->ops->begin, err);
	if (r == 0 && version_of(store, NULL) != version)
		r = error_set(err, -EAGAIN, "%s: another writer is upgrading it", store->name);
	/* A failed query ends a transaction of PostgreSQL, and without tables that query failed. */
	if (r == 0 && version == 0) {
		(void)store_run(store, "ROLLBACK", NULL);
		r = store_run(store, store->ops->begin, err);
	}
	statement = r == 0 ? strtok_r(sql.data, ";", &rest) : NULL;
	for (; r == 0 && statement != NULL; statement = strtok_r(NULL, ";", &rest)) {
		while (isspace((unsigned char)*statement))
			statement++;
		if (*statement != '\0')
			r = store_run(store, statement, err);
	}
	if (r == 0)
		r = store_run(store, "COMMIT", err);
	if (r < 0) {
		(void)store_run(store, "ROLLBACK", NULL);
		if (version_of(store, NULL) != version)
			r = -EAGAIN; /* another writer was faster */
	}
	strbuf_fini(&sql);
	return r;
}

static int check_version(struct store *store, bool write, struct mscope_error *err)
{
	struct mscope_error asked = {0};
	int64_t version = version_of(store, &asked);

	if (version == STORE_VERSION)
		return 0;
	/* A store that answers nothing else either is not one without tables. */
	if (version == 0 && asked.code != 0 && store_run(store, store->ops->probe, NULL) < 0)
		return error_set(err, asked.code, "%s", asked.message);
	if (version > STORE_VERSION)
		return error_set(
			err, MSCOPE_E_VERSION,
			"%s has version %lld of the store, this program supports %d: use a newer msmemscope",
			store->name, (long long)version, STORE_VERSION);
	if (!write && version == 0)
		return error_set(err, MSCOPE_E_ABSENT, "%s is not a store, or is empty",
				 store->name);
	if (!write)
		return error_set(err, MSCOPE_E_VERSION,
				 "%s has version %lld of the store; the next store add upgrades it",
				 store->name, (long long)version);
	return upgrade(store, version, err);
}

/* ---- open ---- */

int store_open(const struct store_choice *choice, struct store **out, struct mscope_error *err)
{
	const char *fault = store_url_fault(choice->url);
	int r;

	*out = NULL;
	if (fault != NULL)
		return error_set(err, MSCOPE_E_USAGE, "%s", fault);
	if (text_starts_with(choice->url, "rows:"))
		return store_files_open(choice, out, err);
	r = is_pg(choice->url) ? store_pg_open(choice, out, err)
			       : store_sqlite_open(choice, out, err);
	if (r == 0)
		r = check_version(*out, choice->write, err);
	if (r < 0) {
		store_close(*out);
		*out = NULL;
	}
	return r;
}

void store_close(struct store *store)
{
	if (store != NULL)
		store->ops->close(store);
}

int store_query(struct store *store, const char *sql, const struct store_value *values,
		size_t count, store_answer *answer, void *arg, struct mscope_error *err)
{
	return store->ops->query(store, sql, values, count, answer, arg, err);
}

int store_run(struct store *store, const char *sql, struct mscope_error *err)
{
	return store->ops->query(store, sql, NULL, 0, NULL, NULL, err);
}
