/* SPDX-License-Identifier: Apache-2.0 */
/* How bad each finding is, and the verdict on a process: once, for every renderer. */
#include "findings/findings.h"

static void weigh_places(struct findings *found)
{
	size_t i;

	for (i = 0; i < FINDINGS_COUNT(found, place); i++) {
		struct finding_place *place = &FINDINGS(found, place)[i];

		place->severity = place->verdict == GROWTH_KEPT ? SEVERITY_NONE
				  : place->verdict == GROWTH_LEAK && !place->small
					  ? SEVERITY_ERROR
					  : SEVERITY_WARNING;
	}
}

static void weigh_host(struct findings *found)
{
	size_t i;

	for (i = 0; i < FINDINGS_COUNT(found, host_growth); i++)
		FINDINGS(found, host_growth)
	[i].severity = SEVERITY_WARNING;
	for (i = 0; i < FINDINGS_COUNT(found, host_kill); i++)
		FINDINGS(found, host_kill)
	[i].severity = SEVERITY_ERROR;
}

static bool any_pool_grows(const struct findings *found)
{
	size_t i;

	for (i = 0; i < FINDINGS_COUNT(found, trend); i++) {
		if (FINDINGS(found, trend)[i].trend != GROWTH_KEPT)
			return true;
	}
	return false;
}

static enum process_verdict of_leaks(const struct findings *found)
{
	const struct findings_judgement *judgement = &found->judgement;

	if (!judgement->asked)
		return VERDICT_NOTHING;
	return judgement->leaks > 0 ? VERDICT_LEAK
	       : judgement->suspects > 0 || (judgement->judged && any_pool_grows(found))
		       ? VERDICT_SUSPECT
	       : judgement->clean ? VERDICT_FINE
				  : VERDICT_NOTHING;
}

/* A limit of the host that ends the process is an end like any other out-of-memory. */
static enum process_verdict of_host(const struct findings *found)
{
	size_t i;

	for (i = 0; i < FINDINGS_COUNT(found, host_kill); i++) {
		if (FINDINGS(found, host_kill)[i].own)
			return VERDICT_OOM;
	}
	return FINDINGS_COUNT(found, host_growth) > 0 ? VERDICT_SUSPECT : VERDICT_NOTHING;
}

void findings_weigh(struct findings *found, bool allocated)
{
	enum process_verdict leaks = allocated ? of_leaks(found) : VERDICT_NOTHING;
	enum process_verdict host = of_host(found);
	size_t i;

	weigh_places(found);
	weigh_host(found);
	for (i = 0; i < FINDINGS_COUNT(found, oom); i++)
		FINDINGS(found, oom)
	[i].severity = SEVERITY_ERROR;
	for (i = 0; i < FINDINGS_COUNT(found, forecast); i++)
		FINDINGS(found, forecast)
	[i].severity = SEVERITY_WARNING;
	for (i = 0; i < FINDINGS_COUNT(found, waste); i++) {
		struct finding_waste *waste = &FINDINGS(found, waste)[i];

		waste->severity = waste->saved_bytes > 0 ? SEVERITY_WARNING : SEVERITY_NONE;
	}
	found->verdict = FINDINGS_COUNT(found, oom) > 0 ? VERDICT_OOM : leaks > host ? leaks : host;
}

double findings_growth(const struct findings *found)
{
	double growth = 0;
	size_t i;

	for (i = 0; found != NULL && i < FINDINGS_COUNT(found, place); i++) {
		if (FINDINGS(found, place)[i].verdict != GROWTH_KEPT)
			growth += FINDINGS(found, place)[i].bytes_per_step;
	}
	return growth;
}
