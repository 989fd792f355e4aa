/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run of a program on the simulated NPU in its shape-only mode, or on the simulated CUDA, for `msmemscope dryrun`: what the program finds in
 * its environment, the launch, and what its trace says. The program is recorded by an ordinary launch (cmd_launch.c); the trace carries the device (SESSION_DRY_KEY).
 */
#ifndef MSCOPE_CLI_DRY_RUN_H
#define MSCOPE_CLI_DRY_RUN_H

#include "base/status.h"
#include "cli/dry_orders.h"
#include "options/options.h"

/* More than any card has; the simulated NPU has no more. */
#define DRY_NO_LIMIT (UINT64_C(1) << 40)

/* What numbers that nobody computed read as where 0 makes the program fail: it has a logarithm and a quotient, and so has its logarithm. */
#define DRY_NUMBER "0.5"

struct dry_device {
	char name[32]; /* npu:64G, cuda:80G, h200 */
	uint64_t bytes;
	const char *card; /* word of a card of CUDA; NULL: an NPU */
	bool lean;	  /* convolutions have no workspaces */
	bool other;	  /* integers that nobody computed are other ones */
	bool number;	  /* numbers that nobody computed are not 0, but for integers and truths */
	bool classes;	  /* memory has classes; learning them makes PyTorch take a little more */
};

/* The PyTorch for CUDA that the program runs with, as it is installed. */
struct dry_torch {
	char directory[4096]; /* of its libraries */
	uint32_t cuda, cudnn; /* 13000 and 91900; 0: not known */
};

/* A call site that held memory at the peak. */
struct dry_site {
	uint64_t bytes;
	const char *class; /* "weights" */
	char *site;	   /* its innermost line: "train.py:31 main" */
};

struct dry_result {
	struct dry_device device;
	int status;		  /* of the program, as of waitpid() */
	uint32_t processes;	  /* that used PyTorch on a device; the first has the figures */
	uint32_t number;	  /* of the device that held most */
	uint32_t devices;	  /* that were used */
	uint64_t needs;		  /* most bytes of tensors at once */
	uint64_t reserves;	  /* most bytes that PyTorch's pool had from the driver */
	struct dry_orders orders; /* the same with other addresses */
	uint64_t outside;	  /* what the driver gave at most beside the pool */
	uint64_t steps;
	double seconds;
	uint32_t refusals; /* requests that were refused and stayed refused */
	uint64_t oom_step; /* of the last; 0: before the end of the first step */
	char *oom_place;
	char *died_at; /* line of the program; NULL: it did not die of an exception */
	char *because; /* that exception */
	char **values; /* notes about values that were not computed */
	size_t value_count;
	bool at_most;	/* one of them made tensors larger than they are */
	bool numbers;	/* one of them is an integer, which may decide a size */
	bool steers;	/* one of them is another number, which may decide where the program goes */
	char **missing; /* functions that are not simulated, each with the line that called it */
	size_t missing_count;
	uint64_t waits;	     /* most bytes of a step that other streams use, too */
	uint64_t workspaces; /* the largest of a convolution, which a card may not need */
	char *backward;	     /* a line that starts a backward pass; NULL: not known */
	size_t backwards;    /* such lines */
	char *stuck;	     /* why the program was ended before its steps; NULL: it was not */
	struct dry_site *sites;
	size_t site_count;
	char *project; /* directory of the trace */
};

/*
 * Runs the program of `options` on a device, a card of CUDA with the `torch` given; what it writes goes to standard error, or nowhere unless
 * `shown`. 0, with a `result` that needs dry_fini(), or a negative code with a sentence.
 */
int dry_run(const struct options *options, const struct dry_device *device,
	    const struct dry_torch *torch, bool shown, struct dry_result *result,
	    struct mscope_error *err);
/* A file without a name for what the first run, the one that is shown, reads of its standard input; the others read it again. */
void dry_keep_input(void);
void dry_fini(struct dry_result *result);

/*
 * The call sites and the files of `from`, a run of the same with classes, in the place of those of `result`, whose files are removed. Both go on as
 * they were if the program did something else there.
 */
void dry_take_classes(struct dry_result *result, struct dry_result *from);

/* The program ended as it should, or was ended after its steps. */
bool dry_is_fine(const struct dry_result *result);

/* The same, and was not ended before them. */
bool dry_is_whole(const struct dry_result *result);

/* It failed because such a number is 0: it divides by it, or wants its logarithm. */
bool dry_wants_number(const struct dry_result *result);

/* Removes the files of a run that another one takes the place of, and frees it. */
void dry_drop(struct dry_result *result);

/* It failed, and a request of its was refused before. */
bool dry_ran_out(const struct dry_result *result);

#endif
