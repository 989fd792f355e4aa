/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing JSON into a strbuf. Commas and nesting are kept here, so that callers only name what comes:
 *
 *     json_begin(&j, &sb);  json_object(&j, NULL);  json_u64(&j, "pid", 4242);  json_end(&j);
 *
 * On one line, or with `indent` set after json_begin() one value per line. A key is NULL inside an array. Text is taken as UTF-8; bytes that are not become U+FFFD, so the result always parses.
 */
#ifndef MSCOPE_BASE_JSON_H
#define MSCOPE_BASE_JSON_H

#include <stdbool.h>

#include "base/strbuf.h"

#define JSON_DEPTH_MAX 512 /* owners nest as deep as labels of a program do */

struct json {
	struct strbuf *out;
	unsigned int indent; /* blanks per level, 0: no line breaks */
	unsigned int depth;
	char closer[JSON_DEPTH_MAX];
	bool some[JSON_DEPTH_MAX]; /* a value stands at this level already */
};

void json_begin(struct json *json, struct strbuf *out);
void json_object(struct json *json, const char *key);
void json_array(struct json *json, const char *key);
/* Closes the innermost object or array. */
void json_end(struct json *json);

void json_u64(struct json *json, const char *key, uint64_t value);
void json_i64(struct json *json, const char *key, int64_t value);
void json_bool(struct json *json, const char *key, bool value);
void json_string(struct json *json, const char *key, const char *text);
void json_null(struct json *json, const char *key);
/* A number with at most `decimals` of them, without trailing zeros; null if it is not finite. */
void json_f64(struct json *json, const char *key, double value, int decimals);
/* A whole value that is JSON already. */
void json_raw(struct json *json, const char *key, const char *value);

/* A text alone, with its quotes. */
void json_quote(struct strbuf *out, const char *text);

/* The same at `to`, which has room for two quotes and JSON_ESCAPED_MAX for each byte. Returns where it ends. */
#define JSON_ESCAPED_MAX 6u
char *json_put_quoted(char *to, const char *text);

#endif
