/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/unrecorded_list.h"

#include <string.h>
#include <sys/ipc.h>
#include <sys/random.h>
#include <sys/shm.h>
#include <unistd.h>

#include "base/clock.h"

#define SHOWN 5u

const struct unrecorded *unrecorded_create(struct session *session)
{
	/* Another user must be able to write; what is written is trusted in nothing. */
	int number = shmget(IPC_PRIVATE, sizeof(struct unrecorded), IPC_CREAT | 0666);
	struct unrecorded *p;

	session->unrecorded = -1;
	if (number < 0)
		return NULL;
	p = shmat(number, NULL, 0);
	/* From here on it goes with its last user, and can still be attached by its number until then. */
	(void)shmctl(number, IPC_RMID, NULL);
	if ((intptr_t)p == -1)
		return NULL;
	if (getrandom(&p->cookie, sizeof(p->cookie), GRND_NONBLOCK) != (ssize_t)sizeof(p->cookie))
		p->cookie = clock_monotonic_ns();
	session->unrecorded = number;
	session->unrecorded_cookie = p->cookie;
	return p;
}

/* The name comes from a foreign process, and ends on a terminal. */
static void add_command(struct strbuf *out, const struct unrecorded_process *process)
{
	size_t i;

	for (i = 0; i < sizeof(process->command) && process->command[i] != '\0'; i++)
		strbuf_add_char(out, process->command[i] < ' ' || process->command[i] == 127
					     ? '?'
					     : process->command[i]);
}

static void add_process(struct strbuf *out, const struct unrecorded_process *process, uint32_t pid,
			uint64_t events, const char *directory)
{
	strbuf_addf(out, "msmemscope: process %u (", pid);
	add_command(out, process);
	strbuf_addf(out, ") was not recorded, %llu event%s missing: ", (unsigned long long)events,
		    events == 1 ? " is" : "s are");
	if (process->user != (uint32_t)geteuid())
		strbuf_addf(out, "as user %u ", process->user);
	strbuf_addf(out, "it cannot %s %s: %s\n",
		    process->cause == UNRECORDED_TRACE ? "make its trace in" : "reach", directory,
		    strerror((int)(process->error & 0xfff)));
}

uint32_t unrecorded_text(const struct unrecorded *unrecorded, const char *directory,
			 struct strbuf *out)
{
	uint32_t count, found = 0, rest = 0, i;
	uint64_t rest_events = 0;

	if (unrecorded == NULL)
		return 0;
	count = atomic_load(&unrecorded->count);
	for (i = 0; i < count && i < UNRECORDED_MAX; i++) {
		const struct unrecorded_process *process = &unrecorded->processes[i];
		uint64_t events = atomic_load(&process->events);
		uint32_t pid = atomic_load(&process->pid);

		if (events == 0 || pid == 0)
			continue;
		found++;
		if (found <= SHOWN) {
			add_process(out, process, pid, events, directory);
		} else {
			rest++;
			rest_events += events;
		}
	}
	if (count > UNRECORDED_MAX) {
		rest += count - UNRECORDED_MAX;
		found += count - UNRECORDED_MAX;
		rest_events += atomic_load(&unrecorded->more_events);
	}
	if (rest > 0)
		strbuf_addf(
			out,
			"msmemscope: %u more processes were not recorded, %llu events are missing\n",
			rest, (unsigned long long)rest_events);
	return found;
}
