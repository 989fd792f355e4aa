/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of places in a comparison: as the findings of a run have them (findings/site_names.h), with the owner of their blocks. A place
 * of both runs has its name in the second.
 */
#include <errno.h>
#include <string.h>

#include "analysis/spots.h"
#include "findings/site.h"
#include "findings/site_names.h"

const char *differences_owner(const struct compare *compare, int side,
			      const struct ledger_place *place)
{
	const struct replay *replay = compare->sides[side].replay;

	if (replay == NULL)
		return "";
	return compare->sides[0].classes && compare->sides[1].classes
		       ? replay_owner_text(replay, place->owner)
		       : replay_owner_shown(replay, place->owner);
}

const char *differences_layer(const struct compare *compare, int side,
			      const struct ledger_place *place)
{
	const struct replay *replay = compare->sides[side].replay;

	return replay == NULL || !compare->sides[0].classes || !compare->sides[1].classes
		       ? ""
		       : replay_owner_layer(replay, place->owner);
}

const char *difference_text(const struct differences *differences, size_t at)
{
	return at < differences->texts.length ? differences->texts.data + at : "";
}

void difference_place_text(const struct differences *differences,
			   const struct difference_place *place, struct strbuf *out)
{
	const char *owner = difference_text(differences, place->owner);

	strbuf_add_str(out, difference_text(differences, place->name));
	if (owner[0] != '\0')
		strbuf_addf(out, "  (%s)", owner);
}

static size_t keep_text(struct differences *out, const char *text)
{
	size_t at = out->texts.length;

	strbuf_add(&out->texts, text, strlen(text) + 1);
	return at;
}

static int add_sites(const struct compare *compare, const struct spots *spots,
		     struct site_names names[2])
{
	int side, r = 0;
	size_t i;

	for (side = 0; side < 2 && r == 0; side++) {
		const struct compare_side *of = &compare->sides[side];

		for (i = 0; i < of->ledger.place_count && r == 0 && of->replay != NULL; i++) {
			if (spots->named[side][i])
				r = site_names_add(&names[side], of->replay,
						   of->ledger.places[i].stack);
		}
		if (r == 0 && of->replay != NULL)
			r = site_names_settle(&names[side], of->replay);
	}
	return r;
}

/* Which name a place has, and whether it is made of frames. */
static const char *name_of(const struct compare *compare, const struct site_names names[2],
			   const struct difference_place *place, struct strbuf *scratch,
			   bool *out_frames)
{
	int side = place->place[1] != DIFFERENCE_NONE;
	const struct compare_side *of = &compare->sides[side];
	const struct ledger_place *at = &of->ledger.places[place->place[side]];
	const char *name =
		of->replay == NULL ? NULL : site_name(&names[side], of->replay, at->stack);

	*out_frames = true;
	strbuf_reset(scratch);
	if (name != NULL)
		return name;
	if (of->replay != NULL && site_line(of->replay, at->stack, scratch))
		return strbuf_str(scratch);
	*out_frames = false;
	if (at->call != 0)
		return compare->names.data + at->call - 1;
	if (at->size_bytes == 0)
		return "blocks of unknown origin";
	strbuf_addf(scratch, "blocks of %llu bytes", (unsigned long long)at->size_bytes);
	return strbuf_str(scratch);
}

static uint32_t call_of(const struct compare *compare, const struct difference_place *place)
{
	int side = place->place[1] != DIFFERENCE_NONE;

	return compare->sides[side].ledger.places[place->place[side]].call;
}

static bool differs(const struct difference_place *place)
{
	return place->at_peak[0] != place->at_peak[1] || place->end[0] != place->end[1] ||
	       place->most[0] != place->most[1] || place->allocated[0] != place->allocated[1];
}

#define CALL_NONE UINT32_MAX /* no place of the line differs so far */

/* The operator of a line, if all that differs in it is of one. */
static void add_call(struct difference_place *line, uint32_t call)
{
	if (line->call == CALL_NONE)
		line->call = call;
	else if (line->call != call)
		line->call = 0;
}

static int name_place(const struct compare *compare, const struct site_names names[2],
		      struct differences *out, struct differ *differ, uint32_t at)
{
	struct difference_place *place = &out->places[at];
	int side = place->place[1] != DIFFERENCE_NONE;
	const struct ledger_place *of = &compare->sides[side].ledger.places[place->place[side]];
	struct strbuf scratch = {0}, shown = {0};
	int r;

	place->name = keep_text(out, name_of(compare, names, place, &scratch, &place->frames));
	place->owner = keep_text(out, differences_owner(compare, side, of));
	if (difference_text(out, place->owner)[0] != '\0')
		place->class = replay_owner_class(compare->sides[side].replay, of->owner);
	difference_place_text(out, place, &shown);
	r = strbuf_failed(&shown) || strbuf_failed(&out->texts) || strbuf_failed(&scratch)
		    ? -ENOMEM
		    : differ_join(differ, at, strbuf_str(&shown));
	place->call = place->frames ? CALL_NONE : 0;
	if (r == 0 && place->frames && differs(place))
		add_call(&out->places[differ_line(differ, at)], call_of(compare, place));
	strbuf_fini(&scratch);
	strbuf_fini(&shown);
	return r;
}

int differences_name(const struct compare *compare, struct differences *out,
		     const struct spots *spots, struct differ *differ)
{
	struct site_names names[2];
	size_t i;
	int side, r;

	memset(names, 0, sizeof(names));
	r = add_sites(compare, spots, names);
	for (i = 0; i < out->place_count && r == 0; i++) {
		if (differ_line(differ, (uint32_t)i) == i)
			r = name_place(compare, names, out, differ, (uint32_t)i);
	}
	for (i = 0; i < out->place_count; i++)
		out->places[i].call = out->places[i].call == CALL_NONE ? 0 : out->places[i].call;
	for (side = 0; side < 2; side++)
		site_names_fini(&names[side]);
	return r;
}
