/* SPDX-License-Identifier: Apache-2.0 */
#include "findings/findings.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "findings/site.h"
#include "replay/facts.h"

/* How JSON shows a field. */
enum field_type {
	FIELD_u64,
	FIELD_more,
	FIELD_known,
	FIELD_address,
	FIELD_i32,
	FIELD_flag,
	FIELD_tenths,
	FIELD_parts,
	FIELD_pool,
	FIELD_some_pool,
	FIELD_any_pool,
	FIELD_device,
	FIELD_text,
	FIELD_verdict,
	FIELD_severity,
	FIELD_trend,
	FIELD_reason,
	FIELD_why,
	FIELD_cause,
	FIELD_misuse,
	FIELD_frames,
	FIELD_said,
	FIELD_list,
	FIELD_some,
	FIELD_one,
};

struct field {
	const char *name;
	enum field_type type;
	size_t offset;
	enum finding_kind kind; /* of a list */
	size_t most;		/* of a list; 0: as many as of the list it is in */
	void (*says)(const struct findings *found, const void *finding, struct strbuf *out);
};

/* Sentences, which take their own kind, as functions of any kind. */
#define FIELD(type, name, meaning)
#define LIST(of, name, most, meaning)
#define SOME(of, name, meaning)
#define ONE(of, name, meaning)
#define SENTENCE(name, says)                                                                       \
	static void say_##says(const struct findings *found, const void *finding,                  \
			       struct strbuf *out)                                                 \
	{                                                                                          \
		says(found, finding, out);                                                         \
	}
#define HIDDEN(type, name, meaning)
#define FINDING(name, fields, meaning) fields
#include "findings/findings.def"
#undef FINDING
#undef FIELD
#undef LIST
#undef SOME
#undef ONE
#undef SENTENCE
#undef HIDDEN

/* One table of fields a kind; a macro that takes fields cannot know their kind, so each kind's struct has an alias. */
#define FIELD(type, name, meaning) {#name, FIELD_##type, offsetof(struct_here, name), 0, 0, NULL},
#define LIST(of, name, most, meaning)                                                              \
	{#name, FIELD_list, offsetof(struct_here, name), FINDING_##of, most, NULL},
#define SOME(of, name, meaning)                                                                    \
	{#name, FIELD_some, offsetof(struct_here, name), FINDING_##of, 0, NULL},
#define ONE(of, name, meaning)                                                                     \
	{#name, FIELD_one, offsetof(struct_here, name), FINDING_##of, 1, NULL},
#define SENTENCE(name, says) {#name, FIELD_said, 0, 0, 0, say_##says},
#define HIDDEN(type, name, meaning)
#define FINDING(name, fields, meaning) static const struct field *fields_##name(size_t *out_count);
#include "findings/findings.def"
#undef FINDING
#define FINDING(name, fields, meaning)                                                             \
	static const struct field *fields_##name(size_t *out_count)                                \
	{                                                                                          \
		typedef struct finding_##name struct_here;                                         \
		static const struct field all[] = {fields};                                        \
                                                                                                   \
		*out_count = MSCOPE_COUNT(all);                                                    \
		return all;                                                                        \
	}
#include "findings/findings.def"
#undef FINDING
#undef FIELD
#undef LIST
#undef SOME
#undef ONE
#undef SENTENCE
#undef HIDDEN

static const struct kind {
	size_t bytes;
	const struct field *(*fields)(size_t *out_count);
} kinds[FINDING_KINDS] = {
#define FINDING(name, fields, meaning)                                                             \
	[FINDING_##name] = {sizeof(struct finding_##name), fields_##name},
#include "findings/findings.def"
#undef FINDING
};

void findings_fini(struct findings *found)
{
	size_t i;

	for (i = 0; i < FINDING_KINDS; i++)
		free(found->lists[i].all);
	for (i = 0; i < found->text_count; i++)
		free(found->texts[i]);
	free(found->texts);
	site_names_fini(&found->names);
	*found = (struct findings){0};
}

void *findings_add(struct findings *found, enum finding_kind kind)
{
	struct finding_list *list = &found->lists[kind];
	char *added;

	if (array_reserve(&list->all, &list->room, list->count + 1, kinds[kind].bytes) < 0) {
		found->failed = true;
		return NULL;
	}
	added = (char *)list->all + list->count++ * kinds[kind].bytes;
	memset(added, 0, kinds[kind].bytes);
	return added;
}

void *findings_add_to(struct findings *found, enum finding_kind kind, struct finding_range *range)
{
	void *added = findings_add(found, kind);

	if (added != NULL && range->count++ == 0)
		range->first = found->lists[kind].count - 1;
	return added;
}

/* Takes over a text from malloc(). */
static const char *own(struct findings *found, char *text)
{
	if (text == NULL ||
	    ARRAY_RESERVE(found->texts, found->text_room, found->text_count + 1) < 0) {
		free(text);
		found->failed = true;
		return "";
	}
	found->texts[found->text_count++] = text;
	return text;
}

const char *findings_text(struct findings *found, const char *text)
{
	return text[0] == '\0' ? "" : own(found, strdup(text));
}

finding_frames findings_frames(struct findings *found, struct replay *replay, uint32_t stack)
{
	struct strbuf text = {0};
	struct json json;

	if (stack == 0)
		return 0;
	json_begin(&json, &text);
	site_json(replay, stack, NULL, &json);
	(void)own(found, strdup(strbuf_str(&text)));
	strbuf_fini(&text);
	return found->failed ? 0 : (finding_frames)found->text_count;
}

uint64_t peak_places(const struct findings *found, const struct finding_peak *peak)
{
	const struct finding_holder *holders = FINDINGS(found, holder) + peak->places.first;
	uint64_t count = peak->places.count;
	size_t i;

	/* The rest comes last. */
	for (i = peak->places.count; i > 0 && holders[i - 1].rest; i--)
		count += holders[i - 1].call_sites - 1;
	return count;
}

/* ---- JSON ---- */

/* More than a finding without its lists opens: one that is deeper than JSON may be has empty ones. */
#define FINDING_LEVELS 8

static void json_said(const struct findings *found, const struct field *field, const void *finding,
		      struct json *json)
{
	struct strbuf text = {0};

	field->says(found, finding, &text);
	json_string(json, field->name, strbuf_str(&text));
	strbuf_fini(&text);
}

static void json_list(const struct findings *found, const struct field *field,
		      const struct finding_range *range, size_t most, struct json *json)
{
	size_t i, shown = field->most != 0 ? field->most : most;

	json_array(json, field->name);
	if (json->depth + FINDING_LEVELS >= JSON_DEPTH_MAX)
		shown = 0;
	for (i = 0; i < range->count && i < shown; i++)
		finding_json(found, field->kind,
			     (const char *)found->lists[field->kind].all +
				     (range->first + i) * kinds[field->kind].bytes,
			     NULL, most, json);
	json_end(json);
}

static void json_one(const struct findings *found, const struct field *field,
		     const struct finding_range *range, size_t most, struct json *json)
{
	if (range->count > 0)
		finding_json(found, field->kind,
			     (const char *)found->lists[field->kind].all +
				     range->first * kinds[field->kind].bytes,
			     field->name, most, json);
}

static bool is_left_out(const struct field *field, const void *at)
{
	return (field->type == FIELD_more && *(const finding_more *)at == 0) ||
	       (field->type == FIELD_known && *(const finding_known *)at == UINT64_MAX) ||
	       (field->type == FIELD_some &&
		((const struct finding_range *)at)->first == RANGE_NONE.first) ||
	       (field->type == FIELD_some_pool && *(const finding_some_pool *)at == POOL_UNKNOWN);
}

/* Of an enumeration of verdicts.h. */
static const char *word_of(enum field_type type, const void *at)
{
	switch (type) {
	case FIELD_verdict:
		return verdict_word(*(const finding_verdict *)at);
	case FIELD_severity:
		return severity_word(*(const finding_severity *)at);
	case FIELD_trend:
		return trend_word(*(const finding_trend *)at);
	case FIELD_reason:
		return reason_word(*(const finding_reason *)at);
	case FIELD_why:
		return unjudged_word(*(const finding_why *)at);
	default:
		return oom_cause_text(*(const finding_cause *)at);
	}
}

static void json_field(const struct findings *found, const struct field *field, const void *at,
		       struct json *json)
{
	const char *name = field->name;
	struct strbuf text = {0};
	char device[16];

	switch (field->type) {
	case FIELD_u64:
	case FIELD_more:
	case FIELD_known:
		json_u64(json, name, *(const finding_u64 *)at);
		break;
	case FIELD_address:
		strbuf_add_hex(&text, *(const finding_address *)at, 16);
		json_string(json, name, strbuf_str(&text));
		break;
	case FIELD_i32:
		json_i64(json, name, *(const finding_i32 *)at);
		break;
	case FIELD_flag:
		json_bool(json, name, *(const finding_flag *)at);
		break;
	case FIELD_tenths:
		json_f64(json, name, *(const finding_tenths *)at, 1);
		break;
	case FIELD_parts:
		json_f64(json, name, *(const finding_parts *)at, 4);
		break;
	case FIELD_pool:
	case FIELD_some_pool:
		json_string(json, name, pool_event_type(*(const finding_pool *)at));
		break;
	case FIELD_any_pool:
		if (*(const finding_any_pool *)at == POOL_UNKNOWN)
			json_null(json, name);
		else
			json_string(json, name, pool_event_type(*(const finding_any_pool *)at));
		break;
	case FIELD_device:
		device_text(*(const finding_device *)at, device);
		json_string(json, name, device);
		break;
	case FIELD_text:
		json_string(json, name,
			    *(const finding_text *)at == NULL ? "" : *(const finding_text *)at);
		break;
	case FIELD_misuse:
		inefficiency_text(*(const finding_misuse *)at, &text);
		json_string(json, name, strbuf_str(&text));
		break;
	case FIELD_frames:
		json_raw(json, name,
			 *(const finding_frames *)at == 0
				 ? "[]"
				 : found->texts[*(const finding_frames *)at - 1]);
		break;
	case FIELD_said:
	case FIELD_list:
	case FIELD_some:
	case FIELD_one:
		break;
	default:
		json_string(json, name, word_of(field->type, at));
		break;
	}
	strbuf_fini(&text);
}

void finding_json(const struct findings *found, enum finding_kind kind, const void *finding,
		  const char *key, size_t most, struct json *json)
{
	size_t count, i;
	const struct field *fields = kinds[kind].fields(&count);

	json_object(json, key);
	for (i = 0; i < count; i++) {
		const void *at = (const char *)finding + fields[i].offset;

		if (is_left_out(&fields[i], at))
			continue;
		if (fields[i].type == FIELD_said)
			json_said(found, &fields[i], finding, json);
		else if (fields[i].type == FIELD_list || fields[i].type == FIELD_some)
			json_list(found, &fields[i], at, most, json);
		else if (fields[i].type == FIELD_one)
			json_one(found, &fields[i], at, most, json);
		else
			json_field(found, &fields[i], at, json);
	}
	json_end(json);
}

void findings_json(const struct findings *found, enum finding_kind kind, const char *key,
		   size_t most, struct json *json)
{
	const struct finding_list *list = &found->lists[kind];
	size_t i;

	json_array(json, key);
	for (i = 0; i < list->count && i < most; i++)
		finding_json(found, kind, (const char *)list->all + i * kinds[kind].bytes, NULL,
			     most, json);
	json_end(json);
}
