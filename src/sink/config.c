/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/config.h"

#include <stdio.h>
#include <sys/stat.h>

#include "base/json.h"

#define CONFIG_NAME   "config.json"
#define STEP_SLOTS    5u	 /* readers of the original expect that many at least */
#define WATCH_NOTHING UINT32_MAX /* "all outputs", also where nothing is watched */

static void add_steps(struct json *json, const struct session *session)
{
	uint32_t count = session->step_count < SESSION_STEPS_MAX ? session->step_count
								 : SESSION_STEPS_MAX,
		 i;

	json_object(json, "SelectedStepList");
	json_u64(json, "stepCount", count);
	json_array(json, "stepIdList");
	for (i = 0; i < count || i < STEP_SLOTS; i++)
		json_u64(json, NULL, i < count ? session->steps[i] : 0);
	json_end(json);
	json_end(json);
}

static void add_watch(struct json *json)
{
	json_object(json, "watchConfig");
	json_string(json, "end", "");
	json_bool(json, "fullContent", false);
	json_bool(json, "isWatched", false);
	json_u64(json, "outputId", WATCH_NOTHING);
	json_string(json, "start", "");
	json_end(json);
}

void config_text(const struct session *session, struct strbuf *out)
{
	struct json json;

	json_begin(&json, out);
	json.indent = 4;
	json_object(&json, NULL);
	add_steps(&json, session);
	json_u64(&json, "analysisType", session->analysis);
	json_u64(&json, "cStackDepth", session->c_depth);
	json_bool(&json, "collectAllNpu", session->all_devices != 0);
	json_bool(&json, "collectCpu", session->host != 0);
	json_u64(&json, "collectMode", session->state == RECORDING_SHADOW);
	json_u64(&json, "dataFormat", session->format);
	json_u64(&json, "dumpEventType", session->events);
	json_bool(&json, "enableCStack", session->c_depth != 0);
	json_bool(&json, "enableCompare", false);
	json_bool(&json, "enablePyStack", session->python_shown != 0);
	json_u64(&json, "eventType", session->events);
	json_bool(&json, "isEffective", true);
	json_u64(&json, "levelType", session->level);
	json_u64(&json, "logLevel", session->log_level);
	json_u64(&json, "npuSlots", session->devices);
	json_u64(&json, "oomTopK", session->oom_top);
	json_string(&json, "outputDir", session->output);
	json_u64(&json, "pyStackDepth", session->python_shown);
	add_watch(&json);
	json_end(&json);
	strbuf_add_char(out, '\n');
}

int config_write(const struct session *session, const struct project *project,
		 struct mscope_error *err)
{
	struct strbuf text = {0};
	int r;

	config_text(session, &text);
	r = project_write(project, CONFIG_NAME, &text, 0640, err);
	strbuf_fini(&text);
	return r;
}
