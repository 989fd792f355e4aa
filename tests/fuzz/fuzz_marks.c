/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the message of a mstx mark. Besides memory errors it looks for parts that do not lie in the message, and for marks
 * that are taken for operators without a name.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "collector/torch/marks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(struct text_span span, const char *message, size_t size)
{
	if (span.text != NULL && (span.text < message || span.text + span.bytes > message + size))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* Behind the prefix, so that none of the time goes into finding it. */
	static const char prefix[] = "memscope-aten-";
	struct aten_mark mark;
	char *message = malloc(sizeof(prefix) + size);

	if (message == NULL)
		return 0;
	memcpy(message, prefix, sizeof(prefix) - 1);
	memcpy(message + sizeof(prefix) - 1, data, size);
	size += sizeof(prefix) - 1;
	message[size] = '\0';
	aten_mark_parse(message, &mark);
	check(mark.access.name, message, size);
	check(mark.access.dtype, message, size);
	check(mark.access.shape, message, size);
	if (mark.kind != ATEN_MARK_NONE && mark.access.name.bytes == 0)
		abort();
	aten_mark_parse(message + sizeof(prefix) - 1, &mark);
	free(message);
	return 0;
}
