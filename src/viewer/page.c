/* SPDX-License-Identifier: Apache-2.0 */
#include "viewer/page.h"

#include <string.h>

#define DATA  "@DATA@"
#define NONCE "@NONCE@"

__asm__(".section .rodata\n"
	".balign 8\n"
	"mscope_page:\n"
	".incbin \"" MSCOPE_PAGE "\"\n"
	".byte 0\n"
	".previous\n");

extern const char mscope_page[];

size_t page_bytes(void)
{
	return strlen(mscope_page) +
	       sizeof("<script type=\"application/json\" id=\"answers\"></script>");
}

/* JSON inside of a script element: nothing in it may look like the element's end. */
static void add_json(struct strbuf *out, const char *json)
{
	const char *end;

	while ((end = strchr(json, '<')) != NULL) {
		strbuf_add(out, json, (size_t)(end - json));
		strbuf_add_str(out, "\\u003c");
		json = end + 1;
	}
	strbuf_add_str(out, json);
}

void page_write(struct strbuf *out, const char *answers, const char *nonce)
{
	const char *data = strstr(mscope_page, DATA), *name = strstr(mscope_page, NONCE);

	if (data == NULL || name == NULL || name < data)
		return;
	strbuf_add(out, mscope_page, (size_t)(data - mscope_page));
	if (answers != NULL) {
		strbuf_add_str(out, "<script type=\"application/json\" id=\"answers\">");
		add_json(out, answers);
		strbuf_add_str(out, "</script>");
	}
	data += strlen(DATA);
	strbuf_add(out, data, (size_t)(name - data));
	if (nonce != NULL)
		strbuf_addf(out, " nonce=\"%s\"", nonce);
	strbuf_add_str(out, name + strlen(NONCE));
}
