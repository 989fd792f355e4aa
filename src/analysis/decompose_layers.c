/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each layer of a model holds: the shares of decompose.c, grouped by the layer of their owner (replay/owners.h). An owner has at most
 * one layer, and what has none is an entry of its own, so the sum over all entries of a pool is what decompose says of each class.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/decompose_state.h"
#include "base/shown.h"

/* What a share holds, with the parts of its layer: `text` is "Model@path@tensor@further names". */
struct piece {
	const char *text;
	size_t model_bytes, module_bytes, tensor_bytes; /* of `text`, up to the end of each part */
	uint32_t usage;
	enum owner_class class;
	uint64_t peak_bytes, end_bytes;
};

/* A module: pieces[first] to pieces[first + count - 1]. */
struct layer_module {
	size_t first, count;
	uint64_t peak_bytes;
};

/* ---- what shares held ---- */

/* ---- grouping ---- */

/* End of the part of a text that begins at `at`. */
static size_t part_end(const char *text, size_t at)
{
	return at + strcspn(text + at, "@");
}

static struct piece piece_of(const char *layer)
{
	struct piece piece = {.text = layer};

	piece.model_bytes = piece.module_bytes = part_end(layer, 0);
	if (layer[piece.module_bytes] == '@')
		piece.module_bytes = part_end(layer, piece.module_bytes + 1);
	piece.tensor_bytes = piece.module_bytes;
	if (layer[piece.tensor_bytes] == '@')
		piece.tensor_bytes = part_end(layer, piece.tensor_bytes + 1);
	return piece;
}

static int compare_texts(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
	int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);

	return order != 0 ? order : a_bytes < b_bytes ? -1 : a_bytes > b_bytes;
}

static int compare_modules(const struct piece *a, const struct piece *b)
{
	if (a->usage != b->usage)
		return a->usage < b->usage ? -1 : 1;
	return compare_texts(a->text, a->module_bytes, b->text, b->module_bytes);
}

/* By module and tensor; what a module has made comes before its tensors. */
static int by_layer(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;
	int order = compare_modules(x, y);

	if (order == 0)
		order = compare_texts(x->text, strlen(x->text), y->text, strlen(y->text));
	return order != 0 ? order : x->class < y->class ? -1 : x->class > y->class;
}

/* By pool; largest first; what is of no layer last. `pieces` of qsort_r(). */
static int by_bytes(const void *a, const void *b, void *pieces)
{
	const struct layer_module *x = a, *y = b;
	const struct piece *p = (struct piece *)pieces + x->first;
	const struct piece *q = (struct piece *)pieces + y->first;

	if (p->usage != q->usage)
		return p->usage < q->usage ? -1 : 1;
	if ((p->text[0] == '\0') != (q->text[0] == '\0'))
		return p->text[0] == '\0' ? 1 : -1;
	if (x->peak_bytes != y->peak_bytes)
		return x->peak_bytes > y->peak_bytes ? -1 : 1;
	return compare_modules(p, q);
}

/* ---- findings ---- */

_Static_assert(OWNER_CLASSES == 12, "FINDING_CLASSES has a field for each class");

/* Adds the bytes of a piece to the field of its class, of a layer or of a tensor. */
#define ADD_CLASS(to, piece)                                                                       \
	do {                                                                                       \
		uint64_t *field = &(to)->other;                                                    \
                                                                                                   \
		switch ((piece)->class) {                                                          \
			CLASS_FIELDS(to)                                                           \
		default:                                                                           \
			break;                                                                     \
		}                                                                                  \
		*field += (piece)->peak_bytes;                                                     \
		(to)->bytes += (piece)->peak_bytes;                                                \
		(to)->end_bytes += (piece)->end_bytes;                                             \
	} while (0)
#define CLASS_FIELD(to, name)                                                                      \
	case CLASS_##name:                                                                         \
		field = &(to)->name;                                                               \
		break;
#define CLASS_FIELDS(to)                                                                           \
	CLASS_FIELD(to, aten)                                                                      \
	CLASS_FIELD(to, temporary)                                                                 \
	CLASS_FIELD(to, activation)                                                                \
	CLASS_FIELD(to, input)                                                                     \
	CLASS_FIELD(to, state_dict)                                                                \
	CLASS_FIELD(to, gradient)                                                                  \
	CLASS_FIELD(to, optimizer_state)                                                           \
	CLASS_FIELD(to, attribute)                                                                 \
	CLASS_FIELD(to, buffer)                                                                    \
	CLASS_FIELD(to, kv_cache)                                                                  \
	CLASS_FIELD(to, weight)

static const char *part_text(struct findings *out, const struct piece *piece, size_t from,
			     size_t to)
{
	struct strbuf text = {0};
	const char *copy;

	if (from < to)
		strbuf_add(&text, piece->text + from, to - from);
	copy = findings_text(out, strbuf_str(&text));
	strbuf_fini(&text);
	return copy;
}

static int compare_tensors(const void *a, const void *b)
{
	const struct finding_layer_tensor *x = a, *y = b;

	return ORDER_DOWN(x->bytes, y->bytes) ?: strcmp(x->name, y->name);
}

static int add_module(const struct piece *pieces, const struct layer_module *module,
		      const struct usage *usage, struct findings *out)
{
	struct finding_layer *layer = FINDINGS_ADD(out, layer);
	size_t i, first = FINDINGS_COUNT(out, layer_tensor);

	if (layer == NULL)
		return -ENOMEM;
	pieces += module->first;
	layer->device = usage->device;
	layer->pool = usage->pool;
	layer->model = part_text(out, pieces, 0, pieces->model_bytes);
	layer->layer = part_text(out, pieces, pieces->model_bytes + 1, pieces->module_bytes);
	for (i = 0; i < module->count; i++) {
		const struct piece *piece = &pieces[i];
		struct finding_layer_tensor *tensor = NULL;

		ADD_CLASS(layer, piece);
		if (piece->text[piece->module_bytes] == '\0')
			continue;
		if (i > 0 && strcmp(piece->text, piece[-1].text) == 0) {
			tensor =
				&FINDINGS(out, layer_tensor)[FINDINGS_COUNT(out, layer_tensor) - 1];
		} else {
			tensor = FINDINGS_ADD(out, layer_tensor);
			if (tensor == NULL)
				return -ENOMEM;
			tensor->name =
				part_text(out, piece, piece->module_bytes + 1, piece->tensor_bytes);
			tensor->also =
				part_text(out, piece, piece->tensor_bytes + 1, strlen(piece->text));
		}
		ADD_CLASS(tensor, piece);
	}
	layer->tensors.first = first;
	layer->tensors.count = FINDINGS_COUNT(out, layer_tensor) - first;
	if (layer->tensors.count > 1)
		qsort(FINDINGS(out, layer_tensor) + first, layer->tensors.count,
		      sizeof(struct finding_layer_tensor), compare_tensors);
	return 0;
}

/* Puts pieces together to modules, in the order of the document. NULL: no memory. */
static struct layer_module *modules_of(struct piece *pieces, size_t count, size_t *out_count)
{
	struct layer_module *modules = calloc(count + 1, sizeof(*modules));
	size_t i, found = 0;

	if (modules == NULL)
		return NULL;
	if (count > 0)
		qsort(pieces, count, sizeof(*pieces), by_layer);
	for (i = 0; i < count; i++) {
		if (i == 0 || compare_modules(&pieces[i - 1], &pieces[i]) != 0)
			modules[found++].first = i;
		modules[found - 1].count++;
		modules[found - 1].peak_bytes += pieces[i].peak_bytes;
	}
	if (found > 0)
		qsort_r(modules, found, sizeof(*modules), by_bytes, pieces);
	*out_count = found;
	return modules;
}

/* Pools of which something is of a layer; NULL: no memory. */
static bool *pools_with_layers(const struct decompose *d, const struct replay *replay)
{
	size_t count, i;
	bool *with;

	(void)replay_usages(replay, &count);
	with = calloc(count + 1, sizeof(*with));
	for (i = 0; with != NULL && i < d->share_count; i++)
		with[d->shares[i].usage] |=
			replay_owner_layer(replay, d->shares[i].owner)[0] != '\0';
	return with;
}

int layers_judge(const struct decompose *d, struct replay *replay, struct findings *out)
{
	const struct instant *at_peak = &d->instants[INSTANT_PEAK];
	struct piece *pieces = calloc(d->share_count + 1, sizeof(*pieces));
	bool *with = pools_with_layers(d, replay);
	struct layer_module *modules = NULL;
	size_t i, count = 0, module_count = 0, usages;
	int r = pieces == NULL || with == NULL ? -ENOMEM : 0;

	for (i = 0; r == 0 && i < d->share_count; i++) {
		const struct share *share = &d->shares[i];
		uint64_t peak = instant_share(at_peak, i);

		if (!with[share->usage] || (peak == 0 && share->end_bytes == 0))
			continue;
		pieces[count] = piece_of(replay_owner_layer(replay, share->owner));
		pieces[count].usage = share->usage;
		pieces[count].class = replay_owner_class(replay, share->owner);
		pieces[count].peak_bytes = peak;
		pieces[count++].end_bytes = share->end_bytes;
	}
	if (r == 0) {
		modules = modules_of(pieces, count, &module_count);
		r = modules == NULL ? -ENOMEM : 0;
	}
	for (i = 0; r == 0 && i < module_count; i++)
		r = add_module(pieces, &modules[i],
			       &replay_usages(replay, &usages)[pieces[modules[i].first].usage],
			       out);
	free(modules);
	free(with);
	free(pieces);
	return r;
}

/* ---- text ---- */

static void add_size(struct strbuf *out, uint64_t bytes, int width)
{
	struct strbuf size = {0};

	if (bytes > 0)
		strbuf_add_size(&size, bytes);
	strbuf_addf(out, " %*s", width, bytes > 0 ? strbuf_str(&size) : "-");
	strbuf_fini(&size);
}

static void add_row(struct strbuf *out, const struct finding_layer *layer)
{
	add_size(out, layer->bytes, 11);
	add_size(out, layer->weight, 10);
	add_size(out, layer->gradient, 10);
	add_size(out, layer->optimizer_state, 10);
	add_size(out, layer->activation, 10);
	add_size(out,
		 layer->bytes - layer->weight - layer->gradient - layer->optimizer_state -
			 layer->activation,
		 10);
}

/* " (weight is head.weight too)" */
static void add_ties(struct strbuf *out, const struct findings *found,
		     const struct finding_layer *layer)
{
	size_t i;

	for (i = 0; i < layer->tensors.count; i++) {
		const struct finding_layer_tensor *tensor =
			&FINDINGS(found, layer_tensor)[layer->tensors.first + i];

		if (tensor->also[0] == '\0')
			continue;
		strbuf_add_str(out, " (");
		strbuf_add_shown(out, tensor->name, strlen(tensor->name));
		strbuf_add_str(out, " is ");
		strbuf_add_shown(out, tensor->also, strlen(tensor->also));
		strbuf_add_str(out, " too)");
	}
}

static void add_layer_name(struct strbuf *out, const struct finding_layer *layer, bool models)
{
	if (layer->model[0] == '\0') {
		strbuf_add_str(out, "of no layer");
		return;
	}
	if (models || layer->layer[0] == '\0')
		strbuf_add_shown(out, layer->model, strlen(layer->model));
	if (models && layer->layer[0] != '\0')
		strbuf_add_str(out, ": ");
	strbuf_add_shown(out, layer->layer, strlen(layer->layer));
}

static bool same_pool(const struct finding_layer *a, const struct finding_layer *b)
{
	return a->device == b->device && a->pool == b->pool;
}

static void add_table(const struct analysis_view *view, const struct finding_layer *layers,
		      size_t count, struct strbuf *out)
{
	struct finding_layer rest = {0};
	bool models = false;
	size_t i, hidden = 0;

	for (i = 1; i < count; i++)
		models |=
			layers[i].model[0] != '\0' && strcmp(layers[i].model, layers[0].model) != 0;
	strbuf_add_str(out, "Layers in ");
	pool_words(view->found, layers->pool, layers->device, out);
	strbuf_add_str(out, ", at its peak\n");
	strbuf_addf(out, " %11s %10s %10s %10s %10s %10s  layer\n", "total", "weight", "gradient",
		    "optimizer", "activation", "other");
	for (i = 0; i < count; i++) {
		if (i >= view->lines) {
			hidden++;
			rest.bytes += layers[i].bytes;
			rest.weight += layers[i].weight;
			rest.gradient += layers[i].gradient;
			rest.optimizer_state += layers[i].optimizer_state;
			rest.activation += layers[i].activation;
			continue;
		}
		add_row(out, &layers[i]);
		strbuf_add_str(out, "  ");
		add_layer_name(out, &layers[i], models);
		add_ties(out, view->found, &layers[i]);
		strbuf_add_char(out, '\n');
	}
	if (hidden > 0) {
		add_row(out, &rest);
		strbuf_addf(out, "  %zu further %s; report.txt has all of them\n", hidden,
			    hidden == 1 ? "layer" : "layers");
	}
}

void layers_text(const struct analysis_view *view, struct strbuf *out)
{
	const struct finding_layer *layers = FINDINGS(view->found, layer);
	size_t i, first = 0, count = FINDINGS_COUNT(view->found, layer);

	for (i = 1; i <= count; i++) {
		if (i < count && same_pool(&layers[i], &layers[first]))
			continue;
		add_table(view, layers + first, i - first, out);
		first = i;
	}
}
