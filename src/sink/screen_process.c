/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One process on a screen: what ran, verdicts, what was asked for, the peak, the device, notes, files, the lines of the original.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shown.h"
#include "findings/say.h"
#include "sink/screen_names.h"
#include "sink/screen_page.h"

#define HOLDER_COLUMNS 19u /* size and share before a call site */
#define HOLDERS_MOST   64u
#define OWNER_COLUMNS  40u
#define CLASSES	       16u
#define NOTES	       2u
#define NOTE_ROWS      3u

/* ---- what ran ---- */

void screen_who(const struct digest *digest, struct strbuf *out)
{
	screen_cut(digest->name == NULL ? "?" : digest->name, 40, out);
	strbuf_addf(out, " (pid %u", digest->pid);
	if (digest->rank >= 0)
		strbuf_addf(out, ", rank %lld", (long long)digest->rank);
	if (digest->dry != NULL)
		strbuf_addf(out, ", dry run on %s", digest->dry);
	strbuf_add_char(out, ')');
}

/* `whole`: with the name and the size of its memory. */
static void add_devices(const struct digest *digest, bool whole, struct strbuf *out)
{
	uint8_t vendor = digest->found == NULL ? 0 : digest->found->vendor;
	const struct digest_device *first = digest->devices;
	struct strbuf name = {0};
	size_t i, alike = 0;
	bool named;

	if (digest->pool_count == 0)
		return;
	strbuf_add_str(out, " on ");
	for (i = 0; i < digest->device_count; i++)
		alike += digest->devices[i].total_bytes == first->total_bytes &&
			 strcmp(digest->devices[i].name, first->name) == 0;
	named = digest->device_count > 0 && first->name[0] != '\0';
	say_device(&name, vendor, digest->device_count == 0 ? DEVICE_HOST : first->device);
	if (digest->device_count > 1)
		strbuf_addf(out, "%zu %.*ss", digest->device_count,
			    (int)strcspn(strbuf_str(&name), " "), strbuf_str(&name));
	else
		strbuf_add_str(out, strbuf_str(&name));
	if (whole && digest->device_count == 0 && digest->memory_bytes != 0) {
		strbuf_add_str(out, " (");
		strbuf_add_size(out, digest->memory_bytes);
		strbuf_add_char(out, ')');
	}
	if (whole && digest->device_count > 0 && alike == digest->device_count &&
	    first->total_bytes != 0) {
		strbuf_add_str(out, " (");
		if (named)
			strbuf_add_shown(out, first->name, strlen(first->name));
		strbuf_add_str(out, named ? ", " : "");
		strbuf_add_size(out, first->total_bytes);
		strbuf_add_str(out, digest->device_count > 1 ? " each)" : ")");
	}
	strbuf_fini(&name);
}

void page_head(struct page *page, const struct digest *digest, const char *before)
{
	struct part *part = page_add(page, PAGE_STAYS, NULL);
	struct strbuf *out = &part->text, whole = {0}, end = {0};

	part->severity = SEVERITY_TITLE;
	strbuf_add_str(out, before);
	screen_who(digest, out);
	strbuf_add_str(out, ": ");
	/* A number of events means nothing to a reader. */
	if (digest->steps > 0) {
		say_count(out, digest->steps, "step");
		strbuf_add_str(out, " in ");
	}
	say_seconds(out, digest->seconds);
	/* Where nothing was judged, that is said with its reason. */
	if (digest->steps == 0 && digest->found != NULL && digest->found->judgement.judged &&
	    digest->found->judgement.by_time)
		strbuf_add_str(&end, ", no steps marked");
	if (digest->deferred)
		strbuf_add_str(&end, ", deferred: collection was never started");
	if (digest->signal != NULL)
		strbuf_addf(&end, ", killed by %s", digest->signal);
	/* How it ended is worth more than what the device is. */
	add_devices(digest, true, &whole);
	if (screen_columns(strbuf_str(out)) + screen_columns(strbuf_str(&whole)) +
		    screen_columns(strbuf_str(&end)) <=
	    SCREEN_COLUMNS)
		strbuf_add_str(out, strbuf_str(&whole));
	else
		add_devices(digest, false, out);
	strbuf_add_str(out, strbuf_str(&end));
	strbuf_add_char(out, '\n');
	strbuf_fini(&whole);
	strbuf_fini(&end);
}

/* ---- the peak ---- */

/* The pool that people work in comes first; what a pool took from the driver is the pool's, and is not listed as somebody's. */
static int work_rank(const struct findings *found, const struct finding_peak *peak)
{
	switch (peak->pool) {
	case POOL_pta:
	case POOL_mindspore:
	case POOL_atb:
		return 0;
	case POOL_hal:
		FINDINGS_EACH (found, peak, other) {
			if (other->device == peak->device && other != peak &&
			    work_rank(found, other) == 0)
				return 3;
		}
		return 1;
	case POOL_host:
		return 1;
	default:
		return 2;
	}
}

const struct finding_peak *screen_peak(const struct findings *found)
{
	const struct finding_peak *best = NULL;
	size_t i;

	for (i = 0; found != NULL && i < FINDINGS_COUNT(found, peak); i++) {
		const struct finding_peak *peak = &FINDINGS(found, peak)[i];

		if (peak->bytes == 0 || peak->places.count == 0)
			continue;
		if (best == NULL || work_rank(found, peak) < work_rank(found, best))
			best = peak;
	}
	return best;
}

static void add_end(const struct digest *digest, const struct finding_peak *peak,
		    struct strbuf *out)
{
	size_t i;

	for (i = 0; i < digest->pool_count; i++) {
		const struct digest_pool *pool = &digest->pools[i];

		if (pool->pool != peak->pool || pool->device != peak->device)
			continue;
		/* Below a leak it reads as if there were none. */
		if (pool->end_bytes == 0 && digest->found->judgement.leaks > 0)
			continue;
		if (pool->end_bytes == 0) {
			strbuf_add_str(out, "; all freed at the end");
			continue;
		}
		strbuf_add_str(out, "; at the end ");
		strbuf_add_size(out, pool->end_bytes);
		if (pool->end_blocks > 0) {
			strbuf_add_str(out, " in ");
			say_count(out, pool->end_blocks, "block");
		}
	}
}

/* "step 40"; "after step 40" if no step was in progress any more. */
static void add_step(const struct digest *digest, uint64_t step, struct strbuf *out)
{
	bool after = digest->steps > 0 && step == digest->steps + 1;

	strbuf_addf(out, "%sstep %llu", after ? "after " : "",
		    (unsigned long long)(after ? digest->steps : step));
}

/* "325 MiB in use, 340 MiB reserved (step 40, 5.4 s)". */
static void add_peak_figures(const struct digest *digest, const struct finding_peak *peak,
			     struct strbuf *out)
{
	strbuf_add_size(out, peak->bytes);
	if (peak->pool != POOL_host && peak->reserved_bytes > peak->bytes) {
		strbuf_add_str(out, " in use, ");
		strbuf_add_size(out, peak->reserved_bytes);
		strbuf_add_str(out, " reserved");
	}
	strbuf_add_str(out, " (");
	if (peak->step > 0) {
		add_step(digest, peak->step, out);
		strbuf_add_str(out, ", ");
	} else {
		strbuf_add_str(out, "at ");
	}
	say_seconds(out, (double)peak->after_ns / 1e9);
	strbuf_add_char(out, ')');
}

/* `names` are those of the list; `stacks`: others of it have a call stack. */
static void add_holder(const struct finding_holder *holder, const char *const *names, size_t count,
		       bool stacks, struct strbuf *out)
{
	const char *class = say_class((uint32_t)holder->owner_class);
	struct strbuf size = {0}, owner = {0}, shown = {0};
	size_t room = SCREEN_COLUMNS - HOLDER_COLUMNS;

	if (class != NULL || holder->owner[0] != '\0')
		strbuf_addf(&shown, "  (%s)", class != NULL ? class : holder->owner);
	else if (stacks && holder->recorded && holder->stack == 0)
		strbuf_add_str(&shown, "  (no call stack)");
	screen_cut_middle(strbuf_str(&shown), OWNER_COLUMNS, &owner);
	strbuf_add_size(&size, holder->bytes);
	strbuf_addf(out, "%10s  %3.0f %%  ", strbuf_str(&size), holder->percent);
	screen_name(holder->site, holder->recorded && holder->stack != 0, names, count,
		    room - screen_columns(strbuf_str(&owner)), out);
	strbuf_addf(out, "%s\n", strbuf_str(&owner));
	strbuf_fini(&size);
	strbuf_fini(&owner);
	strbuf_fini(&shown);
}

/* Returns whether any has a call stack. */
static bool add_holders(const struct findings *found, const struct finding_peak *peak, size_t count,
			struct strbuf *out)
{
	const struct finding_holder *holders = FINDINGS(found, holder) + peak->places.first;
	const char *names[HOLDERS_MOST];
	bool stacks = false;
	size_t i;

	count = count < HOLDERS_MOST ? count : HOLDERS_MOST;
	for (i = 0; i < count; i++) {
		names[i] = holders[i].site;
		stacks |= holders[i].stack != 0;
	}
	for (i = 0; i < count; i++)
		add_holder(&holders[i], names, count, stacks, out);
	return stacks;
}

static void page_peak(struct page *page, const struct digest *digest, size_t holders)
{
	const struct findings *found = digest->found;
	const struct finding_peak *peak = screen_peak(found);
	struct part *part = page_add(page, WORTH_PEAK, "call sites at the peak");
	struct strbuf *out = &part->text, head = {0}, end = {0};
	bool stacks;

	if (peak == NULL)
		return;
	part->apart = true;
	part->severity = SEVERITY_TITLE;
	strbuf_add_str(&head, "PEAK of ");
	say_the_pool(&head, found->vendor, peak->pool);
	if (digest->device_count > 1) {
		strbuf_add_str(&head, " on ");
		say_device(&head, found->vendor, peak->device);
	}
	strbuf_add_str(&head, ": ");
	add_peak_figures(digest, peak, &head);
	add_end(digest, peak, &end);
	strbuf_add_str(out, strbuf_str(&head));
	if (screen_columns(strbuf_str(&head)) + screen_columns(strbuf_str(&end)) <= SCREEN_COLUMNS)
		strbuf_add_str(out, strbuf_str(&end));
	strbuf_add_char(out, '\n');
	/* One more than there is room for is shown instead of a line that counts it. */
	holders = peak->places.count == holders + 1 ? holders + 1 : holders;
	holders = peak->places.count < holders ? peak->places.count : holders;
	stacks = add_holders(found, peak, holders, out);
	if (peak->places.count > holders) {
		strbuf_add_str(out, "  ... ");
		say_count(out, peak_places(found, peak) - holders,
			  stacks ? "more call site" : "more line");
		strbuf_add_str(out, " in report.txt\n");
	}
	/* Where a verdict needs them, it has said so. */
	if (!stacks && found->judgement.leaks + found->judgement.suspects == 0)
		strbuf_add_str(out, SCREEN_NO_STACKS);
	strbuf_fini(&head);
	strbuf_fini(&end);
}

/* ---- what was asked for ---- */

struct class_sum {
	const char *name;
	uint64_t bytes;
};

static int by_bytes(const void *a, const void *b)
{
	const struct class_sum *x = a, *y = b;

	return ORDER_DOWN(x->bytes, y->bytes) ?: strcmp(x->name, y->name);
}

static void add_to_class(struct class_sum *sums, size_t *count, const char *name, uint64_t bytes)
{
	size_t i;

	for (i = 0; i < *count && strcmp(sums[i].name, name) != 0; i++)
		;
	/* What has no room counts as other. */
	if (i == CLASSES)
		i = 0;
	else if (i == *count)
		sums[(*count)++].name = name;
	sums[i].bytes += bytes;
}

/* Whether something of a model's layer was in a pool at its peak. */
static bool is_layer_of(const struct finding_layer *layer, const struct finding_peak *peak)
{
	return layer->device == peak->device && layer->pool == peak->pool &&
	       layer->model[0] != '\0' && layer->bytes > 0;
}

/* "layers.1.up", with its model where there are several, or where it is only a number. */
static void add_layer_name(const struct finding_layer *layer, bool models, struct strbuf *out)
{
	models = models || (layer->layer[0] >= '0' && layer->layer[0] <= '9');
	if (models || layer->layer[0] == '\0')
		strbuf_add_shown(out, layer->model, strlen(layer->model));
	if (models && layer->layer[0] != '\0')
		strbuf_add_char(out, '.');
	strbuf_add_shown(out, layer->layer, strlen(layer->layer));
}

/* "Largest of 12 layers: embed 4.4 MiB, layers.0.up 4.0 MiB, ..."; as many as a line has. */
static void add_layers(const struct findings *found, const struct finding_peak *peak,
		       struct strbuf *out)
{
	static const char rest[] = "; all in report.txt";
	const struct finding_layer *layers = FINDINGS(found, layer);
	size_t i, count = FINDINGS_COUNT(found, layer), all = 0, said = 0;
	struct strbuf line = {0}, one = {0};
	const char *model = NULL;
	bool models = false;

	for (i = 0; i < count; i++) {
		if (!is_layer_of(&layers[i], peak))
			continue;
		all++;
		models |= model != NULL && strcmp(model, layers[i].model) != 0;
		model = layers[i].model;
	}
	strbuf_addf(&line, all == 1 ? "Layer: " : "Largest of %zu layers: ", all);
	for (i = 0; i < count; i++) {
		if (!is_layer_of(&layers[i], peak))
			continue;
		strbuf_reset(&one);
		strbuf_add_str(&one, said > 0 ? ", " : "");
		add_layer_name(&layers[i], models, &one);
		strbuf_add_char(&one, ' ');
		strbuf_add_size(&one, layers[i].bytes);
		if (said > 0 && screen_columns(strbuf_str(&line)) +
						screen_columns(strbuf_str(&one)) + strlen(rest) >
					SCREEN_COLUMNS)
			break;
		strbuf_add_str(&line, strbuf_str(&one));
		said++;
	}
	if (said > 0) {
		screen_cut_middle(strbuf_str(&line), SCREEN_COLUMNS - strlen(rest), out);
		strbuf_addf(out, "%s\n", said < all ? rest : "");
	}
	strbuf_fini(&line);
	strbuf_fini(&one);
}

/* Without a label of the program's own. */
static bool is_plain_aten(const struct finding_holder *holder)
{
	const char *class = owners_class_text(CLASS_aten);
	size_t length = strlen(holder->owner), tail = strlen(class);

	return holder->owner_class == CLASS_aten && length >= tail &&
	       strcmp(holder->owner + length - tail, class) == 0;
}

static void page_classes(struct page *page, const struct digest *digest)
{
	const struct findings *found = digest->found;
	const struct finding_peak *peak = screen_peak(found);
	struct class_sum sums[CLASSES] = {{.name = "other"}};
	struct part *part = page_add(page, WORTH_ASKED, "memory by class");
	size_t i, count = 1;

	if (!digest->decomposed || peak == NULL)
		return;
	part->apart = true;
	part->severity = SEVERITY_TITLE;
	for (i = 0; i < peak->places.count; i++) {
		const struct finding_holder *holder =
			&FINDINGS(found, holder)[peak->places.first + i];
		const char *class = say_class((uint32_t)holder->owner_class);

		if (class == NULL)
			class = is_plain_aten(holder) ? "operators outside of models"
						      : holder->owner;
		add_to_class(sums, &count, class[0] == '\0' ? "other" : class, holder->bytes);
	}
	qsort(sums, count, sizeof(*sums), by_bytes);
	strbuf_add_str(&part->text, "Memory of ");
	say_device(&part->text, found->vendor, peak->device);
	strbuf_add_str(&part->text, " by class at the peak (");
	strbuf_add_size(&part->text, peak->bytes);
	if (peak->step > 0) {
		strbuf_add_str(&part->text, ", ");
		add_step(digest, peak->step, &part->text);
	}
	strbuf_add_str(&part->text, ")\n");
	for (i = 0; i < count; i++) {
		struct strbuf size = {0};

		if (sums[i].bytes == 0)
			continue;
		strbuf_add_size(&size, sums[i].bytes);
		strbuf_addf(&part->text, "%10s  %3.0f %%  %s\n", strbuf_str(&size),
			    100.0 * (double)sums[i].bytes / (double)peak->bytes, sums[i].name);
		strbuf_fini(&size);
	}
	add_layers(found, peak, &page_add(page, WORTH_LAYERS, "memory by layer")->text);
}

static void page_watched(struct page *page, const struct digest *digest)
{
	struct part *part =
		page_add(page, digest->overwritten ? PAGE_STAYS : WORTH_ASKED, "watched memory");

	part->apart = true;
	part->severity = digest->overwritten ? SEVERITY_ERROR : SEVERITY_NONE;
	screen_wrap(strbuf_str(&digest->watched), digest->overwritten ? 4 : 2, &part->text);
}

static void page_asked(struct page *page, const struct digest *digest)
{
	size_t i;

	page_classes(page, digest);
	for (i = 0; i < ANALYSES; i++) {
		struct part *part;

		if (digest->sections[i].length == 0)
			continue;
		part = page_add(page, WORTH_ASKED - 1, analysis_of((enum analysis_id)i)->section);
		part->apart = true;
		strbuf_add_str(&part->text, strbuf_str(&digest->sections[i]));
	}
	if (!digest->overwritten)
		page_watched(page, digest);
}

/* ---- pools and devices ---- */

static int by_number(const void *a, const void *b)
{
	const struct digest_pool *x = *(const struct digest_pool *const *)a,
				 *y = *(const struct digest_pool *const *)b;

	return ORDER_UP(x->device, y->device) ?: ORDER_UP(x->pool, y->pool);
}

/* Pools beside the one whose peak is shown; the largest, by number of device. */
static void page_pools(struct page *page, const struct digest *digest, size_t most)
{
	const struct finding_peak *peak = screen_peak(digest->found);
	uint8_t vendor = digest->found == NULL ? 0 : digest->found->vendor;
	struct part *part = page_add(page, WORTH_POOLS, "pools of each device");
	const struct digest_pool **pools = calloc(digest->pool_count + 1, sizeof(*pools));
	size_t i, count = 0, more = 0;

	for (i = 0; pools != NULL && i < digest->pool_count; i++) {
		const struct digest_pool *pool = &digest->pools[i];

		if (peak != NULL && peak->pool == pool->pool && peak->device == pool->device)
			continue;
		if (count < most)
			pools[count++] = pool;
		else
			more++;
	}
	if (count > 1)
		qsort(pools, count, sizeof(*pools), by_number);
	for (i = 0; i < count; i++) {
		struct strbuf device = {0};

		say_device(&device, vendor, pools[i]->device);
		strbuf_addf(&part->text, "%-7s  %-18s  peak ", strbuf_str(&device),
			    say_pool(vendor, pools[i]->pool));
		strbuf_fini(&device);
		strbuf_add_size(&part->text, pools[i]->peak_bytes);
		strbuf_add_str(&part->text, ", at the end ");
		strbuf_add_size(&part->text, pools[i]->end_bytes);
		strbuf_add_str(&part->text, " in ");
		say_count(&part->text, pools[i]->end_blocks, "block");
		strbuf_add_char(&part->text, '\n');
	}
	if (more > 0)
		strbuf_addf(&part->text, "... %zu more %s in report.txt\n", more,
			    more == 1 ? "pool" : "pools");
	free(pools);
}

/* ---- notes ---- */

/* Appends the next line of a text, broken at most to NOTE_ROWS rows; NULL at its end. */
static const char *add_note(const char *line, struct strbuf *out)
{
	size_t length = strcspn(line, "\n");
	struct strbuf one = {0};

	strbuf_add(&one, line, length);
	strbuf_add_char(&one, '\n');
	screen_wrap(strbuf_str(&one), NOTE_ROWS, out);
	strbuf_fini(&one);
	line += length + (line[length] == '\n');
	return *line == '\0' ? NULL : line;
}

static void add_unjudged(const struct digest *digest, struct strbuf *notes)
{
	const struct findings *found = digest->found;

	if (found == NULL || !found->judgement.judged ||
	    found->judgement.leaks + found->judgement.suspects == 0)
		return;
	FINDINGS_EACH (found, unjudged, unjudged) {
		if (unjudged->reason == LEAKS_POOL_CACHE || unjudged->reason == LEAKS_AFTER_LAST)
			continue;
		unjudged_sentence(found, unjudged, notes);
		strbuf_add_char(notes, '\n');
	}
}

/* Those that change what to believe, the gravest first. */
static void page_notes(struct page *page, const struct digest *digest)
{
	struct part *part = page_add(page, WORTH_NOTES, "notes");
	struct strbuf notes = {0};
	const char *line;
	size_t shown = 0;

	strbuf_add_str(&notes, strbuf_str(&digest->losses));
	add_unjudged(digest, &notes);
	if (digest->windowed)
		strbuf_add_str(&notes, "The end is the stop() of the last window.\n");
	if (digest->automatic && digest->marked > 0)
		strbuf_addf(&notes,
			    "Steps are those of the optimizer; the program marked %u, too late and "
			    "too few to count.\n",
			    digest->marked);
	else if (digest->automatic)
		strbuf_add_str(&notes, digest->snapshot
					       ? "Steps are rounds of the same call sites; the "
						 "snapshot marks none.\n"
					       : "Steps are those of the optimizer; the program "
						 "marks none.\n");
	part->severity = digest->losses.length > 0 ? SEVERITY_WARNING : SEVERITY_NONE;
	for (line = strbuf_str(&notes); line != NULL && *line != '\0' && shown < NOTES; shown++)
		line = add_note(line, &part->text);
	strbuf_fini(&notes);
}

static void add_lines(struct page *page, unsigned int worth, const char *name, unsigned int rows,
		      const struct strbuf *lines)
{
	screen_wrap(strbuf_str(lines), rows, &page_add(page, worth, name)->text);
}

void page_process(struct page *page, const struct screen *screen, const struct digest *digest,
		  const struct room *room, bool alone)
{
	struct part *part;

	if (digest->oom_asked || !screen->findings_only) {
		part = page_add(page, PAGE_STAYS, NULL);
		part->apart = true;
		part->severity = SEVERITY_ERROR;
		screen_wrap(strbuf_str(&digest->oom), 3, &part->text);
		add_lines(page, digest->oom_asked ? PAGE_STAYS : WORTH_OOM_HELD,
			  "memory in use then", 2, &digest->oom_held);
		if (digest->oom_count > 0)
			add_lines(page, WORTH_OOM_HELD, "what other settings would save", 2,
				  &digest->what_if);
	}
	/* Memory that was overwritten is what the user looks for. */
	if (digest->overwritten)
		page_watched(page, digest);
	page_verdicts(page, digest, room);
	page_asked(page, digest);
	if (!screen->findings_only) {
		/* Where memory ran out, what was held then has been said. */
		if (digest->oom_count == 0)
			page_peak(page, digest, room->holders);
		if (digest->oom_count == 0)
			add_lines(page, WORTH_ASKED, "what other settings would save", 2,
				  &digest->what_if);
		page_pools(page, digest, alone ? room->pools : 0);
		add_lines(page, WORTH_DEVICE, "memory of each GPU", 2, &digest->devices_held);
		page_notes(page, digest);
	}
}
