/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Single numbers: all settings, and options that shape files. */
#define NUMBERS(NUMBER)                                                                            \
	SETTINGS(NUMBER)                                                                           \
	NUMBER(format)                                                                             \
	NUMBER(insight_close_live)

static const struct number {
	const char *name;
	size_t at;
} numbers[] = {
#define NUMBER(name, ...) {#name, offsetof(struct session, name)},
	NUMBERS(NUMBER)
#undef NUMBER
};

static uint32_t *number_of(struct session *session, const struct number *number)
{
	return (uint32_t *)(void *)((char *)session + number->at);
}

void launch_write(struct session *session)
{
	char *at = session->launch, *end = at + sizeof(session->launch);
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(numbers); i++)
		at += snprintf(at, (size_t)(end - at), "%s%s:%u", i == 0 ? "" : " ",
			       numbers[i].name, *number_of(session, &numbers[i]));
	for (i = 0; i < session->step_count; i++)
		at += snprintf(at, (size_t)(end - at), "%s%u", i == 0 ? " steps:" : ",",
			       session->steps[i]);
}

static void read_steps(const char *text, struct session *session)
{
	session->step_count = 0;
	while (*text >= '0' && *text <= '9' && session->step_count < SESSION_STEPS_MAX) {
		char *end;

		session->steps[session->step_count++] = (uint32_t)strtoul(text, &end, 10);
		text = *end == ',' ? end + 1 : end;
	}
}

bool launch_read(const char *text, struct session *session)
{
	size_t i;

	if (text == NULL)
		return false;
	session->step_count = 0;
	while (*text != '\0') {
		size_t length = strcspn(text, ": ");

		if (text[length] == ':' && length == strlen("steps") &&
		    memcmp(text, "steps", length) == 0)
			read_steps(text + length + 1, session);
		for (i = 0; i < MSCOPE_COUNT(numbers) && text[length] == ':'; i++) {
			if (strlen(numbers[i].name) == length &&
			    memcmp(text, numbers[i].name, length) == 0)
				*number_of(session, &numbers[i]) =
					(uint32_t)strtoul(text + length + 1, NULL, 10);
		}
		text += strcspn(text, " ");
		text += *text == ' ';
	}
	return true;
}
