/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints one line for each signal that it gets: `signals_log NAME...`. Starts with "ready PID PPID" and ends with
 * exit code 0 when a line "end" comes on standard input; an end of file or error there is no end. Signals that are not named
 * keep the disposition that was inherited.
 */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static const struct {
	const char *name;
	int signo;
} names[] = {
	{"HUP", SIGHUP},   {"INT", SIGINT},   {"QUIT", SIGQUIT},   {"USR1", SIGUSR1},
	{"USR2", SIGUSR2}, {"ALRM", SIGALRM}, {"TERM", SIGTERM},   {"CONT", SIGCONT},
	{"TSTP", SIGTSTP}, {"TTIN", SIGTTIN}, {"WINCH", SIGWINCH}, {"RT1", 35},
};

static const char *name_of(int signo)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (names[i].signo == signo)
			return names[i].name;
	}
	return "?";
}

/* One write() for each line, so that lines never mix. A queued value is part of what was sent. */
static void on_signal(int signo, siginfo_t *info, void *context)
{
	int saved = errno;
	char line[64];
	int n = snprintf(line, sizeof(line), "got %s", name_of(signo));

	(void)context;
	if (info->si_code == SI_QUEUE)
		n += snprintf(line + n, sizeof(line) - (size_t)n, " value %d from %d",
			      info->si_value.sival_int, (int)info->si_pid);
	line[n++] = '\n';
	if (write(STDOUT_FILENO, line, (size_t)n) < 0)
		_exit(1);
	errno = saved;
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
	char line[64];
	ssize_t n;

	sigfillset(&action.sa_mask);
	for (int i = 1; i < argc; i++) {
		for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
			if (strcmp(argv[i], names[k].name) == 0)
				sigaction(names[k].signo, &action, NULL);
		}
	}
	printf("ready %d %d\n", (int)getpid(), (int)getppid());
	fflush(stdout);
	for (;;) {
		n = read(STDIN_FILENO, line, sizeof(line) - 1);
		if (n <= 0) {
			pause();
			continue;
		}
		line[n] = '\0';
		if (strncmp(line, "end", 3) == 0)
			break;
	}
	printf("end\n");
	return 0;
}
