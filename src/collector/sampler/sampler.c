/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The drivers' own usage figures (libdcmi.so, libnvidia-ml.so), asked for outside the traced program. The command is static and
 * cannot open libraries, and a program built here would need this machine's glibc; so this is a library at our glibc floor that the
 * engine preloads into a program that every machine has (/bin/true). Its constructor does the work and never lets the program begin.
 *
 * Every 100 ms, and when the standard input says so, one struct sampler_record per process on a device, and one of the device, goes to the
 * descriptor that the variable names. It ends when that is closed.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "collector/sampler/source.h"

static int output = -1;

bool sampler_find(void *library, const char *name, void *out)
{
	void *function = dlsym(library, name);

	memcpy(out, &function, sizeof(function));
	return function != NULL;
}

void sampler_send(const struct sampler_record *record)
{
	/* Smaller than a pipe's atomic size, so it comes whole or not at all. */
	if (write(output, record, sizeof(*record)) != (ssize_t)sizeof(*record) && errno != EAGAIN)
		_exit(0);
}

__attribute__((constructor)) static void run(void)
{
	const struct sampler_source *const sources[] = {&sampler_dcmi, &sampler_nvml};
	const char *variable = getenv(SAMPLER_ENV);
	struct pollfd news = {.fd = STDIN_FILENO, .events = POLLIN};
	bool works[MSCOPE_COUNT(sources)], any = false, asked = true;
	char bytes[64];
	size_t i;

	if (variable == NULL)
		return; /* not preloaded by the engine */
	output = atoi(variable);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	(void)signal(SIGPIPE, SIG_IGN);
	if (dlopen == NULL || dlsym == NULL)
		_exit(0);
	for (i = 0; i < MSCOPE_COUNT(sources); i++) {
		works[i] = sources[i]->open();
		any = any || works[i];
	}
	while (any) {
		for (i = 0; i < MSCOPE_COUNT(sources); i++) {
			if (works[i])
				sources[i]->sample(asked);
		}
		sampler_send(&(struct sampler_record){.device = SAMPLER_ROUND_ENDS});
		/* Several requests that came meanwhile are one. */
		asked = poll(&news, 1, SAMPLER_INTERVAL_MS) > 0;
		if (asked && read(STDIN_FILENO, bytes, sizeof(bytes)) <= 0)
			break;
	}
	_exit(0);
}
