/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this process was started with, and what becomes of it: standard descriptors, command line, descriptors that came through
 * execve(). Called from the main thread of a process that has no other threads.
 */
#ifndef MSCOPE_CLI_STARTUP_H
#define MSCOPE_CLI_STARTUP_H

#include <stdbool.h>

/*
 * Calls `run(argc, argv)` and returns what it returns, to be used in main() and nowhere else. Where the stack may not grow to what
 * the verbs need (RLIMIT_STACK), `run` gets a stack of our own, and threads do too; the limit itself stays the program's. Nothing
 * else may be done before it.
 */
int startup_run(int (*run)(int argc, char **argv), int argc, char **argv);

/*
 * To be called first in run(). Makes sure that descriptors 0, 1 and 2 are open, so that no file of ours gets such a number
 * (the program still finds them as they were), and returns a copy of `argv` to be used instead: the original is where ps and
 * pkill -f look, and the engine writes its own title there, so that a signal to "msmemscope" is not taken for one to the group.
 * The copy is one allocation, to be freed by the caller; NULL: no memory.
 */
char **startup_prepare(int argc, char **argv);

/* Whether we were started without standard output: what is written to it reaches nobody. */
bool startup_stdout_is_closed(void);

/*
 * Names this process `name` and lets ps show "NAME: prog args", `argv` being the program's. A search for the program finds it,
 * a search for the command does not.
 */
void startup_retitle(const char *name, char *const *argv);

/*
 * Closes every descriptor that came from outside, so that a pipe ends when the program has closed it; descriptors 0 and 1 become
 * /dev/null. Standard error stays. What came through execve() into this process lacks close-on-exec, what is our own has it.
 */
void startup_release_inherited(void);

/*
 * A file that may not become as large as ours (RLIMIT_FSIZE) is a failed write for us, not our end; startup_prepare() sees to it. This
 * undoes it for a program that is started.
 */
void startup_restore_signals(void);

/* Whether a signal is ignored by us, and not by who started us. */
bool startup_ignores(int signo);

#endif
