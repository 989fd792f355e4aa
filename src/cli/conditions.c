/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/conditions.h"

#include "base/whole.h"
#include "sink/project.h"

static void add_who(const struct digest *digest, struct strbuf *out)
{
	strbuf_addf(out, "%s (pid %u)", digest->name == NULL ? "?" : digest->name, digest->pid);
}

static void add_pool(const struct digest_pool *pool, struct strbuf *out)
{
	char device[16];

	project_device_text(pool->device, device);
	strbuf_addf(out, "%s on %s%s", pool_event_type(pool->pool),
		    pool->device >= DEVICE_HOST ? "" : "device ", device);
}

/* Driver memory of a device that a framework's pool is on: most of it is what that pool cached, which differs from run to run. */
static bool is_below_pool(const struct digest *digest, const struct digest_pool *pool)
{
	size_t i;

	for (i = 0; i < digest->pool_count && pool_is_driver(pool->pool); i++) {
		if (digest->pools[i].device == pool->device &&
		    !pool_is_driver(digest->pools[i].pool))
			return true;
	}
	return false;
}

static bool pool_meets(const struct option_conditions *conditions, const struct digest *digest,
		       const struct digest_pool *pool, struct strbuf *out)
{
	if (conditions->peak_bytes > 0 && pool->peak_bytes > conditions->peak_bytes) {
		strbuf_add_str(out, "the peak of ");
		add_pool(pool, out);
		strbuf_add_str(out, " was ");
		strbuf_add_size(out, pool->peak_bytes);
	} else if (conditions->requested_bytes > 0 &&
		   pool->requested_peak_bytes > conditions->requested_bytes &&
		   !is_below_pool(digest, pool)) {
		strbuf_add_size(out, pool->requested_peak_bytes);
		strbuf_add_str(out, " of ");
		add_pool(pool, out);
		strbuf_add_str(out, " were requested at once");
	} else if (conditions->growth_bytes > 0 && pool->judged &&
		   pool->growth_bytes > (double)conditions->growth_bytes) {
		add_pool(pool, out);
		strbuf_add_str(out, " grew by ");
		strbuf_add_size(out, whole(pool->growth_bytes));
		strbuf_add_str(out, " per step");
	} else {
		return false;
	}
	strbuf_add_str(out, " in ");
	add_who(digest, out);
	return true;
}

static bool place_meets(const struct option_conditions *conditions, const struct digest *digest,
			struct strbuf *out)
{
	const struct findings *found = digest->found;
	size_t i;

	for (i = 0;
	     found != NULL && i < FINDINGS_COUNT(found, place) && conditions->growth_bytes > 0;
	     i++) {
		const struct finding_place *place = &FINDINGS(found, place)[i];

		if (place->verdict != GROWTH_LEAK ||
		    place->bytes_per_step <= (double)conditions->growth_bytes)
			continue;
		strbuf_add_str(out, "a call site in ");
		add_who(digest, out);
		strbuf_add_str(out, " grew by ");
		strbuf_add_size(out, whole(place->bytes_per_step));
		strbuf_add_str(out, " per step");
		return true;
	}
	return false;
}

/* A leak that grows by what was said, or more. */
static bool leak_meets(const struct option_conditions *conditions, const struct digest *digest,
		       struct strbuf *out)
{
	const struct findings *found = digest->found;
	size_t i;

	for (i = 0; found != NULL && i < FINDINGS_COUNT(found, place) && conditions->leak_bytes > 0;
	     i++) {
		const struct finding_place *place = &FINDINGS(found, place)[i];

		if (place->verdict != GROWTH_LEAK ||
		    place->bytes_per_step < (double)conditions->leak_bytes)
			continue;
		strbuf_add_str(out, "a leak of ");
		strbuf_add_size(out, whole(place->bytes_per_step));
		strbuf_add_str(out, " per step was found in ");
		add_who(digest, out);
		return true;
	}
	return false;
}

/* Memory ran out after the last step that ended: what was to come has come. */
static bool has_run_out(const struct findings *found)
{
	size_t count = found == NULL ? 0 : FINDINGS_COUNT(found, oom);

	return count > 0 && found->judgement.last_step > 0 &&
	       FINDINGS(found, oom)[count - 1].step > found->judgement.last_step;
}

static bool digest_meets(const struct option_conditions *conditions, const struct digest *digest,
			 struct strbuf *out)
{
	const struct findings *found = digest->found;
	uint64_t leaks = found == NULL ? 0 : found->judgement.leaks,
		 suspects = found == NULL ? 0 : found->judgement.suspects;
	size_t i;

	if ((conditions->oom && digest->oom_count > 0) ||
	    (conditions->full_steps > 0 && has_run_out(found)))
		strbuf_add_str(out, "memory ran out in ");
	else if (conditions->leak && leaks > 0)
		strbuf_add_str(out, "a leak was found in ");
	else if (conditions->suspect && suspects > 0)
		strbuf_add_str(out, "a suspect was found in ");
	else if (conditions->full_steps > 0 && digest->full_steps <= conditions->full_steps)
		strbuf_addf(out, "a device would be full in %llu steps in ",
			    (unsigned long long)digest->full_steps);
	else {
		for (i = 0; i < digest->pool_count; i++) {
			if (pool_meets(conditions, digest, &digest->pools[i], out))
				return true;
		}
		return leak_meets(conditions, digest, out) || place_meets(conditions, digest, out);
	}
	add_who(digest, out);
	return true;
}

bool conditions_met(const struct option_conditions *conditions, const struct digest *digests,
		    size_t count, struct strbuf *out)
{
	size_t i;

	for (i = 0; i < count; i++) {
		if (digest_meets(conditions, &digests[i], out))
			return true;
	}
	return false;
}
