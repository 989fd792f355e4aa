/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/forecast_command.h"
#include "cli/startup.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/whole.h"
#include "cli/cli.h"

static void put(const char *name, uint64_t value)
{
	char text[24];

	(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	(void)setenv(name, text, 1);
}

static void run_shell(const char *command)
{
	int null = open("/dev/null", O_RDONLY);
	sigset_t none;

	/* As a shell would start it, whatever we hold back or ignore. */
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	startup_restore_signals();
	(void)signal(SIGPIPE, SIG_DFL);
	(void)signal(SIGINT, SIG_DFL);
	(void)signal(SIGTERM, SIG_DFL);
	(void)dup2(null, STDIN_FILENO);
	(void)dup2(STDERR_FILENO, STDOUT_FILENO);
	(void)execl("/bin/sh", "sh", "-c", command, (char *)NULL);
	_exit(127);
}

void forecast_command(const char *command, uint32_t pid, const struct finding_forecast *forecast,
		      const char *text)
{
	pid_t child = fork();
	int status;

	if (child < 0) {
		cli_say("--on-forecast: cannot start %s", command);
		return;
	}
	/* The command is a grandchild, so that nobody has to wait for it. */
	if (child == 0) {
		put("MSMEMSCOPE_FORECAST_DEVICE", forecast->device);
		put("MSMEMSCOPE_FORECAST_STEP", forecast->full_step);
		put("MSMEMSCOPE_FORECAST_SECONDS", whole(forecast->seconds));
		put("MSMEMSCOPE_FORECAST_PID", pid);
		(void)setenv("MSMEMSCOPE_FORECAST_TEXT", text, 1);
		if (fork() == 0)
			run_shell(command);
		_exit(0);
	}
	(void)waitpid(child, &status, 0);
}
