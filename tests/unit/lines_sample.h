/* SPDX-License-Identifier: Apache-2.0 */
/* What test_lines finds in the shared objects that are built from lines_sample.cpp: places that know where they are. */
#ifndef LINES_SAMPLE_H
#define LINES_SAMPLE_H

#define SAMPLE_DEPTH_MAX 4

/* The return address of a call, and the source lines that lead to it, innermost first, as __LINE__ says them. */
struct sample_place {
	const void *address;
	const char *function; /* innermost, as it is demangled */
	unsigned int depth;
	int lines[SAMPLE_DEPTH_MAX];
};

struct samples {
	unsigned int count;
	struct sample_place places[16];
};

/* What sample_run of each shared object is. */
typedef void sample_run_fn(struct samples *samples);

/* Names of functions that nothing calls. */
#define SAMPLE_ESCAPES_NAME "sample_escapes"

/* A name that keeps the demangler of libstdc++ busy for longer than anybody waits. */
#define SAMPLE_ENDLESS_NAME                                                                        \
	"_ZrctDOppsp"                                                                              \
	"pppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppp"     \
	"stDsEaaaaa"

#endif
