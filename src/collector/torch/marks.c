/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators and accesses that come as texts of mstx marks, which is how the Python code of older tools sends them:
 *
 *     memscope-aten-b: name=torch._ops.aten.mul.Tensor
 *     memscope-aten-ac:ptr=4096;is_write=False;is_read=True;name=...;shape=torch.Size([2]);dtype=torch.float32;tensor_size=8;...
 *     memscope-aten-e: name=torch._ops.aten.mul.Tensor
 *
 * Fields come in any order; unknown ones are skipped. The text is never read beyond its end. A message without a name, or an access
 * without address and size, stays an ordinary mark.
 */
#include "collector/torch/marks.h"

#include <stdbool.h>
#include <string.h>

#define PREFIX "memscope-aten-"

/* The value of `key`, up to the next `;` or `}` or the end of the text. */
static struct text_span field(const char *text, const char *key)
{
	struct text_span value = {0};
	size_t length = strlen(key);
	const char *at;

	for (at = strstr(text, key); at != NULL; at = strstr(at + 1, key)) {
		/* At the beginning of a field only: "ptr=" is also the end of "workspace_ptr=". */
		if (at[length] != '=' ||
		    (at != text && at[-1] != ';' && at[-1] != ' ' && at[-1] != '{'))
			continue;
		value.text = at + length + 1;
		value.bytes = (uint32_t)strcspn(value.text, ";}");
		break;
	}
	return value;
}

/* A number, decimal or 0x hexadecimal or 0 octal, that is the whole of the text. */
static bool number(struct text_span value, uint64_t *out)
{
	uint32_t i = 0, base = 10, digit;
	uint64_t result = 0;

	if (value.bytes > 1 && value.text[0] == '0') {
		base = value.text[1] == 'x' || value.text[1] == 'X' ? 16 : 8;
		i = base == 16 ? 2 : 1;
	}
	if (i == value.bytes)
		return false;
	for (; i < value.bytes; i++) {
		char c = value.text[i], lower = (char)(c | 0x20);

		if (c >= '0' && c <= '9')
			digit = (uint32_t)(c - '0');
		else if (lower >= 'a' && lower <= 'f')
			digit = (uint32_t)(lower - 'a') + 10;
		else
			return false;
		if (digit >= base || result > (UINT64_MAX - digit) / base)
			return false;
		result = result * base + digit;
	}
	*out = result;
	return true;
}

static bool is_true(struct text_span value)
{
	return value.bytes == 4 && memcmp(value.text, "True", 4) == 0;
}

static bool parse_access(const char *text, struct aten_mark *mark)
{
	struct text_span device = field(text, "device");
	uint64_t index;

	if (!number(field(text, "ptr"), &mark->access.address) ||
	    !number(field(text, "tensor_size"), &mark->access.size_bytes))
		return false;
	if (is_true(field(text, "is_write")))
		mark->access.kind = ACCESS_WRITE;
	else
		mark->access.kind = is_true(field(text, "is_read")) ? ACCESS_READ : ACCESS_UNKNOWN;
	mark->access.dtype = field(text, "dtype");
	mark->access.shape = field(text, "shape");
	if (device.bytes > 4 && memcmp(device.text, "npu:", 4) == 0 &&
	    number((struct text_span){device.text + 4, device.bytes - 4}, &index) && index < 0xffff)
		mark->device = (uint32_t)index;
	return true;
}

void aten_mark_parse(const char *message, struct aten_mark *out)
{
	const char *text = message + sizeof(PREFIX) - 1;
	enum aten_mark_kind kind = ATEN_MARK_NONE;

	*out = (struct aten_mark){.device = ATEN_DEVICE_NONE};
	if (strncmp(message, PREFIX, sizeof(PREFIX) - 1) != 0)
		return;
	if (strncmp(text, "b:", 2) == 0) {
		kind = ATEN_MARK_BEGIN;
		text += 2;
	} else if (strncmp(text, "e:", 2) == 0) {
		kind = ATEN_MARK_END;
		text += 2;
	} else if (strncmp(text, "ac:", 3) == 0) {
		kind = ATEN_MARK_ACCESS;
		text += 3;
	} else {
		return;
	}
	out->access.name = field(text, "name");
	if (out->access.name.bytes == 0 || (kind == ATEN_MARK_ACCESS && !parse_access(text, out)))
		return;
	out->kind = kind;
}
