/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/config.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/json.h"

#define CONFIG_NAME   "config.json"
#define STEP_SLOTS    5u	 /* readers of the original expect that many at least */
#define WATCH_NOTHING UINT32_MAX /* "all outputs", also where nothing is watched */
#define KEYS_MAX      64u
#define EXPORTED_KEY  "exportedFrom"
#define CONFIG_BYTES  65536u /* more than a file that config_text() makes has before that key */

struct key {
	const char *name;
	void (*add)(struct json *json, const struct key *key, const struct session *session);
	uint32_t value;	  /* for those that show one number */
	const char *text; /* for those that show one text */
};

static void add_number(struct json *json, const struct key *key, const struct session *session)
{
	(void)session;
	json_u64(json, key->name, key->value);
}

static void add_truth(struct json *json, const struct key *key, const struct session *session)
{
	(void)session;
	json_bool(json, key->name, key->value != 0);
}

static void add_text(struct json *json, const struct key *key, const struct session *session)
{
	(void)session;
	json_string(json, key->name, key->text);
}

static void add_output(struct json *json, const struct key *key, const struct session *session)
{
	json_string(json, key->name, session->output);
}

static void add_steps(struct json *json, const struct key *key, const struct session *session)
{
	uint32_t count = session->step_count < SESSION_STEPS_MAX ? session->step_count
								 : SESSION_STEPS_MAX,
		 i;

	json_object(json, key->name);
	json_u64(json, "stepCount", count);
	json_array(json, "stepIdList");
	for (i = 0; i < count || i < STEP_SLOTS; i++)
		json_u64(json, NULL, i < count ? session->steps[i] : 0);
	json_end(json);
	json_end(json);
}

static void add_watch(struct json *json, const struct key *key, const struct session *session)
{
	const struct session_watch *watch = &session->watch;

	json_object(json, key->name);
	json_string(json, "end", watch->on ? watch->end : "");
	json_bool(json, "fullContent", watch->on && watch->full);
	json_bool(json, "isWatched", watch->on != 0);
	json_u64(json, "outputId", watch->on ? watch->output : WATCH_NOTHING);
	json_string(json, "start", watch->on ? watch->start : "");
	json_end(json);
}

/* The keys of settings.def. Returns how many there are. */
static size_t keys_of_settings(const struct session *session, struct key *keys)
{
	size_t count = 0;
	uint32_t value;

#define KEY(name)	keys[count++] = (struct key){#name, add_number, value, NULL};
#define TRUTH_KEY(name) keys[count++] = (struct key){#name, add_truth, value, NULL};
#define SETTING(member, word, shift, bits, source, its_keys, meaning)                              \
	value = session->member;                                                                   \
	its_keys
	SETTINGS(SETTING)
#undef SETTING
#undef TRUTH_KEY
#undef KEY
	return count;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct key *)a)->name, ((const struct key *)b)->name);
}

void config_text(const struct session *session, const char *exported_from, struct strbuf *out)
{
	const struct key others[] = {
		{"SelectedStepList", add_steps, 0, NULL},
		{"collectMode", add_number, session->state == RECORDING_SHADOW, NULL},
		{"dataFormat", add_number, session->format, NULL},
		{"enableCompare", add_truth, false, NULL},
		{"isEffective", add_truth, true, NULL},
		{"logLevel", add_number, session->log_level, NULL},
		{"outputDir", add_output, 0, NULL},
		{"pySiteDepth", add_number, session->python_depth == 0 ? SESSION_SITE_FRAMES : 0,
		 NULL},
		{"watchConfig", add_watch, 0, NULL},
	};
	struct key keys[KEYS_MAX];
	size_t count = keys_of_settings(session, keys), i;
	struct json json;

	assert(count + MSCOPE_COUNT(others) < KEYS_MAX);
	memcpy(keys + count, others, sizeof(others));
	count += MSCOPE_COUNT(others);
	if (exported_from[0] != '\0')
		keys[count++] = (struct key){EXPORTED_KEY, add_text, 0, exported_from};
	qsort(keys, count, sizeof(keys[0]), by_name);
	json_begin(&json, out);
	json.indent = 4;
	json_object(&json, NULL);
	for (i = 0; i < count; i++)
		keys[i].add(&json, &keys[i], session);
	json_end(&json);
	strbuf_add_char(out, '\n');
}

int config_write(const struct session *session, const struct project *project,
		 struct mscope_error *err)
{
	struct strbuf text = {0};
	int r;

	config_text(session, project->exported_from, &text);
	r = project_write(project, CONFIG_NAME, &text, 0600, err);
	strbuf_fini(&text);
	return r;
}

bool config_exported_from(const char *directory, char out[PROJECT_STEM_MAX])
{
	static const char key[] = "\n    \"" EXPORTED_KEY "\": \"";
	char path[PROJECT_PATH_MAX + sizeof(CONFIG_NAME)], *text = malloc(CONFIG_BYTES);
	const char *at = NULL;

	(void)snprintf(path, sizeof(path), "%s/" CONFIG_NAME, directory);
	if (text != NULL && io_read_text(path, text, CONFIG_BYTES))
		at = strstr(text, key);
	if (at != NULL) {
		at += sizeof(key) - 1;
		(void)snprintf(out, PROJECT_STEM_MAX, "%.*s", (int)strcspn(at, "\""), at);
	}
	free(text);
	return at != NULL;
}
