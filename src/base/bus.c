/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bus.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

static uintptr_t page_bytes;

static void on_bus(int signo, siginfo_t *info, void *context)
{
	uintptr_t page = (uintptr_t)info->si_addr & ~(page_bytes - 1);

	(void)context;
	/* Anything else, such as broken memory, ends the process when the instruction is tried again. */
	if (info->si_code != BUS_ADRERR ||
	    mmap((void *)page, page_bytes, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		(void)signal(signo, SIG_DFL);
}

void bus_guard(void)
{
	struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
	sigset_t bus;

	page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
	sigemptyset(&action.sa_mask);
	(void)sigaction(SIGBUS, &action, NULL);
	sigemptyset(&bus);
	sigaddset(&bus, SIGBUS);
	(void)sigprocmask(SIG_UNBLOCK, &bus, NULL);
}
