/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The session directory from the engine's side (trace/session.h says what lies in it): made before a launch, removed when
 * everything in it is finished, found again by `recover` when it was not.
 *
 * It lies in the output directory, or, when that is on memory or on a network, on a local disk with a pointer file in the
 * output directory:  OUTPUT/.msmemscope_PID_STAMP/  or  OUTPUT/.msmemscope_PID_STAMP.where
 * The session file is locked from its birth, by the engine as long as it lives; one without a lock was left behind.
 *
 * What another user made is not trusted. A session directory must belong to the caller and be writable by nobody else, root or not;
 * it is opened once, not through a symbolic link, and everything in it is reached by that descriptor (`files`), so that whoever can
 * rename it cannot make us write or remove elsewhere. The output directory that a session left behind names counts only if it
 * points back: it is the directory's parent, or has the caller's own pointer file to it. Else results go beside the session.
 */
#ifndef MSCOPE_ENGINE_SESSION_PLACE_H
#define MSCOPE_ENGINE_SESSION_PLACE_H

#include <stdbool.h>

#include "base/status.h"
#include "trace/session.h"

struct asked;

struct session_place {
	char directory[SESSION_PATH_MAX]; /* absolute; for messages and for the program */
	char files[32];			  /* the same by our descriptor, for every access of ours */
	char pointer[SESSION_PATH_MAX];	  /* pointer file, or "" */
	struct session *session;	  /* mapped; a copy of our own after session_open() */
	int dir_fd, parent_fd;		  /* of the directory and the one it is in; 0: none */
	bool locked;			  /* by us */
	int lock_fd;
	bool elsewhere; /* not in the output directory, because that is no local disk */
	bool on_memory; /* no local disk was found at all */
	bool timeline;	/* asked of our engine alone: pools over time are kept, for a store */
};

/*
 * Makes directory, settings file and pointer, with the lock taken. `wanted` holds the settings; `trace_dir` is the user's
 * choice of place or NULL.
 */
int session_create(const struct session *wanted, const char *trace_dir, struct session_place *out,
		   struct mscope_error *err);

/*
 * Opens what a launch left. MSCOPE_E_FOREIGN when it is no session directory, -EPERM when it is not the caller's. `directory` may be
 * relative, and lead over symbolic links to its parent.
 */
int session_open(const char *directory, struct session_place *out, struct mscope_error *err);

/* What processes are asked (trace/asked.h), mapped for reading and writing; NULL: it is not there. */
struct asked *session_asked(const struct session_place *place);

/* Takes the lock unless it is ours; -EBUSY when another engine holds it. */
int session_lock(struct session_place *place);
/* Releases it; a child that inherited it keeps it. */
void session_unlock(struct session_place *place);

/* Removes settings, pointer and directory if no trace is left in it. True when it is gone. */
bool session_remove(struct session_place *place);
void session_close(struct session_place *place);

/* In a message that names a file by `files`, names it by its path. */
void session_show(const struct session_place *place, struct mscope_error *err);

/* Calls `found` for each session directory that `directory` is, holds or points to. */
typedef void session_found(void *arg, const char *session_directory);
void session_search(const char *directory, session_found *found, void *arg);

/*
 * The directory that raw traces of a launch go to, borrowed; `elsewhere` and `on_memory` of `place` are set. `output` must exist.
 */
const char *session_choose(const char *output, const char *trace_dir, struct session_place *place);

/* True when the kernel keeps files of this directory in memory or on another machine. */
bool session_is_remote(const char *directory, bool *out_memory);

#endif
