/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small server for one page: HTTP/1.1, GET only, on the loopback alone. Whoever asks must know the token and must have asked for a
 * loopback name (any port: people forward ports), so that no page of somebody else's reaches it by a name of its own. One thread; a
 * connection serves one request.
 */
#ifndef MSCOPE_VIEWER_SERVER_H
#define MSCOPE_VIEWER_SERVER_H

#include "viewer/questions.h"
#include "viewer/store_page.h"

#define SERVER_TOKEN_BYTES 33

struct server {
	int fd;
	uint16_t port;
	char token[SERVER_TOKEN_BYTES]; /* hex */
	struct viewed *viewed;		/* borrowed; NULL: there is no page, only figures */
	struct store_page *store;	/* borrowed; NULL: no run of a store is shown */
	/* Figures for Prometheus, at /metrics: appends them. */
	void (*metrics)(void *arg, struct strbuf *out);
	/* Called between requests; true: there is more to do at once. */
	bool (*work)(void *arg);
	void *arg; /* of the two */
};

/* Listens on this port, 0: any. 0, or a negative code said in `err`. */
int server_open(struct server *server, struct viewed *viewed, uint16_t port,
		struct mscope_error *err);

/* Serves until *stop is not 0 (a signal handler may set it). 0 or -errno. */
int server_run(struct server *server, const volatile int *stop);

void server_close(struct server *server);

/* What a request is answered with; for tests and fuzzing. The whole reply goes to `out`. */
void server_reply(struct server *server, char *request, struct strbuf *out);

#endif
