/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The owner of a block, as a text of parts joined by '@':
 *
 *     CANN@RUNTIME    PTA@model@weight    PTA@ops@aten@my_label
 *
 * The parts are the framework or component (from the block's context), a class (of the model, see classes.def, or ops@aten for
 * what an ATen operator allocated), and the user's labels: those that the allocating thread had open, outermost first. A label of the block
 * itself takes the place of the outermost. Each distinct owner is kept once and has a number; 0 is unknown. Not
 * thread-safe. A zeroed struct is an empty one.
 *
 * Besides its text an owner may have a layer: which part of a model the memory is. Owners that differ only in it have one text; the one
 * without a layer stands for all of them (owners_plain()). A layer is a text of parts joined by '@':
 *
 *     Net@encoder.layers.3.mlp.up@weight      the tensor, its gradient and its states in the optimizer
 *     Net@encoder.layers.3.mlp.up             what this module made
 *     Net@embed@weight@head.weight            a tensor that the model has under several names
 *
 * the class of the outermost module (Net#2: another one of this class), the path of the module in it as named_modules() has it, the name
 * of the tensor in the module, and its further names.
 */
#ifndef MSCOPE_REPLAY_OWNERS_H
#define MSCOPE_REPLAY_OWNERS_H

#include <stdbool.h>

#include "base/map.h"
#include "base/strbuf.h"
#include "trace/context.h"

/* Classes of a model's memory (classes.def). */
enum owner_class {
	CLASS_none, /* no class, or one that is not in the list */
#define CLASS(name, text, rank) CLASS_##name,
#include "replay/classes.def"
#undef CLASS
	OWNER_CLASSES
};

/* Parts of one owner, each a text of `owners`, 0: none. */
struct owner {
	uint32_t framework;
	uint32_t class;
	uint32_t user;
	uint32_t rest;	/* further labels, joined */
	uint32_t layer; /* not a part of `text` */
	/* Number of the owner with the same parts and no layer; its own if it has none. */
	uint32_t plain;
	uint32_t text;	       /* all of it, joined */
	enum owner_class kind; /* what `class` is */
};

/* Texts that a thread has entered, outermost first. */
struct owner_stack {
	uint32_t *texts;
	size_t count, room;
};

/* Labels that a thread has open. */
struct owner_thread {
	uint32_t tid;
	uint32_t *labels;
	uint32_t *depths; /* of each label: how often it was entered */
	size_t label_count, label_room, depth_room;
	struct owner_stack classes;
	struct owner_stack layers;
};

struct owners {
	struct strbuf texts;   /* NUL-terminated; a text is its offset + 1 */
	struct map text_ids;   /* hash -> text */
	struct map frameworks; /* pool and vendor, module -> text */
	struct owner *all;     /* [0] is unknown */
	size_t count, room;
	struct map ids;	    /* parts without a layer -> index in `all` */
	struct map layered; /* index of the plain owner, layer -> index in `all` */
	struct owner_thread *threads;
	size_t thread_count, thread_room;
	struct map by_tid; /* -> index in `threads` */
	struct strbuf scratch;
};

void owners_fini(struct owners *owners);

/* Owner of a block that is allocated now by a thread; `aten`: inside an ATen operator. 0 or -ENOMEM. */
int owners_of(struct owners *owners, const struct context *context, uint32_t tid, bool aten,
	      uint32_t *out_owner);

/* Adds the owner with these parts, which has the next number if it is new. 0 or -ENOMEM. */
int owners_add(struct owners *owners, const char *framework, const char *class, const char *user,
	       const char *rest, const char *layer, uint32_t *out_owner);

/*
 * Owner after a label of its block came: LABEL_MODEL sets the class if classes.def allows it, LABEL_TENSOR the user's label,
 * LABEL_LAYER the layer.
 * 0 or -ENOMEM.
 */
int owners_label(struct owners *owners, uint32_t owner, enum label_kind kind, const char *label,
		 uint32_t *out_owner);

/* A thread enters or leaves a label. One that is entered again inside itself counts once. 0 or -ENOMEM. */
int owners_push(struct owners *owners, uint32_t tid, const char *label);
void owners_pop(struct owners *owners, uint32_t tid, const char *label);

/*
 * A thread enters or leaves a class, which takes the place of ops@aten, or the forward pass of a module (LABEL_LAYER_PUSH and _POP).
 * Leaving it leaves what was entered inside it. 0 or -ENOMEM.
 */
int owners_enter(struct owners *owners, uint32_t tid, enum label_kind kind, const char *text);
void owners_leave(struct owners *owners, uint32_t tid, enum label_kind kind, const char *text);

/* True if an owner has a label of the user's. */
bool owners_is_labelled(const struct owners *owners, uint32_t owner);

/* True if a thread has labels of the user's open. */
bool owners_has_labels(const struct owners *owners, uint32_t tid);

/* A new thread has this number: what the old one left open does not count. */
void owners_forget(struct owners *owners, uint32_t tid);

/* Text of an owner; "" for unknown. Borrowed until the next call that adds one. */
const char *owners_text(const struct owners *owners, uint32_t owner);

/* The layer of an owner; "" if it has none. Borrowed as owners_text(). */
const char *owners_layer(const struct owners *owners, uint32_t owner);

/* The owner with the same text and no layer. */
uint32_t owners_plain(const struct owners *owners, uint32_t owner);

/* Class of an owner. Labels of the user's own do not make one, whatever they say. */
enum owner_class owners_class(const struct owners *owners, uint32_t owner);

/* What owners of a class start with, without their pool: "model@weight". */
const char *owners_class_text(enum owner_class kind);

/* Text of one part. */
const char *owners_part(const struct owners *owners, uint32_t text);

#endif
