/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known about a program before it is started: which file a name means, and whether the collector can work in it.
 *
 * The file may be damaged or hostile and may change while it is read: nothing is mapped, every read is bounded, and no
 * offset of the file is trusted. What cannot be found out is not a finding; execve() has the last word.
 */
#ifndef MSCOPE_CLI_PREFLIGHT_H
#define MSCOPE_CLI_PREFLIGHT_H

#include <limits.h>
#include <stdbool.h>

#include "base/compiler.h"
#include "base/status.h"

enum preflight_kind {
	PREFLIGHT_STATIC,      /* no dynamic loader, so nothing can be preloaded */
	PREFLIGHT_FOREIGN,     /* for another machine than ours */
	PREFLIGHT_PRIVILEGED,  /* gains rights when executed, so the loader ignores preloads */
	PREFLIGHT_SANITIZED,   /* holds or needs a sanitizer's runtime */
	PREFLIGHT_MUSL,	       /* loaded by musl, which cannot take a library for glibc */
	PREFLIGHT_INTERPRETER, /* the #! line or the loader names a file that is not there */
	PREFLIGHT_ELSEWHERE,   /* runs its command as another user or in another root directory */
	PREFLIGHT_KINDS,
};

struct preflight_finding {
	enum preflight_kind kind;
	bool fatal; /* as things are nothing will be recorded; else the program runs and this is good to know */
	char sentence[500]; /* what it is and what helps, without a final newline */
};

struct preflight_report {
	/* The ELF file that runs in the end, the program or its interpreter; "" when unknown. */
	char executed[PATH_MAX];
	/* The loader that it names; "" for none. */
	char loader[256];
	/* Shared sanitizer runtime that has to stand first in LD_PRELOAD, such as libasan.so.8; "" for none. */
	char runtime[256];
	struct preflight_finding findings[PREFLIGHT_KINDS];
	size_t finding_count;
};

/*
 * Finds the file that execvp() would execute for `name`: as it is when it holds a slash, else along PATH. -ENOENT when there is none;
 * -EACCES, -EISDIR and others when there is one that cannot be executed. `err` then says which and why.
 */
int preflight_resolve(const char *name, char *out_path, size_t out_bytes, struct mscope_error *err);

/* The exit code for a failure of preflight_resolve() or for -errno of execve(): 127 not found, 126 not executable. */
int preflight_exit_code(int code);

/*
 * Inspects the file, through #! lines and /usr/bin/env, without executing anything; PATH, LD_PRELOAD and ASAN_OPTIONS
 * are taken from our own environment. 0 with zero or more findings, or -errno when the file cannot be read (execute permission
 * is enough to run it): then nothing is known.
 */
int preflight_inspect(const char *path, struct preflight_report *out_report);

/* Adds what the command line says: programs that run another one where it cannot reach the session. */
void preflight_inspect_words(char *const *argv, struct preflight_report *report);

#endif
