/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was found in one process, as data. Analyses add findings (struct analysis, judge()); screen, report.txt, `info`, JSON, the page
 * and `top` read them. findings.def lists the kinds.
 *
 *     struct findings found = {0}
 *     FINDINGS_ADD(&found, place)       a zeroed record at the end of its list; NULL and `failed` without memory
 *     findings_settle(&found, ...)      names call sites (site_names.h) and joins those that read the same
 *     FINDINGS(&found, place)           the list; FINDINGS_COUNT() says how many there are
 *     findings_fini(&found)
 *
 * A document owns its texts and outlives the replay. Lists of one finding (LIST) lie one after the other in the list of their kind.
 * Not thread-safe.
 */
#ifndef MSCOPE_FINDINGS_FINDINGS_H
#define MSCOPE_FINDINGS_FINDINGS_H

#include <stdbool.h>

#include "findings/site_names.h"
#include "findings/verdicts.h"

struct json;

/* A call stack in a document: index + 1 of its JSON text; 0: none. */
typedef uint32_t finding_frames;

/* Findings of another kind that belong to one: all[first] to all[first + count - 1] of that kind's list. */
struct finding_range {
	size_t first, count;
};

/* Of SOME: the list is absent, which differs from an empty one. */
#define RANGE_NONE ((struct finding_range){SIZE_MAX, 0})

typedef uint64_t finding_u64;
typedef uint64_t finding_more;
typedef uint64_t finding_known;
typedef uint64_t finding_address;
typedef int32_t finding_i32;
typedef bool finding_flag;
typedef double finding_tenths;
typedef double finding_parts;
typedef uint8_t finding_pool;
typedef uint8_t finding_some_pool;
typedef uint8_t finding_any_pool;
typedef enum device_when finding_moment;
typedef uint32_t finding_device;
typedef uint32_t finding_stack;
typedef uint8_t finding_vendor;
typedef uint16_t finding_misuse;
typedef const char *finding_text;
typedef enum growth_verdict finding_verdict;
typedef enum growth_verdict finding_trend;
typedef enum severity finding_severity;
typedef enum growth_reason finding_reason;
typedef enum leaks_unjudged_reason finding_why;
typedef enum oom_cause finding_cause;

/* Groups of steps of inefficient memory: one step each at first, then two steps, four, ... */
#define WASTE_GROUPS 16u

#define FIELD(type, name, meaning)	finding_##type name;
#define LIST(kind, name, most, meaning) struct finding_range name;
#define SOME(kind, name, meaning)	struct finding_range name;
#define ONE(kind, name, meaning)	struct finding_range name;
#define SENTENCE(key, says)
#define HIDDEN(type, name, meaning) finding_##type name;
#define FINDING(name, fields, meaning)                                                             \
	struct finding_##name {                                                                    \
		fields                                                                             \
	};
#include "findings/findings.def"
#undef FINDING

enum finding_kind {
#define FINDING(name, fields, meaning) FINDING_##name,
#include "findings/findings.def"
#undef FINDING
	FINDING_KINDS
};
#undef FIELD
#undef LIST
#undef SOME
#undef ONE
#undef SENTENCE
#undef HIDDEN

/* The list of one kind. */
struct finding_list {
	void *all;
	size_t count, room;
};

/* What was judged, for the whole process. */
struct findings_judgement {
	bool asked;	     /* leaks were looked for */
	bool judged;	     /* false: no call site was judged */
	bool by_time;	     /* "steps" are equal parts of the run */
	bool clean;	     /* all was judged, every call site is kept, every pool steady */
	double step_seconds; /* median length of a step or part; 0: unknown */
	uint32_t first_step; /* steps first_step to last_step were judged */
	uint32_t last_step;
	uint64_t leaks, suspects, kept; /* call sites, judged one by one */
	bool has_stacks;		/* of any that is not kept */
	const char *not_judged;		/* why no call site was, whole lines */
};

struct findings {
	struct finding_list lists[FINDING_KINDS];
	struct findings_judgement judgement;
	enum process_verdict verdict; /* on the process */
	uint8_t vendor;		 /* of its devices (base/vendors.h); VENDOR_CPU if it used none */
	struct site_names names; /* of its call sites; usable while the replay lives */
	char **texts;		 /* that it owns */
	size_t text_count, text_room;
	/* Requests that were refused at first, and then succeeded. */
	uint64_t ooms_recovered;
	bool unused_asked; /* inefficient memory was looked for */
	bool unused_seen;  /* and operators told which memory they use */
	bool failed;	   /* there was no memory for all of it */
};

void findings_fini(struct findings *found);

/* A copy that the document owns; "" without memory. */
const char *findings_text(struct findings *found, const char *text);

/* The call stack as a JSON array, without its name. */
finding_frames findings_frames(struct findings *found, struct replay *replay, uint32_t stack);

void *findings_add(struct findings *found, enum finding_kind kind);

/*
 * Once every analysis has added its findings: names call sites, joins those that people see as one line (settle.c), and takes the
 * call stacks of the first `frames` of each list. 0 or -ENOMEM.
 */
int findings_settle(struct findings *found, struct replay *replay, size_t frames);

/* Last of all: says how bad each finding is, and the verdict. `allocated`: any memory was. */
void findings_weigh(struct findings *found, bool allocated);

/* What leaks, or may leak, in a step: of processes with the same verdict the one with most comes first. */
double findings_growth(const struct findings *found);

/* The same, at the end of a list of another finding that is being made. */
void *findings_add_to(struct findings *found, enum finding_kind kind, struct finding_range *range);

#define FINDINGS_ADD(found, kind) ((struct finding_##kind *)findings_add((found), FINDING_##kind))
#define FINDINGS_ADD_TO(found, kind, range)                                                        \
	((struct finding_##kind *)findings_add_to((found), FINDING_##kind, (range)))

/* The list of a kind, and how many there are. */
#define FINDINGS(found, kind)	    ((struct finding_##kind *)(found)->lists[FINDING_##kind].all)
#define FINDINGS_COUNT(found, kind) ((found)->lists[FINDING_##kind].count)

/* Goes through the list of a kind, to which nothing is added meanwhile. Of an empty list the pointer is NULL. */
#define FINDINGS_EACH(found, kind, name)                                                           \
	for (const struct finding_##kind *                                                         \
		     name = FINDINGS(found, kind),                                                 \
		    *end_of_##name = name == NULL ? name : name + FINDINGS_COUNT(found, kind);     \
	     name != end_of_##name; name++)

/* Call sites that a line of a list stands for where the rest are counted. */
static inline uint64_t place_count(const struct finding_place *place)
{
	return place->rest ? place->call_sites : 1;
}

/* The same of all who held a peak. */
uint64_t peak_places(const struct findings *found, const struct finding_peak *peak);

/* All of one kind under a key, at most `most`; lists inside them at most `most`, too. */
void findings_json(const struct findings *found, enum finding_kind kind, const char *key,
		   size_t most, struct json *json);

/* One of them, as an object under a key. */
void finding_json(const struct findings *found, enum finding_kind kind, const void *finding,
		  const char *key, size_t most, struct json *json);

/* ---- sentences.c ---- */

/* The call site and what is known of it: "train.py:17  1.0 MiB per step ..."; no newline. */
void place_line(const struct findings *found, const struct finding_place *place,
		struct strbuf *out);

/* What is known of a call site, without its name: "1.0 MiB per step (0.9 to 1.1), 99 blocks, ..."; no newline. */
void place_sentence(const struct findings *found, const struct finding_place *place,
		    struct strbuf *out);

/* "list `history` (global of train.py), 40 items, newest from step 40; each holds ..."; no newline. */
void keeper_sentence(const struct findings *found, const struct finding_keeper *keeper,
		     struct strbuf *out);

/* "kept by: ..." alone. */
void keeper_line(const struct findings *found, const struct finding_place *place,
		 const char *indent, struct strbuf *out);

/* "kept by: ..." and "cure: ..." of a call site, whole lines that start with `indent`; nothing if it is not known. */
void keeper_lines(const struct findings *found, const struct finding_place *place,
		  const char *indent, struct strbuf *out);

/* "The PyTorch pool on GPU 0: +1.0 MiB per step, rose in 29 of 29 steps. ..."; no newline. */
void trend_sentence(const struct findings *found, const struct finding_trend *trend,
		    struct strbuf *out);

/* A forecast needs this many ended steps, and is left out if the device takes longer to fill. */
#define FORECAST_STEPS_MIN   10u
#define FORECAST_SECONDS_MAX (365.0 * 86400)
/* From here on the growth of a whole pool counts, too, if no call site of it leaks. */
#define FORECAST_TREND_STEPS 30u

/* Whether to show it. False in the first steps, where nothing is known to fill the device, and where that is years away. */
bool forecast_is_told(const struct findings *found, const struct finding_forecast *forecast);
/* Whether a call site leaks on the device: then its sentence has the steps, too. */
bool forecast_has_place(const struct findings *found, const struct finding_forecast *forecast);
/* "GPU 0 will be full" */
void forecast_title(const struct finding_forecast *forecast, struct strbuf *out);

/*
 * "GPU 0 will be full at step 1,900 to 2,050, in about 3 h: +41.0 MiB per step, most of it at train.py:88"; no newline. `at`: the call site
 * that grows most, with its share; NULL: unknown.
 */
void forecast_words(const struct finding_forecast *forecast, const char *at, double share,
		    struct strbuf *out);
/* "1,900 to 2,050": the steps in which the device may be full. */
void forecast_steps(const struct finding_forecast *forecast, struct strbuf *out);
/* As forecast_words(), with the call site of this document. */
void forecast_sentence(const struct findings *found, const struct finding_forecast *forecast,
		       struct strbuf *out);

/* "With expandable_segments:True the pool would hold 7.2 GiB here, and this request fits."; no newline. */
void what_if_sentence(const struct findings *found, const struct finding_what_if *what_if,
		      struct strbuf *out);
/* Each of a document with the line that sets it, whole lines. */
void what_if_lines(const struct findings *found, struct strbuf *out);

/* "RSS of 4 processes pt_data_worker (pids 11, 12, 13, 14) grows: +44.0 MiB per step, ..."; no newline. */
/* For the screen, without "grows": "RSS of 2 DataLoader workers +1.5 MiB per step, ...", and where to look; no newline. */
void host_growth_brief(const struct finding_host_growth *growth, struct strbuf *out);

/* How many processes that this one started rose by much, and the largest of them; NULL: none did. */
size_t host_risen(const struct findings *found, const struct finding_host_process **out_most);

/* The same in words, where nothing says that they grow without end; else nothing. No newline. */
void host_rise_brief(const struct findings *found, struct strbuf *out);

void host_container_sentence(const struct findings *found,
			     const struct finding_host_container *container, struct strbuf *out);
void host_growth_sentence(const struct findings *found, const struct finding_host_growth *growth,
			  struct strbuf *out);

/* "Killed: the container's limit of 8.0 GiB was reached ..."; no newline. */
void host_kill_sentence(const struct findings *found, const struct finding_host_kill *kill,
			struct strbuf *out);

/* What was found about memory of the host, with the processes if there are several, at most `lines` of them; whole lines. */
void hosts_text(const struct findings *found, uint32_t lines, struct strbuf *out);

/* "Not judged: 12 blocks, 1.5 MiB of the CUDA driver on GPU 0; ..."; no newline. */
void unjudged_sentence(const struct findings *found, const struct finding_unjudged *unjudged,
		       struct strbuf *out);

/* Why memory was not judged: "recording was off when they were allocated". */
const char *unjudged_why(const struct finding_unjudged *unjudged);

/* A call site of a screen, in a few words: "234 blocks, none freed", "grew in 4 of 4 steps"; not `whole`: "234 blocks". */
void place_brief(const struct findings *found, const struct finding_place *place, bool whole,
		 struct strbuf *out);

/* Growth for each step, or each second of a run without steps: "+1.9 MiB", and "step" or "second". */
void rate_words(const struct findings *found, double bytes_per_step, struct strbuf *out);
const char *rate_unit(const struct findings *found);

/* "grew in 4 of 99 steps", "grew 4 times in 2.1 s": parts of time are nothing that a reader knows. */
void rises_words(const struct findings *found, const char *verb, uint64_t rises, uint64_t steps,
		 struct strbuf *out);

/* A steady pool that grew until shortly before the end: "grew by 18.0 MiB up to step 19, and not in the last 3 steps". */
void late_stop_words(const struct findings *found, const struct finding_trend *trend,
		     struct strbuf *out);

/* So many steps, or parts of time: "3 steps", "0.3 s". */
void span_words(const struct findings *found, uint64_t steps, struct strbuf *out);

/* "full in about 40,600 steps (about 93 min)"; nothing, and false, beyond a year or if it is unknown. */
bool full_words(const struct findings *found, const struct finding_place *place,
		struct strbuf *out);

/* " in kernel_7", the kernels that were launched before a block; nothing on a GPU whose kernels are not recorded. */
void kernel_words(const struct finding_place *place, uint64_t kernel, struct strbuf *out);

/* What blocks of a size class are called where no stack was recorded, or where recording was off. */
void size_class_words(uint64_t size_class, bool recorded, struct strbuf *out);

/* "the PyTorch pool on GPU 0", "CPU tensors". */
void pool_words(const struct findings *found, uint8_t pool, uint32_t device, struct strbuf *out);

/* "step", or "part" of a run without steps. */
const char *step_word(const struct findings *found);

/* ---- leak_text.c ---- */

/* Lines of blocks that a call site has in a file. */
#define DIRECT_LINES 100u

/* Call sites and pools that were judged, whole lines; `lines` of each list, UINT32_MAX: all of a file. */
void leaks_text(const struct findings *found, struct replay *replay, uint32_t lines,
		uint32_t frames, struct strbuf *out);

/* "Direct Pytorch Caching memory pool leak of 0.500000 Mb(s) at 0x7f90c1ac0000 in kernel_12 at step 2."; no newline. */
void direct_line(const struct findings *found, const struct finding_place *place,
		 const struct finding_block *block, struct strbuf *out);

/* ---- oom_sentences.c ---- */

/* A line without a newline: what was refused, why, and what to try. */
void oom_headline(const struct finding_oom *oom, struct strbuf *out);
void oom_why(const struct findings *found, const struct finding_oom *oom, struct strbuf *out);
void oom_try(const struct findings *found, const struct finding_oom *oom, struct strbuf *out);

/* A line that says so where memory was free and a limit held; else nothing. */
void oom_limit(const struct finding_oom *oom, struct strbuf *out);

/* All of them, whole lines, for report.txt and info; `brief`: the first ones. */
void ooms_text(const struct findings *found, struct replay *replay, bool brief, uint32_t frames,
	       struct strbuf *out);

/* ---- device_sentences.c ---- */

/* Each GPU in a sentence, whole lines; with `all` its other moments, too. */
void devices_text(const struct findings *found, bool all, struct strbuf *out);

/* For the screen: "GPU 0 then: 1.1 of 140 GiB = PyTorch pool 340 MiB + cuBLAS 130 + context 539 + kernels 96 MiB" and a newline. */
void device_brief(const struct findings *found, const struct finding_device_memory *device,
		  struct strbuf *out);

/* ---- call_sentences.c ---- */

/* A table of at most `lines` names of operators and of kernels; as JSON a key "launches", an entry for each. */
void calls_text(const struct findings *found, uint32_t lines, struct strbuf *out);
void calls_json(const struct findings *found, uint32_t lines, struct json *json);

/* ---- owner_sentences.c ---- */

/* A table for each pool, whole lines: what its owners had, at most `lines` of them. */
void owned_text(const struct findings *found, uint32_t lines, struct strbuf *out);

/* ---- mark_sentences.c ---- */

/* Why a device was not judged; nothing if it was. No newline. */
void marks_fault(const struct findings *found, const struct finding_marked_device *device,
		 struct strbuf *out);

/* Leaks between marks, device by device, whole lines; as JSON a key "marks". At most `lines` blocks of a device. */
void marks_text(const struct findings *found, struct replay *replay, uint32_t lines,
		struct strbuf *out);
void marks_json(const struct findings *found, uint32_t lines, struct json *json);

/* ---- waste_sentences.c ---- */

/* A call site is told with the one that stands for it. */
void waste_join(struct finding_waste_site *to, const struct finding_waste_site *from);

/* Inefficient memory by pool, whole lines; `lines` UINT32_MAX: all of a file. */
void wastes_text(const struct findings *found, struct replay *replay, uint32_t lines,
		 uint32_t frames, struct strbuf *out);

/* ---- device_sentences.c ---- */

/* "Gap Analysis" of the original, a table for each pool. */
void fluctuations_text(const struct findings *found, struct strbuf *out);

#endif
