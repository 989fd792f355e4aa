/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a request to the page's server, which views nothing. Besides memory errors it looks for a reply that is not one: no
 * status, a length that is not the body's, or anything else than a refusal for who does not have the token.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "viewer/server.h"

#define TOKEN "0123456789abcdef0123456789abcdef"

static void check_reply(const char *reply, bool knows_token)
{
	const char *length = strstr(reply, "\r\nContent-Length: "),
		   *body = strstr(reply, "\r\n\r\n");
	unsigned status;

	if (sscanf(reply, "HTTP/1.1 %3u ", &status) != 1 || length == NULL || body == NULL)
		abort();
	if (strtoull(length + strlen("\r\nContent-Length: "), NULL, 10) != strlen(body + 4))
		abort();
	if (status != 200 && status != 403 && status != 404 && status != 405)
		abort();
	if (!knows_token && (status == 200 || status == 404))
		abort();
}

static void on_metrics(void *arg, struct strbuf *out)
{
	(void)arg;
	strbuf_add_str(out, "figures\n");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct viewed viewed = {.directory = "/nowhere"};
	struct server server = {.fd = -1, .token = TOKEN, .viewed = &viewed};
	struct server figures = {.fd = -1, .token = TOKEN, .metrics = on_metrics};
	struct strbuf out = {0};
	char *request = malloc(size + 1);
	bool knows_token;

	if (request == NULL)
		return 0;
	memcpy(request, data, size);
	request[size] = '\0';
	knows_token = strstr(request, TOKEN) != NULL;
	server_reply(&server, request, &out);
	check_reply(strbuf_str(&out), knows_token);
	/* The same to the server of figures alone. */
	memcpy(request, data, size);
	strbuf_reset(&out);
	server_reply(&figures, request, &out);
	check_reply(strbuf_str(&out), knows_token);
	strbuf_fini(&out);
	viewed_fini(&viewed);
	free(request);
	return 0;
}
