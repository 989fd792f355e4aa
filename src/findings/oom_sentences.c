/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why memory ran out, in words.
 */
#include "base/vendors.h"
#include "findings/findings.h"
#include "findings/say.h"
#include "findings/site.h"

/* Call sites of a text in full; of a brief one, and how many out-of-memory errors that has. */
#define PLACES	     10u
#define BRIEF_PLACES 3u
#define BRIEF_OOMS   2u

/* Of one call site: fewer may be the layers of one large batch. */
#define PILE_BLOCKS 16u

static bool is_gpu(const struct finding_oom *oom)
{
	return oom->vendor == VENDOR_CUDA;
}

/* The call site that grew most; NULL: no single one did. */
static const struct finding_oom_place *growing(const struct findings *found,
					       const struct finding_oom *oom)
{
	return oom->growing.count == 0 ? NULL : FINDINGS(found, oom_place) + oom->growing.first;
}

void oom_limit(const struct finding_oom *oom, struct strbuf *out)
{
	if (oom->limited)
		strbuf_add_str(out,
			       oom->device == DEVICE_HOST
				       ? "The machine had free memory; a limit of the process "
					 "was reached (ulimit -v).\n"
				       : "The device had free memory; the pool's own limit was "
					 "reached (set_per_process_memory_fraction).\n");
}

static void add_device(struct strbuf *out, const struct finding_oom *oom)
{
	if (oom->device == DEVICE_HOST)
		strbuf_add_str(out, "the host");
	else
		say_device(out, oom->vendor, oom->device);
}

static void add_blocks(struct strbuf *out, uint64_t blocks)
{
	strbuf_addf(out, " in %llu block%s", (unsigned long long)blocks, blocks == 1 ? "" : "s");
}

/* ---- one line ---- */

void oom_headline(const struct finding_oom *oom, struct strbuf *out)
{
	strbuf_add_str(out, "Out of memory on ");
	add_device(out, oom);
	if (oom->step != 0)
		strbuf_addf(out, " in step %llu", (unsigned long long)oom->step);
	strbuf_add_str(out, ": asked for ");
	strbuf_add_size(out, oom->requested_bytes);
	if (oom->free_bytes != UINT64_MAX) {
		strbuf_add_str(out, ", ");
		strbuf_add_size(out, oom->free_bytes);
		if (oom->total_bytes != UINT64_MAX) {
			strbuf_add_str(out, " of ");
			strbuf_add_size(out, oom->total_bytes);
		}
		strbuf_add_str(out, " free");
	}
	strbuf_addf(out, ". Cause: %s.", oom_cause_text(oom->cause));
}

static void growth_line(const struct findings *found, const struct finding_oom *oom,
			struct strbuf *out)
{
	if (oom->grown_pool == POOL_hal)
		strbuf_add_str(out,
			       is_gpu(oom) ? "memory of the CUDA driver" : "driver memory (HAL)");
	else
		say_the_pool(out, oom->vendor, oom->grown_pool);
	if (pool_is_driver(oom->grown_pool) && oom->outside_pool_bytes > 0)
		strbuf_add_str(out, " outside the pool");
	strbuf_add_str(out, " grew by ");
	if (oom->grown_steps != 0) {
		strbuf_add_size(out, oom->grown_bytes);
		strbuf_addf(out, " in %llu steps", (unsigned long long)oom->grown_steps);
		if (oom->bytes_per_step != 0) {
			strbuf_add_str(out, growing(found, oom) != NULL
						    ? ", its fastest call site by "
						    : ", ");
			strbuf_add_size(out, oom->bytes_per_step);
			strbuf_add_str(out, " per step");
		}
	} else {
		strbuf_add_size(out, oom->grown_bytes);
		strbuf_add_str(out, " over the run");
	}
}

static void spike_line(const struct finding_oom *oom, struct strbuf *out)
{
	if (oom->total_bytes != UINT64_MAX && oom->requested_bytes > oom->total_bytes) {
		strbuf_addf(out, "this one request is larger than the whole %s",
			    oom->device == DEVICE_HOST ? "memory of the host" : "device");
		return;
	}
	if (oom->scales && oom->by_steps) {
		strbuf_add_str(out, "this step needs more than all steps before");
		if (oom->record_steps > 1)
			strbuf_addf(out, ", and so did each of the last %llu",
				    (unsigned long long)oom->record_steps);
		strbuf_add_str(out, ": its input is larger");
		return;
	}
	if (oom->requested_bytes / 2 >= oom->largest_bytes) {
		strbuf_add_str(out, "this one request is far larger than all requests before");
		if (oom->most_bytes != 0) {
			strbuf_add_str(out, ": until now at most ");
			strbuf_add_size(out, oom->most_bytes);
			strbuf_add_str(out, " were in use");
		}
		return;
	}
	strbuf_add_str(out, oom->by_steps ? "this step needs far more than all steps before"
					  : "the program suddenly needs far more memory");
	if (oom->usual_bytes != 0) {
		strbuf_add_str(out, ": at most ");
		strbuf_add_size(out, oom->usual_bytes);
		strbuf_addf(out, " were in use %s", oom->by_steps ? "in these" : "before");
	}
}

/* What is in pieces are the driver's pages, not what pools reserved. */
static bool is_in_pages(const struct finding_oom *oom)
{
	return oom->cause == OOM_CAUSE_FRAGMENTATION &&
	       oom->cause_bytes == oom->lost_to_pages_bytes &&
	       oom->cause_bytes != oom->reserved_unused_bytes;
}

static void fragmentation_line(const struct finding_oom *oom, struct strbuf *out)
{
	if (oom->free_bytes != UINT64_MAX && oom->free_bytes >= oom->requested_bytes &&
	    !oom->limited) {
		strbuf_add_str(out, "enough memory is free, but the driver refused: its memory "
				    "is in pieces, or a limit is set");
		return;
	}
	if (is_in_pages(oom)) {
		strbuf_add_size(out, oom->lost_to_pages_bytes);
		strbuf_add_str(out, " are lost to pages that blocks do not fill");
		return;
	}
	strbuf_add_size(out, oom->reserved_unused_bytes);
	strbuf_add_str(out, " are reserved and not in use");
	if (oom->largest_hole_bytes != UINT64_MAX) {
		strbuf_add_str(out, ", the largest piece is ");
		strbuf_add_size(out, oom->largest_hole_bytes);
	}
}

static void full_line(const struct finding_oom *oom, struct strbuf *out)
{
	if (oom->steady || oom->held_blocks == 0) {
		strbuf_add_str(out,
			       "the device is full at a steady level: nothing grew, nothing is "
			       "wasted, the program needs more than there is");
		return;
	}
	strbuf_add_str(out, "the program needs more than there is: it holds ");
	strbuf_add_size(out, oom->held_bytes);
	add_blocks(out, oom->held_blocks);
	strbuf_add_str(out, oom->freed_blocks == 0 ? ", has freed nothing so far, and asks for more"
						   : " and asks for more");
}

void oom_why(const struct findings *found, const struct finding_oom *oom, struct strbuf *out)
{
	switch (oom->cause) {
	case OOM_CAUSE_GROWTH:
		growth_line(found, oom, out);
		break;
	case OOM_CAUSE_SPIKE:
		spike_line(oom, out);
		break;
	case OOM_CAUSE_FRAGMENTATION:
		fragmentation_line(oom, out);
		break;
	case OOM_CAUSE_OUTSIDE:
		strbuf_add_size(out, oom->outside_pool_bytes);
		strbuf_add_str(out, " were taken from the driver directly, outside the pool");
		break;
	case OOM_CAUSE_OTHERS:
		strbuf_add_size(out, oom->other_processes_bytes);
		strbuf_add_str(out, " of the device are held outside this process");
		break;
	case OOM_CAUSE_WAITING:
		strbuf_add_size(out, oom->waiting_bytes);
		strbuf_add_str(out, " are freed, and the pool waits for other streams that use it");
		break;
	case OOM_CAUSE_PRIVATE:
		strbuf_add_size(out, oom->private_pools_unused_bytes);
		strbuf_add_str(out, " are kept by CUDA graphs and private pools and not in use");
		break;
	case OOM_CAUSE_FULL:
	case OOM_CAUSES:
		full_line(oom, out);
		break;
	}
}

/* ---- what to try ---- */

/* One call site that holds most of it in many blocks, NULL: none does. A loop may have put them aside in this very step. */
static const struct finding_oom_place *pile(const struct findings *found,
					    const struct finding_oom *oom)
{
	const struct finding_oom_place *place = FINDINGS(found, oom_place) + oom->places.first;

	return oom->places.count > 0 && place->stack != 0 && place->blocks >= PILE_BLOCKS &&
			       place->bytes / 3 >= oom->requested_bytes &&
			       place->bytes >= oom->usual_bytes
		       ? place
		       : NULL;
}

static void try_spike(const struct findings *found, const struct finding_oom *oom,
		      struct strbuf *out)
{
	const struct finding_oom_place *place = pile(found, oom);

	if (oom->scales && oom->by_steps)
		strbuf_add_str(out, "a smaller batch or shorter sequences");
	else if (place == NULL)
		strbuf_add_str(out,
			       "look at the shapes of this request; split it, or make batch or "
			       "sequence length smaller");
	else
		strbuf_addf(out,
			    "free the %llu blocks that %s keeps in this step, or move them to the "
			    "host; if they are one batch, make it smaller",
			    (unsigned long long)place->blocks, place->place);
}

void oom_try(const struct findings *found, const struct finding_oom *oom, struct strbuf *out)
{
	const struct finding_oom_place *place = growing(found, oom);

	switch (oom->cause) {
	case OOM_CAUSE_GROWTH:
		if (place == NULL) {
			strbuf_add_str(
				out, "run again with --call-stack=c,python --analysis=leaks to see "
				     "which code keeps more and more");
			break;
		}
		if (place->stack == 0) {
			strbuf_addf(out, "run again with --call-stack=c to see which code keeps %s",
				    place->place);
			break;
		}
		strbuf_addf(out, "free, detach or bound what this call site keeps: %s",
			    place->place);
		break;
	case OOM_CAUSE_SPIKE:
		try_spike(found, oom, out);
		break;
	case OOM_CAUSE_FRAGMENTATION:
		strbuf_add_str(
			out,
			is_in_pages(oom) && is_gpu(oom)
				? "allocate several blocks as one: the driver gives whole pages of "
				  "2 MiB"
			: is_in_pages(oom)
				? "allocate several blocks as one, or ask for sizes that fill "
				  "whole pages (huge ones have 2 MiB; aclrtMalloc adds 32 bytes)"
			: oom->device == DEVICE_HOST || oom->pool == POOL_hal
				? "allocate large blocks first and keep them"
			: is_gpu(oom)
				? "set expandable_segments:True in PYTORCH_CUDA_ALLOC_CONF, or "
				  "allocate large blocks first"
				: "set expandable_segments:True in PYTORCH_NPU_ALLOC_CONF, or "
				  "allocate large blocks first");
		break;
	case OOM_CAUSE_OUTSIDE:
		strbuf_add_str(
			out,
			is_gpu(oom)
				? "look at the largest call sites below that are memory of the "
				  "CUDA driver: buffers of NCCL, workspaces of cuBLAS and cuDNN, "
				  "direct cudaMalloc"
				: "look at the largest call sites below that are driver memory "
				  "(HAL): communication buffers, workspaces, direct "
				  "aclrtMalloc");
		break;
	case OOM_CAUSE_OTHERS:
		strbuf_addf(out,
			    "end the other processes on this device (%s names them), or choose "
			    "another device",
			    is_gpu(oom) ? "nvidia-smi" : "npu-smi");
		break;
	case OOM_CAUSE_WAITING:
		strbuf_add_str(out, "wait for the side streams earlier, or pass fewer tensors to "
				    "record_stream()");
		break;
	case OOM_CAUSE_PRIVATE:
		strbuf_add_str(out, "let CUDA graphs share one pool (graph_pool_handle()), capture "
				    "fewer of them, or delete those that are not used");
		break;
	case OOM_CAUSE_FULL:
	case OOM_CAUSES:
		if (oom->limited)
			strbuf_add_str(out, oom->device == DEVICE_HOST
						    ? "raise the limit (ulimit -v), or "
						    : "raise the limit that the program sets "
						      "(set_per_process_memory_fraction), or ");
		strbuf_add_str(out, "make the model, the batch or the cache smaller, recompute "
				    "activations, or spread it over more devices");
		break;
	}
}

/* ---- all of it ---- */

static void add_held(const struct findings *found, const struct finding_oom *oom,
		     struct strbuf *out)
{
	size_t i;

	if (oom->limited)
		strbuf_add_str(out, "  ");
	oom_limit(oom, out);
	strbuf_add_str(out, "  Held: ");
	for (i = 0; i < oom->pools.count; i++) {
		const struct finding_oom_pool *pool =
			&FINDINGS(found, oom_pool)[oom->pools.first + i];

		if (i > 0)
			strbuf_add_str(out, "; ");
		strbuf_add_str(out, say_pool(oom->vendor, pool->pool));
		strbuf_add_char(out, ' ');
		strbuf_add_size(out, pool->live_bytes);
		add_blocks(out, pool->live_blocks);
		if (pool->reserved_bytes > pool->live_bytes) {
			strbuf_add_str(out, ", reserved ");
			strbuf_add_size(out, pool->reserved_bytes);
		}
		if (pool->waiting_bytes > 0) {
			strbuf_add_str(out, ", waiting for streams ");
			strbuf_add_size(out, pool->waiting_bytes);
		}
		if (pool->private_bytes > 0) {
			strbuf_add_str(out, ", CUDA graphs and private pools ");
			strbuf_add_size(out, pool->private_bytes);
		}
	}
	if (oom->pools.count == 0)
		strbuf_add_str(out, "nothing that was recorded");
	if (oom->outside_pool_bytes > 0) {
		strbuf_add_str(out, "; outside the pool ");
		strbuf_add_size(out, oom->outside_pool_bytes);
	}
	if (oom->lost_to_pages_bytes > 0) {
		strbuf_add_str(out, "; lost to pages ");
		strbuf_add_size(out, oom->lost_to_pages_bytes);
	}
	if (oom->other_processes_bytes != UINT64_MAX && oom->other_processes_bytes > 0) {
		strbuf_add_str(out, "; other processes and the driver ");
		strbuf_add_size(out, oom->other_processes_bytes);
	}
	strbuf_add_str(out, ".\n");
	if (oom->given_back_bytes > 0) {
		strbuf_add_str(out, "  The pool gave back ");
		strbuf_add_size(out, oom->given_back_bytes);
		strbuf_addf(out, " of its cache, and was refused again (%llu tries).\n",
			    (unsigned long long)oom->tries);
	}
}

static void add_text(const struct findings *found, const struct finding_oom *oom,
		     struct replay *replay, size_t places, uint32_t frames, struct strbuf *out)
{
	size_t i;

	oom_headline(oom, out);
	strbuf_add_str(out, "\n  Why: ");
	oom_why(found, oom, out);
	strbuf_add_str(out, ".\n  Try: ");
	oom_try(found, oom, out);
	strbuf_add_str(out, ".\n");
	add_held(found, oom, out);
	if (oom->stack != 0) {
		strbuf_addf(out, "  Asked for by %s, thread %llu, at\n", oom->function,
			    (unsigned long long)oom->thread);
		site_text(replay, oom->stack, frames, out);
	}
	if (oom->places.count > 0)
		strbuf_add_str(out, "  Largest call sites at that moment:\n");
	for (i = 0; i < oom->places.count && i < places; i++) {
		const struct finding_oom_place *held =
			&FINDINGS(found, oom_place)[oom->places.first + i];

		strbuf_add_str(out, "    ");
		strbuf_add_size(out, held->bytes);
		add_blocks(out, held->blocks);
		strbuf_add_str(out, "  ");
		strbuf_add_str(out, say_pool(oom->vendor, held->pool));
		strbuf_addf(out, "  %s\n", held->place);
	}
	if (oom->repeats > 0)
		strbuf_addf(out, "  Then %llu more such requests were refused.\n",
			    (unsigned long long)oom->repeats);
}

void ooms_text(const struct findings *found, struct replay *replay, bool brief, uint32_t frames,
	       struct strbuf *out)
{
	size_t count = FINDINGS_COUNT(found, oom), i;

	for (i = 0; i < count && !(brief && i == BRIEF_OOMS); i++)
		add_text(found, &FINDINGS(found, oom)[i], replay, brief ? BRIEF_PLACES : PLACES,
			 frames, out);
	if (i < count)
		strbuf_addf(out, "Out of memory %zu more times; report.txt has them.\n", count - i);
	if (found->ooms_recovered > 0)
		strbuf_addf(out,
			    "%llu request%s succeeded after a first refusal, when a pool had given "
			    "back its cache or smaller pages were taken.\n",
			    (unsigned long long)found->ooms_recovered,
			    found->ooms_recovered == 1 ? "" : "s");
}
