/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What makes two runs differ: their pools, the places that hold more or less, and the calls that change memory otherwise. It is
 * found by the two ledgers of a comparison, after compare_align(). docs/decisions/0020-what-makes-runs-differ.md tells how.
 *
 * Places of two runs are the same if they have the same functions and lines; those that are left are paired by their functions
 * alone, because lines move when a program is changed (findings/differ.h). Places that people see as one line are one. Bytes at the peak are those of the moment at which the run with the higher
 * peak reached it, and of the same moment in the other run: the same allocation, counted by place.
 */
#ifndef MSCOPE_ANALYSIS_DIFFERENCES_H
#define MSCOPE_ANALYSIS_DIFFERENCES_H

#include "analysis/compare.h"

#define DIFFERENCE_NONE UINT32_MAX

/* Arrays have an element for each run. */
struct difference_pool {
	uint8_t pool;
	uint32_t device;
	bool counts; /* calls are compared by it */
	int64_t start[2], peak[2], end[2];
	/* What the runs held at the moment that places are compared at; one of them is its peak. */
	int64_t at_moment[2];
};

struct difference_place {
	/* In the ledgers, DIFFERENCE_NONE: that run has none. */
	uint32_t place[2];
	uint32_t pool; /* in differences.pools */
	size_t name;   /* in differences.texts */
	bool frames;   /* the name is made of frames; else it is an operator, or says sizes */
	size_t owner;  /* the same; the text is "" if it has none */
	enum owner_class class;
	/* The operator that all of its difference comes from, as the ledger has it; 0: several, or it is in the name. */
	uint32_t call;
	int64_t at_peak[2];
	int64_t held[2]; /* blocks at that moment */
	int64_t end[2];
	int64_t most[2];      /* highest of its own */
	int64_t allocated[2]; /* sum of its blocks */
	uint64_t blocks[2];
	/* Sum of bytes of freed blocks, times the blocks that were allocated meanwhile. */
	uint64_t life[2];
	bool differs;
};

/* A tensor of a module with its gradient and its states in an optimizer, or what the module has made; at the moment of the peak. */
struct difference_layer {
	uint32_t pool;	  /* in differences.pools */
	size_t model;	  /* in differences.texts, as the next four */
	size_t module;	  /* its path in the model; "": the outermost module */
	size_t tensor;	  /* ""; what the module has made */
	size_t also;	  /* further names of the tensor */
	size_t optimizer; /* class of the optimizer that made its states; "": unknown */
	uint64_t states;  /* of the optimizer, without those of a few bytes */
	bool there[2];
	int64_t bytes[2];
	int64_t classes[OWNER_CLASSES][2];
};

enum difference_kind {
	DIFFERENCE_BOTH,      /* calls of both runs that change memory otherwise */
	DIFFERENCE_BASE,      /* calls that only the first run has */
	DIFFERENCE_COMPARE,   /* that only the second has */
	DIFFERENCE_MOVED,     /* that both have, at other places in their order */
	DIFFERENCE_AFTER_ALL, /* behind the last call */
};

/* Calls of one name that differ alike. What happened between two calls counts for the second. */
struct difference_call {
	enum difference_kind kind;
	uint32_t name; /* as in struct compare_call */
	uint32_t device;
	uint32_t place;	 /* in differences.places: whose blocks differ most, or DIFFERENCE_NONE */
	bool outside;	 /* it happened before the call, in no other */
	size_t count;	 /* calls */
	size_t ordinal;	 /* of the first of them among the calls of the device, from 1 */
	int64_t left[2]; /* bytes that stayed, summed up */
	int64_t peak[2]; /* own peak, of the call where it differs most */
	int64_t allocated[2]; /* bytes, summed up */
	/* Bytes that it is listed by: its own, or of calls that differ because this one is missing or elsewhere. */
	int64_t score;
	/* While they are found: calls of one run alone that come right before, number + 1; 0: none. */
	uint32_t cause;
};

struct differences {
	struct difference_pool *pools; /* by device and pool */
	size_t pool_count;
	struct difference_place *places; /* those that differ first, most bytes first */
	size_t place_count, differing_places;
	struct difference_layer *layers; /* those that differ, most bytes first */
	size_t layer_count;
	bool models;		       /* they are of several models */
	struct strbuf texts;	       /* NUL-terminated */
	struct difference_call *calls; /* most bytes first */
	size_t call_count;
	/* Bytes that came to stay while no operator was in progress, in the pools that count. */
	int64_t outside[2];
};

/* 0 or -ENOMEM. */
int differences_find(const struct compare *compare, struct differences *out);
void differences_fini(struct differences *differences);

/* A text of `texts`. */
const char *difference_text(const struct differences *differences, size_t at);

/* Appends what a place is, in one line without a newline: its name as findings have it, with its owner. */
void difference_place_text(const struct differences *differences,
			   const struct difference_place *place, struct strbuf *out);

/* "layers.1.up.weight 4.0 -> 5.2 MiB, with its gradient and two Adam states +4.8 MiB"; no newline. */
void difference_layer_text(const struct differences *differences,
			   const struct difference_layer *layer, struct strbuf *out);

#endif
