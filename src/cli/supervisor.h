/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process model of a launch: the program runs as if it had been started directly, the engine works beside it, and the pid
 * that the user sees stands for the program.
 *
 *     supervisor (the visible pid; this process)      reads signals, mirrors stops, ends as the program ended
 *     +-- program                                     parent is the supervisor; killed with it
 *     +-- engine (nice 10)                            follows the traces, finishes the files; may die without harm
 *             sentinel, a thread of it                tells which signals went to the whole group
 *
 * All three share session, process group and terminal. Everything else the program inherits is what this process was
 * started with: descriptors, dispositions, mask, alarm, limits, nice, umask, directory.
 *
 * Signals. The supervisor blocks them all and reads a signalfd. Those that the kernel sent (Ctrl-C on the terminal) reached
 * the program by themselves. One that a process sent is passed on, unless the engine got it as well within 50 ms: then it
 * went to the group, and the program has it. It is also passed on when the engine cannot tell, or when the program has left
 * our group, because a signal too many is better than one that is lost.
 *
 * Everything here is called from the main thread of a process that has no other threads.
 */
#ifndef MSCOPE_CLI_SUPERVISOR_H
#define MSCOPE_CLI_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>

/* What the supervisor tells the engine. */
enum supervisor_event {
	SUPERVISOR_STARTED = 1, /* the program was executed; `pid` is set */
	SUPERVISOR_ENDED, /* it is gone; `status` or `exec_errno` is set: finish the files and return */
	SUPERVISOR_INTERRUPTED, /* the user does not want to wait: keep the trace and return at once */
};

struct supervisor_message {
	int32_t event;	    /* enum supervisor_event */
	int32_t pid;	    /* of the program */
	int32_t status;	    /* of the program, as of waitpid() */
	int32_t exec_errno; /* not 0: the program could not be executed, and this is why */
};

struct supervisor_launch {
	const char *path;  /* file to execute */
	char *const *argv; /* its arguments with argv[0], NULL-terminated */
	char *const *envp; /* its environment, NULL-terminated */
	/*
	 * Runs in the engine process; what it returns becomes that process' exit code. `control_fd` becomes readable when
	 * supervisor_receive() has news. Standard input and output are /dev/null there, standard error is the user's, all
	 * signals are blocked, and every descriptor that came from outside is closed.
	 */
	int (*engine)(void *arg, int control_fd);
	void *engine_arg;
	/* Descriptor of ours that from the start on only the engine holds, so that what it stands for ends with it; 0: none. */
	int engine_fd;
	int ready_ms; /* how long the program waits for supervisor_ready(); 0: it does not */
};

struct supervisor_result {
	int status;	   /* of the program, as of waitpid() */
	int exec_errno;	   /* not 0: the program could not be executed, and this is why */
	int engine_status; /* of the engine, as of waitpid() */
	bool engine_lost; /* the engine died, or was gone before the program: files may be unfinished */
	bool interrupted; /* the user interrupted the finishing of files */
};

/*
 * Starts the engine and the program, stands for the program until it ended, and waits for the engine to finish. 0, or a
 * negative code when nothing was started. In the first case standard input and output and all other descriptors from
 * outside are released (standard error stays) and all signals stay blocked: what is left is to talk on standard error and
 * to call supervisor_exit_like().
 */
int supervisor_run(const struct supervisor_launch *launch, struct supervisor_result *out_result);

/*
 * Ends this process as the program ended: with its exit code, or by the same signal but without a core file of ours (as pid 1,
 * which no signal kills, by 128 + n). 127 or 126 if it was not executed.
 */
_Noreturn void supervisor_exit_like(const struct supervisor_result *result);

/* For the engine: the program may begin. */
void supervisor_ready(int control_fd);

/* For the engine: the next message. 0, -EAGAIN when there is none now, -EPIPE when the supervisor is dead: then go on and finish. */
int supervisor_receive(int control_fd, struct supervisor_message *out_message);

#endif
