/* SPDX-License-Identifier: Apache-2.0 */
#include "viewer/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/io.h"
#include "viewer/page.h"

#define CONNECTIONS   64
#define REQUEST_BYTES 8192
#define SEND_SECONDS  10
#define WAIT_MS	      500
#define METRICS_TYPE  "text/plain; version=0.0.4"

/* ---- requests ---- */

/* The value of a header, cut out of the request; NULL if there is none, empty if there are two. */
static const char *header_of(const char *headers, const char *name, char *out, size_t bytes)
{
	size_t length = strlen(name), i;
	const char *at = headers, *found = NULL;

	while ((at = strstr(at, "\r\n")) != NULL) {
		at += 2;
		if (strncasecmp(at, name, length) != 0 || at[length] != ':')
			continue;
		if (found != NULL) {
			out[0] = '\0';
			break;
		}
		for (at += length + 1; *at == ' ' || *at == '\t'; at++)
			;
		for (i = 0; i + 1 < bytes && at[i] != '\r' && at[i] != '\0'; i++)
			out[i] = at[i];
		out[i] = '\0';
		found = out;
	}
	return found;
}

/* "127.0.0.1", "localhost" or "[::1]", with any port or none behind it. */
static bool is_loopback(const char *host)
{
	static const char *const names[] = {"127.0.0.1", "localhost", "[::1]"};
	size_t i, length;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		length = strlen(names[i]);
		if (strncasecmp(host, names[i], length) == 0 &&
		    (host[length] == '\0' ||
		     (host[length] == ':' &&
		      strspn(host + length + 1, "0123456789") == strlen(host + length + 1))))
			return true;
	}
	return false;
}

/* Takes as long for a wrong token as for the right one. */
static bool is_token(const struct server *server, const char *text)
{
	unsigned differ = 0;
	size_t i;

	if (text == NULL || strlen(text) != SERVER_TOKEN_BYTES - 1)
		return false;
	for (i = 0; i < SERVER_TOKEN_BYTES - 1; i++)
		differ |= (unsigned char)(text[i] ^ server->token[i]);
	return differ == 0;
}

static bool is_allowed(const struct server *server, const char *headers, const char *query)
{
	static const char name[] = "token=";
	char host[256], origin[256], token[256];
	static const char bearer[] = "Bearer ";
	const char *given = header_of(headers, "X-Msmemscope-Token", token, sizeof(token));
	const char *from;

	if (header_of(headers, "Host", host, sizeof(host)) == NULL || !is_loopback(host))
		return false;
	if (header_of(headers, "Origin", origin, sizeof(origin)) != NULL) {
		from = strstr(origin, "://");
		if (from == NULL || !is_loopback(from + 3))
			return false;
	}
	if (given == NULL && header_of(headers, "Authorization", token, sizeof(token)) != NULL)
		given = strncasecmp(token, bearer, strlen(bearer)) == 0 ? token + strlen(bearer)
									: "";
	if (given == NULL && strncmp(query, name, strlen(name)) == 0) {
		(void)snprintf(token, sizeof(token), "%s", query + strlen(name));
		token[strcspn(token, "&")] = '\0';
		given = token;
	}
	return is_token(server, given);
}

static void add_reply(struct strbuf *out, const char *status, const char *type, const char *nonce,
		      const struct strbuf *body)
{
	strbuf_addf(
		out,
		"HTTP/1.1 %s\r\n"
		"Content-Type: %s; charset=utf-8\r\n"
		"Content-Length: %zu\r\n"
		"Connection: close\r\n"
		"Cache-Control: no-store\r\n"
		"X-Content-Type-Options: nosniff\r\n"
		"X-Frame-Options: DENY\r\n"
		"Referrer-Policy: no-referrer\r\n"
		"Cross-Origin-Resource-Policy: same-origin\r\n"
		"Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; connect-src 'self'; script-src 'nonce-%s'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\r\n",
		status, type, body->length, nonce);
	strbuf_add(out, strbuf_str(body), body->length);
}

static void random_hex(char out[SERVER_TOKEN_BYTES])
{
	static const char digits[] = "0123456789abcdef";
	unsigned char bytes[(SERVER_TOKEN_BYTES - 1) / 2];
	size_t i;

	/* Cannot fail for so few bytes once the kernel has started; if it does, nobody gets in. */
	while (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		;
	for (i = 0; i < sizeof(bytes); i++) {
		out[2 * i] = digits[bytes[i] >> 4];
		out[2 * i + 1] = digits[bytes[i] & 15];
	}
	out[SERVER_TOKEN_BYTES - 1] = '\0';
}

void server_reply(struct server *server, char *request, struct strbuf *out)
{
	char *path = request + 4, *end = strpbrk(request, "\r\n"), *query,
	     nonce[SERVER_TOKEN_BYTES];
	const char *status = "200 OK", *type = "application/json";
	struct strbuf body = {0};
	char *headers = end == NULL ? request + strlen(request) : end;
	static char none[1] = "";

	random_hex(nonce);
	end = strncmp(request, "GET /", 5) == 0 ? strchr(path, ' ') : NULL;
	if (end == NULL || end > headers) {
		status = "405 Method Not Allowed";
		type = "text/plain";
	} else {
		*end = '\0';
		query = strchr(path, '?');
		if (query == NULL)
			query = none;
		else
			*query++ = '\0';
		if (!is_allowed(server, headers, query)) {
			status = "403 Forbidden";
			type = "text/plain";
			strbuf_add_str(
				&body,
				server->viewed != NULL
					? "Open the address that msmemscope view printed, with its token.\n"
					: "The token is in the file that msmemscope top named.\n");
		} else if (server->viewed == NULL) {
			type = METRICS_TYPE;
			if (strcmp(path, "/metrics") == 0) {
				server->metrics(server->arg, &body);
			} else {
				status = "404 Not Found";
				type = "text/plain";
			}
		} else if (server->store != NULL &&
			   store_page_reply(server->store, path, query, nonce, &body, &type)) {
			/* The reply is whole. */
		} else if (strcmp(path, "/") == 0) {
			type = "text/html";
			page_write(&body, NULL, nonce);
		} else if (strncmp(path, "/api/", 5) != 0 ||
			   !viewed_answer(server->viewed, path + 5, query, &body)) {
			status = "404 Not Found";
			type = "text/plain";
		}
	}
	add_reply(out, status, type, nonce, &body);
	strbuf_fini(&body);
}

/* ---- connections ---- */

struct connection {
	int fd;
	size_t length;
	char request[REQUEST_BYTES];
};

static void answer(struct server *server, struct connection *connection)
{
	struct timeval limit = {.tv_sec = SEND_SECONDS};
	struct strbuf out = {0};
	int flags = fcntl(connection->fd, F_GETFL);

	server_reply(server, connection->request, &out);
	(void)fcntl(connection->fd, F_SETFL, flags & ~O_NONBLOCK);
	(void)setsockopt(connection->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (!strbuf_failed(&out))
		(void)io_write(connection->fd, strbuf_str(&out), out.length);
	strbuf_fini(&out);
}

/* Takes what has come. True: the connection is done with. */
static bool take(struct server *server, struct connection *connection)
{
	ssize_t got = recv(connection->fd, connection->request + connection->length,
			   sizeof(connection->request) - 1 - connection->length, 0);

	if (got < 0)
		return errno != EAGAIN && errno != EINTR;
	connection->length += (size_t)got;
	connection->request[connection->length] = '\0';
	if (strlen(connection->request) != connection->length)
		return true; /* a NUL is no part of a request */
	if (strstr(connection->request, "\r\n\r\n") != NULL) {
		answer(server, connection);
		return true;
	}
	return got == 0 || connection->length == sizeof(connection->request) - 1;
}

static void greet(struct server *server, struct connection *all, size_t *count)
{
	int fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0)
		return;
	if (*count == CONNECTIONS) {
		/* The one that has waited longest never asked. */
		(void)close(all[0].fd);
		memmove(&all[0], &all[1], --*count * sizeof(all[0]));
	}
	all[*count].fd = fd;
	all[(*count)++].length = 0;
}

int server_run(struct server *server, const volatile int *stop)
{
	struct connection *all = calloc(CONNECTIONS, sizeof(*all));
	struct pollfd polls[CONNECTIONS + 1];
	size_t count = 0, i;
	int r = all == NULL ? -ENOMEM : 0;
	bool busy = true;

	while (r == 0 && *stop == 0) {
		polls[0] = (struct pollfd){.fd = server->fd, .events = POLLIN};
		for (i = 0; i < count; i++)
			polls[i + 1] = (struct pollfd){.fd = all[i].fd, .events = POLLIN};
		if (poll(polls, count + 1, busy ? 0 : WAIT_MS) < 0) {
			r = errno == EINTR ? 0 : -errno;
			continue;
		}
		for (i = count; i > 0; i--) {
			if (polls[i].revents == 0 || !take(server, &all[i - 1]))
				continue;
			(void)close(all[i - 1].fd);
			memmove(&all[i - 1], &all[i], (count - i) * sizeof(all[0]));
			count--;
		}
		if (polls[0].revents != 0)
			greet(server, all, &count);
		/* Requests first: a page is waiting. */
		busy = server->viewed != NULL ? viewed_work(server->viewed)
					      : server->work(server->arg);
	}
	for (i = 0; i < count; i++)
		(void)close(all[i].fd);
	free(all);
	return r;
}

int server_open(struct server *server, struct viewed *viewed, uint16_t port,
		struct mscope_error *err)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_port = htons(port),
				      .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t length = sizeof(address);
	int yes = 1, r;

	*server = (struct server){.viewed = viewed};
	random_hex(server->token);
	server->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (server->fd < 0)
		return error_set(err, -errno, "cannot open a socket: %s", strerror(errno));
	(void)setsockopt(server->fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (bind(server->fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(server->fd, CONNECTIONS) < 0 ||
	    getsockname(server->fd, (struct sockaddr *)&address, &length) < 0) {
		r = -errno;
		server_close(server);
		return error_set(err, r, "cannot listen on port %u of 127.0.0.1: %s", port,
				 strerror(-r));
	}
	server->port = ntohs(address.sin_port);
	return 0;
}

void server_close(struct server *server)
{
	io_close(&server->fd);
}
