/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a name: demangling and shortening end, and their output is bounded. The demangler of libstdc++ is known to run
 * for ever on some names, and runs in a process that is killed then (symbols/lines.h); here a timer takes its place.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "base/strbuf.h"
#include "symbols/demangle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static sigjmp_buf late;

static void on_timer(int number)
{
	(void)number;
	siglongjmp(late, 1);
}

/* Milliseconds until the timer; 0 stops it. */
static void set_timer(int ms)
{
	const struct itimerval timer = {.it_value = {.tv_usec = ms * 1000}};

	(void)signal(SIGVTALRM, on_timer);
	(void)setitimer(ITIMER_VIRTUAL, &timer, NULL);
}

static void check(const struct strbuf *text, size_t max)
{
	if (strbuf_failed(text) || text->length > max || strlen(strbuf_str(text)) != text->length)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static struct strbuf name, out, brief;

	strbuf_reset(&name);
	strbuf_reset(&out);
	strbuf_reset(&brief);
	strbuf_add(&name, data, strnlen((const char *)data, bytes));
	if (sigsetjmp(late, 1) == 0) {
		/* Names of Rust are our own business: they have to end by themselves. */
		if (strncmp(strbuf_str(&name), "_Z", 2) == 0)
			set_timer(50);
		demangle(strbuf_str(&name), &out);
		set_timer(0);
	} else {
		strbuf_reset(&out);
	}
	check(&out, DEMANGLE_OUT_BYTES_MAX + 3);
	demangle_shorten(strbuf_str(&out), &brief);
	check(&brief, DEMANGLE_OUT_BYTES_MAX + 3);
	strbuf_reset(&brief);
	demangle_shorten(strbuf_str(&name), &brief);
	check(&brief, name.length);
	return 0;
}
