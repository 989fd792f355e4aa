/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/config.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

#define CONFIG_NAME   "config.json"
#define STEP_SLOTS    5u	 /* readers of the original expect that many at least */
#define WATCH_NOTHING UINT32_MAX /* "all outputs", also where nothing is watched */
#define KEYS_MAX      64u

struct key {
	const char *name;
	void (*add)(struct json *json, const struct key *key, const struct session *session);
	uint32_t value; /* for those that show one number */
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

#define KEY(name)	keys[count++] = (struct key){#name, add_number, value};
#define TRUTH_KEY(name) keys[count++] = (struct key){#name, add_truth, value};
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

void config_text(const struct session *session, struct strbuf *out)
{
	const struct key others[] = {
		{"SelectedStepList", add_steps, 0},
		{"collectMode", add_number, session->state == RECORDING_SHADOW},
		{"dataFormat", add_number, session->format},
		{"enableCompare", add_truth, false},
		{"isEffective", add_truth, true},
		{"logLevel", add_number, session->log_level},
		{"outputDir", add_output, 0},
		{"pySiteDepth", add_number, session->python_depth == 0 ? SESSION_SITE_FRAMES : 0},
		{"watchConfig", add_watch, 0},
	};
	struct key keys[KEYS_MAX];
	size_t count = keys_of_settings(session, keys), i;
	struct json json;

	assert(count + MSCOPE_COUNT(others) <= KEYS_MAX);
	memcpy(keys + count, others, sizeof(others));
	count += MSCOPE_COUNT(others);
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

	config_text(session, &text);
	r = project_write(project, CONFIG_NAME, &text, 0600, err);
	strbuf_fini(&text);
	return r;
}
