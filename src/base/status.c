/* SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *mscope_status_str(int code)
{
	switch (code) {
	case 0:
		return "success";
#define STATUS(number, name, sentence)                                                             \
	case MSCOPE_E_##name:                                                                      \
		return sentence;
#include "base/status.def"
#undef STATUS
	default:
		return strerror(code < 0 ? -code : code);
	}
}

int error_set(struct mscope_error *err, int code, const char *format, ...)
{
	if (err != NULL) {
		va_list args;

		err->code = code;
		va_start(args, format);
		(void)vsnprintf(err->message, sizeof(err->message), format, args);
		va_end(args);
	}
	return code;
}
