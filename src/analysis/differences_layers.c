/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers of a model in a comparison. A layer is the tensor of a module, with its gradient and its states, or what a module has made
 * (replay/owners.h); the same path in both runs is the same layer. Bytes are those of the moment at which places are compared.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/spots.h"
#include "base/array.h"
#include "base/hash.h"
#include "base/shown.h"
#include "findings/say.h"

/* States of this size or less are counters of an optimizer. */
#define COUNTER_BYTES 16

struct layers {
	const struct compare *compare;
	struct differences *out;
	struct differ differ; /* has a line for each layer */
	size_t room;
};

/* ---- finding ---- */

static size_t keep_part(struct differences *out, const char *text, size_t bytes)
{
	size_t at = out->texts.length;

	strbuf_add(&out->texts, text, bytes);
	strbuf_add(&out->texts, "", 1);
	return at;
}

/* Takes the next part of a layer's text. */
static size_t next_part(struct differences *out, const char **at)
{
	size_t bytes = strcspn(*at, "@"), part = keep_part(out, *at, bytes);

	*at += bytes + ((*at)[bytes] == '@');
	return part;
}

/* Bytes of the text that tell layers apart: its further names may change. */
static size_t name_bytes(const char *text)
{
	size_t at = 0;
	int part;

	for (part = 0; part < 3 && text[at] != '\0'; part++)
		at += strcspn(text + at, "@") +
		      (part < 2 && text[at + strcspn(text + at, "@")] == '@');
	return at;
}

static int layer_of(struct layers *layers, int side, const char *text, uint32_t pool,
		    struct difference_layer **out)
{
	struct differences *differences = layers->out;
	uint64_t hash = hash_add(HASH_BEGIN, text, name_bytes(text));
	uint32_t at;
	int r = differ_add(&layers->differ, side, pool, (struct differ_keys){hash, hash}, &at);

	if (r < 0 || ARRAY_RESERVE(differences->layers, layers->room, (size_t)at + 1) < 0)
		return -ENOMEM;
	*out = &differences->layers[at];
	if (at == differences->layer_count) {
		differences->layer_count++;
		**out = (struct difference_layer){.pool = pool};
		(*out)->model = next_part(differences, &text);
		(*out)->module = next_part(differences, &text);
		(*out)->tensor = next_part(differences, &text);
		(*out)->also = next_part(differences, &text);
		(*out)->optimizer = keep_part(differences, "", 0);
	}
	(*out)->there[side] = true;
	return strbuf_failed(&differences->texts) ? -ENOMEM : 0;
}

/* The class whose method step() made a state: "Adam". */
static void find_optimizer(struct layers *layers, int side, const struct ledger_place *place,
			   struct difference_layer *layer)
{
	static const char step[] = ".step";
	const struct stack_line *lines;
	uint32_t i, count = 0;

	if (place->stack == 0 || difference_text(layers->out, layer->optimizer)[0] != '\0')
		return;
	lines = replay_stack_lines(layers->compare->sides[side].replay, place->stack, &count);
	for (i = 0; i < count; i++) {
		const char *function = lines[i].function;
		size_t bytes = function == NULL ? 0 : strlen(function);

		if (bytes <= strlen(step) || strcmp(function + bytes - strlen(step), step) != 0 ||
		    strcspn(function, ".<") != bytes - strlen(step))
			continue;
		layer->optimizer = keep_part(layers->out, function, bytes - strlen(step));
		return;
	}
}

static int add_place(struct layers *layers, const struct difference_place *place)
{
	const struct compare *compare = layers->compare;
	uint64_t states[2] = {0, 0};
	struct difference_layer *layer = NULL;
	int side, r = 0;

	for (side = 0; side < 2 && r == 0; side++) {
		const struct ledger_place *at =
			place->place[side] == DIFFERENCE_NONE
				? NULL
				: &compare->sides[side].ledger.places[place->place[side]];
		const char *text = at == NULL ? "" : differences_layer(compare, side, at);
		enum owner_class class;

		if (text[0] == '\0' || place->at_peak[side] == 0)
			continue;
		r = layer_of(layers, side, text, place->pool, &layer);
		if (r < 0)
			break;
		class = replay_owner_class(compare->sides[side].replay, at->owner);
		layer->bytes[side] += place->at_peak[side];
		layer->classes[class][side] += place->at_peak[side];
		if (class != CLASS_optimizer_state)
			continue;
		if (place->at_peak[side] > COUNTER_BYTES * place->held[side])
			states[side] = (uint64_t)place->held[side];
		find_optimizer(layers, side, at, layer);
	}
	if (layer != NULL)
		layer->states += states[0] > states[1] ? states[0] : states[1];
	return r;
}

static int by_bytes(const void *a, const void *b)
{
	const struct difference_layer *x = a, *y = b;
	int order = differ_order(x->bytes, y->bytes);

	/* Texts are kept in the order in which layers were met. */
	return order != 0 ? order : x->model < y->model ? -1 : x->model > y->model;
}

int differences_find_layers(const struct compare *compare, struct differences *out)
{
	struct layers layers = {.compare = compare, .out = out};
	size_t i, kept = 0;
	int r = 0;

	for (i = 0; i < out->place_count && r == 0; i++)
		r = add_place(&layers, &out->places[i]);
	for (i = 0; i < out->layer_count; i++) {
		struct difference_layer *layer = &out->layers[i];
		size_t class;
		bool differs = false;

		out->models |= strcmp(difference_text(out, layer->model),
				      difference_text(out, out->layers[0].model)) != 0;
		for (class = 0; class < OWNER_CLASSES; class ++)
			differs |= layer->classes[class][0] != layer->classes[class][1];
		if (differs)
			out->layers[kept++] = *layer;
	}
	out->layer_count = kept;
	if (kept > 0)
		qsort(out->layers, kept, sizeof(*out->layers), by_bytes);
	differ_fini(&layers.differ);
	return r;
}

/* ---- words ---- */

/* "layers.1.up.weight": appends what a layer is called. */
static void difference_layer_name(const struct differences *differences,
				  const struct difference_layer *layer, struct strbuf *out)
{
	const char *model = difference_text(differences, layer->model);
	const char *module = difference_text(differences, layer->module);
	const char *tensor = difference_text(differences, layer->tensor);

	/* A path that starts with a number says little. */
	if (differences->models || (module[0] == '\0' && tensor[0] == '\0') ||
	    (module[0] >= '0' && module[0] <= '9')) {
		strbuf_add_shown(out, model, strlen(model));
		if (module[0] != '\0' || tensor[0] != '\0')
			strbuf_add_char(out, '.');
	}
	strbuf_add_shown(out, module, strlen(module));
	if (module[0] != '\0' && tensor[0] != '\0')
		strbuf_add_char(out, '.');
	strbuf_add_shown(out, tensor, strlen(tensor));
}

/* What a tensor is itself; the other classes are of its gradient and states. */
static enum owner_class own_class(const struct difference_layer *layer)
{
	static const enum owner_class order[] = {CLASS_weight, CLASS_buffer, CLASS_kv_cache,
						 CLASS_attribute};
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(order); i++) {
		if (layer->classes[order[i]][0] != 0 || layer->classes[order[i]][1] != 0)
			return order[i];
	}
	return CLASS_none;
}

/* "two Adam states" */
static void add_states(const struct differences *differences, const struct difference_layer *layer,
		       struct strbuf *out)
{
	static const char *const numbers[] = {"", "", "two ", "three ", "four "};
	const char *optimizer = difference_text(differences, layer->optimizer);

	if (layer->states < MSCOPE_COUNT(numbers))
		strbuf_add_str(out, numbers[layer->states]);
	else
		strbuf_addf(out, "%llu ", (unsigned long long)layer->states);
	strbuf_add_shown(out, optimizer[0] == '\0' ? "optimizer" : optimizer,
			 optimizer[0] == '\0' ? strlen("optimizer") : strlen(optimizer));
	strbuf_add_str(out, layer->states > 1 ? " states" : " state");
}

static void add_class(const struct differences *differences, const struct difference_layer *layer,
		      enum owner_class class, struct strbuf *out)
{
	bool tensor = difference_text(differences, layer->tensor)[0] != '\0';

	if (class == CLASS_optimizer_state && tensor)
		add_states(differences, layer, out);
	else if (class == CLASS_gradient && tensor)
		strbuf_add_str(out, "gradient");
	else
		strbuf_add_str(out, say_class(class) == NULL ? "other memory" : say_class(class));
}

static void add_change(const int64_t both[2], struct strbuf *out)
{
	int64_t change = both[1] - both[0];

	strbuf_add_char(out, change < 0 ? '-' : '+');
	strbuf_add_size(out, (uint64_t)(change < 0 ? -change : change));
}

/* ", with its gradient and two Adam states +4.8 MiB" */
static void add_companions(const struct differences *differences,
			   const struct difference_layer *layer, enum owner_class own,
			   struct strbuf *out)
{
	size_t class, count = 0, said = 0;

	for (class = 0; class < OWNER_CLASSES; class ++)
		count += class != own &&
			 (layer->classes[class][0] != 0 || layer->classes[class][1] != 0);
	for (class = 0; class < OWNER_CLASSES; class ++) {
		if (class == own ||
		    (layer->classes[class][0] == 0 && layer->classes[class][1] == 0))
			continue;
		strbuf_add_str(out, said == 0 ? ", with its " : said + 1 == count ? " and " : ", ");
		add_class(differences, layer, (enum owner_class) class, out);
		said++;
	}
	if (said == 0)
		return;
	strbuf_add_char(out, ' ');
	add_change(layer->bytes, out);
}

void difference_layer_text(const struct differences *differences,
			   const struct difference_layer *layer, struct strbuf *out)
{
	const char *also = difference_text(differences, layer->also);
	enum owner_class own = own_class(layer);
	size_t class, said = 0;

	difference_layer_name(differences, layer, out);
	if (also[0] != '\0') {
		strbuf_add_str(out, " (also ");
		strbuf_add_shown(out, also, strlen(also));
		strbuf_add_char(out, ')');
	}
	if (difference_text(differences, layer->tensor)[0] != '\0' && own != CLASS_none &&
	    layer->classes[own][0] != layer->classes[own][1]) {
		strbuf_add_char(out, ' ');
		say_change(out, (uint64_t)layer->classes[own][0], (uint64_t)layer->classes[own][1]);
		add_companions(differences, layer, own, out);
		return;
	}
	for (class = 0; class < OWNER_CLASSES; class ++) {
		const int64_t *both = layer->classes[class];

		if (both[0] == both[1])
			continue;
		strbuf_add_str(out, said++ == 0 ? ": " : ", ");
		add_class(differences, layer, (enum owner_class) class, out);
		strbuf_add_char(out, ' ');
		say_change(out, (uint64_t)both[0], (uint64_t)both[1]);
	}
}
