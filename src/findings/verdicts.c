/* SPDX-License-Identifier: Apache-2.0 */
#include "findings/verdicts.h"

const char *process_verdict_word(enum process_verdict verdict)
{
	static const char *const words[VERDICTS] = {[VERDICT_NOTHING] = "none",
						    [VERDICT_FINE] = "ok",
						    [VERDICT_SUSPECT] = "suspect",
						    [VERDICT_LEAK] = "leak",
						    [VERDICT_OOM] = "oom"};

	return words[verdict];
}

const char *severity_word(enum severity severity)
{
	static const char *const words[SEVERITIES] = {[SEVERITY_NONE] = "none",
						      [SEVERITY_TITLE] = "none",
						      [SEVERITY_GOOD] = "good",
						      [SEVERITY_WARNING] = "warning",
						      [SEVERITY_ERROR] = "error"};

	return words[severity];
}

const char *verdict_word(enum growth_verdict verdict)
{
	static const char *const words[GROWTH_VERDICTS] = {
		[GROWTH_KEPT] = "kept", [GROWTH_SUSPECT] = "suspect", [GROWTH_LEAK] = "leak"};

	return words[verdict];
}

const char *trend_word(enum growth_verdict verdict)
{
	static const char *const words[GROWTH_VERDICTS] = {[GROWTH_KEPT] = "steady",
							   [GROWTH_SUSPECT] = "may be growing",
							   [GROWTH_LEAK] = "grows"};

	return words[verdict];
}

const char *reason_word(enum growth_reason reason)
{
	static const char *const words[GROWTH_REASONS] = {
		[GROWTH_FLAT] = "flat",		  [GROWTH_STOPPED] = "stopped",
		[GROWTH_IN_USE] = "in_use",	  [GROWTH_OWNED] = "owned",
		[GROWTH_BOUNDED] = "bounded",	  [GROWTH_STAYS] = "stays",
		[GROWTH_CLIMBS] = "climbs",	  [GROWTH_FORGETS] = "forgets",
		[GROWTH_ONCE] = "once",		  [GROWTH_SIZES] = "sizes",
		[GROWTH_TOO_SHORT] = "too_short", [GROWTH_FILLS] = "fills",
		[GROWTH_RENEWED] = "renewed"};

	return words[reason];
}

const char *unjudged_word(enum leaks_unjudged_reason reason)
{
	static const char *const words[LEAKS_UNJUDGED_END] = {
		[LEAKS_NO_STEP] = "no_step",
		[LEAKS_OUTSIDE_WINDOW] = "outside_window",
		[LEAKS_POOL_CACHE] = "pool_cache",
		[LEAKS_HANDLES] = "handles",
		[LEAKS_AFTER_LAST] = "after_last_step",
		[LEAKS_POOL_UNSEEN] = "pool_unseen",
		[LEAKS_POOL_FOREIGN] = "pool_foreign"};

	return words[reason];
}

const char *oom_cause_text(enum oom_cause cause)
{
	static const char *const texts[OOM_CAUSES] = {
		[OOM_CAUSE_FULL] = "full",
		[OOM_CAUSE_GROWTH] = "growth",
		[OOM_CAUSE_SPIKE] = "spike",
		[OOM_CAUSE_FRAGMENTATION] = "fragmentation",
		[OOM_CAUSE_OUTSIDE] = "outside the pool",
		[OOM_CAUSE_OTHERS] = "other processes",
		[OOM_CAUSE_WAITING] = "waiting for streams",
		[OOM_CAUSE_PRIVATE] = "private pools",
	};

	return cause < OOM_CAUSES ? texts[cause] : "unknown";
}
