/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verdicts about refused requests in words.
 */
#include "analysis/oom.h"

#include "findings/site.h"
#include "base/vendors.h"

static bool is_gpu(const struct oom_verdict *verdict)
{
	return verdict->vendor == VENDOR_CUDA;
}

bool oom_is_limited(const struct oom_verdict *verdict)
{
	/* A driver that has enough and refuses has it in pieces; a pool has a limit. */
	return (verdict->device == DEVICE_HOST || !pool_is_driver(verdict->pool)) &&
	       verdict->free_bytes != UINT64_MAX && verdict->free_bytes >= verdict->requested_bytes;
}

void oom_limit_line(const struct oom_verdict *verdict, struct strbuf *out)
{
	if (!oom_is_limited(verdict))
		return;
	strbuf_add_str(out,
		       verdict->device == DEVICE_HOST
			       ? "The machine had free memory; a limit of the process was reached "
				 "(ulimit -v).\n"
			       : "The device had free memory; the pool's own limit was reached "
				 "(set_per_process_memory_fraction).\n");
}

static void add_device(struct strbuf *out, const struct oom_verdict *verdict)
{
	uint32_t device = verdict->device;

	if (device == DEVICE_HOST)
		strbuf_add_str(out, "the host");
	else if (device == DEVICE_UNKNOWN)
		strbuf_add_str(out, "an unknown device");
	else
		strbuf_addf(out, "%s %u", is_gpu(verdict) ? "GPU" : "device", device);
}

static void add_pool(struct strbuf *out, uint8_t pool)
{
	switch (pool) {
	case POOL_hal:
		strbuf_add_str(out, "driver memory (HAL)");
		break;
	case POOL_host:
		strbuf_add_str(out, "CPU tensors");
		break;
	default:
		strbuf_add_str(out, pool_event_type(pool));
		break;
	}
}

static void add_blocks(struct strbuf *out, uint64_t blocks)
{
	strbuf_addf(out, " in %llu block%s", (unsigned long long)blocks, blocks == 1 ? "" : "s");
}

/* ---- one line ---- */

void oom_headline(const struct oom_verdict *verdict, struct strbuf *out)
{
	strbuf_add_str(out, "Out of memory on ");
	add_device(out, verdict);
	if (verdict->step != 0)
		strbuf_addf(out, " in step %u", verdict->step);
	strbuf_add_str(out, ": asked for ");
	strbuf_add_size(out, verdict->requested_bytes);
	if (verdict->free_bytes != UINT64_MAX) {
		strbuf_add_str(out, ", ");
		strbuf_add_size(out, verdict->free_bytes);
		strbuf_add_str(out, " of ");
		strbuf_add_size(out, verdict->total_bytes);
		strbuf_add_str(out, " free");
	}
	strbuf_addf(out, ". Cause: %s.", oom_cause_text(verdict->cause));
}

static void growth_line(const struct oom_verdict *verdict, struct strbuf *out)
{
	add_pool(out, verdict->grown_pool);
	if (pool_is_driver(verdict->grown_pool) && verdict->outside_bytes > 0)
		strbuf_add_str(out, " outside the pool");
	strbuf_add_str(out, " grew by ");
	if (verdict->grown_steps != 0) {
		strbuf_add_size(out, verdict->grown_bytes);
		strbuf_addf(out, " in %u steps", verdict->grown_steps);
		if (verdict->per_step_bytes != 0) {
			strbuf_add_str(out, verdict->grown_place.bytes != 0
						    ? ", its fastest place by "
						    : ", ");
			strbuf_add_size(out, verdict->per_step_bytes);
			strbuf_add_str(out, " per step");
		}
	} else {
		strbuf_add_size(out, verdict->grown_bytes);
		strbuf_add_str(out, " over the run");
	}
}

static void spike_line(const struct oom_verdict *verdict, struct strbuf *out)
{
	if (verdict->total_bytes != UINT64_MAX && verdict->requested_bytes > verdict->total_bytes) {
		strbuf_addf(out, "this one request is larger than the whole %s",
			    verdict->device == DEVICE_HOST ? "memory of the host" : "device");
		return;
	}
	if (verdict->cause_bytes <= verdict->requested_bytes) {
		strbuf_add_str(out, "this one request is far larger than all before");
		if (verdict->most_bytes != 0) {
			strbuf_add_str(out, ": until now at most ");
			strbuf_add_size(out, verdict->most_bytes);
			strbuf_add_str(out, " were in use");
		}
		return;
	}
	strbuf_add_str(out, verdict->by_steps ? "this step needs far more than all steps before"
					      : "it suddenly needs far more than before");
	if (verdict->usual_bytes != 0) {
		strbuf_add_str(out, ": at most ");
		strbuf_add_size(out, verdict->usual_bytes);
		strbuf_addf(out, " were in use %s", verdict->by_steps ? "in these" : "then");
	}
}

static void fragmentation_line(const struct oom_verdict *verdict, struct strbuf *out)
{
	if (verdict->free_bytes != UINT64_MAX && verdict->free_bytes >= verdict->requested_bytes &&
	    !oom_is_limited(verdict)) {
		strbuf_add_str(out,
			       "enough is free, and the driver refused all the same: its memory "
			       "is in pieces, or a limit is set");
		return;
	}
	strbuf_add_size(out, verdict->unused_bytes);
	strbuf_add_str(out, " are reserved and not in use");
	if (verdict->hole_bytes != UINT64_MAX) {
		strbuf_add_str(out, ", the largest piece is ");
		strbuf_add_size(out, verdict->hole_bytes);
	}
}

static void full_line(const struct oom_verdict *verdict, struct strbuf *out)
{
	if (verdict->steady || verdict->held_blocks == 0) {
		strbuf_add_str(out,
			       "the device is full at a steady level: nothing grew, nothing is "
			       "wasted, the program needs more than there is");
		return;
	}
	strbuf_add_str(out, "the program needs more than there is: it holds ");
	strbuf_add_size(out, verdict->held_bytes);
	add_blocks(out, verdict->held_blocks);
	strbuf_add_str(out, verdict->freed_blocks == 0
				    ? ", has freed nothing so far, and asks for more"
				    : " and asks for more");
}

void oom_cause_line(const struct oom_verdict *verdict, struct strbuf *out)
{
	switch (verdict->cause) {
	case OOM_CAUSE_GROWTH:
		growth_line(verdict, out);
		break;
	case OOM_CAUSE_SPIKE:
		spike_line(verdict, out);
		break;
	case OOM_CAUSE_FRAGMENTATION:
		fragmentation_line(verdict, out);
		break;
	case OOM_CAUSE_OUTSIDE:
		strbuf_add_size(out, verdict->outside_bytes);
		strbuf_add_str(out, " were taken from the driver directly, outside the pool");
		break;
	case OOM_CAUSE_OTHERS:
		strbuf_add_size(out, verdict->others_bytes);
		strbuf_add_str(out, " of the device are held outside this process");
		break;
	case OOM_CAUSE_WAITING:
		strbuf_add_size(out, verdict->waiting_bytes);
		strbuf_add_str(out, " are freed, and the pool waits for other streams that use it");
		break;
	case OOM_CAUSE_PRIVATE:
		strbuf_add_size(out, verdict->private_bytes);
		strbuf_add_str(out, " are kept by CUDA graphs and private pools and not in use");
		break;
	case OOM_CAUSE_FULL:
	case OOM_CAUSES:
		full_line(verdict, out);
		break;
	}
}

/* ---- what to try ---- */

/* The place in one line, or the size of its blocks. */
static void add_place(struct replay *replay, const struct oom_place *place, struct strbuf *out)
{
	if (place->stack != 0 && site_line(replay, place->stack, out))
		return;
	strbuf_add_str(out, "blocks of ");
	strbuf_add_size(out, place->size_bytes);
}

void oom_advice(struct replay *replay, const struct oom_verdict *verdict, struct strbuf *out)
{
	switch (verdict->cause) {
	case OOM_CAUSE_GROWTH:
		if (verdict->grown_place.bytes == 0) {
			strbuf_add_str(
				out, "run again with --call-stack=c,python --analysis=leaks to see "
				     "which code keeps more and more");
			break;
		}
		strbuf_add_str(out, "free, detach or bound what this place keeps: ");
		add_place(replay, &verdict->grown_place, out);
		break;
	case OOM_CAUSE_SPIKE:
		strbuf_add_str(out,
			       "look at the shapes of this request; split it, or make batch or "
			       "sequence length smaller");
		break;
	case OOM_CAUSE_FRAGMENTATION:
		strbuf_add_str(
			out,
			verdict->device == DEVICE_HOST || verdict->pool == POOL_hal
				? "allocate large blocks first and keep them"
			: is_gpu(verdict)
				? "set expandable_segments:True in PYTORCH_CUDA_ALLOC_CONF, or "
				  "allocate large blocks first"
				: "set expandable_segments:True in PYTORCH_NPU_ALLOC_CONF, or "
				  "allocate large blocks first");
		break;
	case OOM_CAUSE_OUTSIDE:
		strbuf_add_str(out,
			       is_gpu(verdict)
				       ? "look at the largest places below that are driver memory "
					 "(HAL): buffers of NCCL, workspaces of cuBLAS and cuDNN, "
					 "direct cudaMalloc"
				       : "look at the largest places below that are driver memory "
					 "(HAL): communication buffers, workspaces, direct "
					 "aclrtMalloc");
		break;
	case OOM_CAUSE_OTHERS:
		strbuf_addf(out,
			    "end the other processes on this device (%s names them), or choose "
			    "another device",
			    is_gpu(verdict) ? "nvidia-smi" : "npu-smi");
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
		strbuf_add_str(out, "make the model, the batch or the cache smaller, recompute "
				    "activations, or spread it over more devices");
		break;
	}
}

/* ---- all of it ---- */

static void text_held(const struct oom_verdict *verdict, struct strbuf *out)
{
	uint32_t i;

	if (oom_is_limited(verdict))
		strbuf_add_str(out, "  ");
	oom_limit_line(verdict, out);
	strbuf_add_str(out, "  Held: ");
	for (i = 0; i < verdict->pool_count; i++) {
		const struct oom_pool *pool = &verdict->pools[i];

		if (i > 0)
			strbuf_add_str(out, "; ");
		add_pool(out, pool->pool);
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
	if (verdict->pool_count == 0)
		strbuf_add_str(out, "nothing that was recorded");
	if (verdict->outside_bytes > 0) {
		strbuf_add_str(out, "; outside the pool ");
		strbuf_add_size(out, verdict->outside_bytes);
	}
	if (verdict->others_bytes != UINT64_MAX) {
		strbuf_add_str(out, "; other processes and the driver ");
		strbuf_add_size(out, verdict->others_bytes);
	}
	strbuf_add_str(out, ".\n");
	if (verdict->given_back_bytes > 0) {
		strbuf_add_str(out, "  The pool gave back ");
		strbuf_add_size(out, verdict->given_back_bytes);
		strbuf_addf(out, " of its cache, and was refused again (%u tries).\n",
			    verdict->tries);
	}
}

void oom_text(const struct findings *found, const struct finding_oom *oom,
	      const struct oom_verdict *verdict, struct replay *replay, size_t places,
	      uint32_t frames, struct strbuf *out)
{
	const struct finding_oom_place *held =
		oom->places.count == 0 ? NULL : FINDINGS(found, oom_place) + oom->places.first;
	size_t i;

	oom_headline(verdict, out);
	strbuf_addf(out, "\n  Why: %s.\n  Try: %s.\n", oom->why, oom->try);
	text_held(verdict, out);
	if (verdict->stack != 0) {
		strbuf_addf(out, "  Asked for by %s, thread %u, at\n", oom->function, verdict->tid);
		site_text(replay, verdict->stack, frames, out);
	}
	if (oom->places.count > 0)
		strbuf_add_str(out, "  Largest places at that moment:\n");
	for (i = 0; i < oom->places.count && i < places; i++) {
		strbuf_add_str(out, "    ");
		strbuf_add_size(out, held[i].bytes);
		add_blocks(out, held[i].blocks);
		strbuf_add_str(out, "  ");
		add_pool(out, held[i].pool);
		strbuf_addf(out, "  %s\n", held[i].place);
	}
	if (verdict->repeats > 0)
		strbuf_addf(out, "  Then %u more such requests were refused.\n", verdict->repeats);
}

/* ---- findings ---- */

static void add_place_finding(struct findings *found, const struct oom_place *place,
			      struct finding_range *range)
{
	struct finding_oom_place *added = FINDINGS_ADD(found, oom_place);

	if (added == NULL)
		return;
	if (range->count++ == 0)
		range->first = FINDINGS_COUNT(found, oom_place) - 1;
	added->pool = place->pool;
	added->bytes = place->bytes;
	added->blocks = place->blocks;
	added->largest_block_bytes = place->size_bytes;
	added->grown_bytes = place->grown_bytes;
	added->place = "";
	added->call_sites = 1;
	added->stack = place->stack;
}

static void add_pool_finding(struct findings *found, const struct oom_pool *pool,
			     struct finding_range *range)
{
	struct finding_oom_pool *added = FINDINGS_ADD(found, oom_pool);

	if (added == NULL)
		return;
	if (range->count++ == 0)
		range->first = FINDINGS_COUNT(found, oom_pool) - 1;
	added->pool = pool->pool;
	added->live_bytes = pool->live_bytes;
	added->live_blocks = pool->live_blocks;
	added->reserved_bytes = pool->reserved_bytes;
}

void oom_find(const struct oom_verdict *verdict, struct replay *replay, struct findings *found)
{
	struct finding_oom *oom = FINDINGS_ADD(found, oom);
	struct strbuf text = {0};
	uint32_t i;

	if (oom == NULL)
		return;
	*oom = (struct finding_oom){.number = verdict->number,
				    .time_ns = run_wall_ns(replay_run(replay), verdict->time_ns),
				    .device = verdict->device,
				    .pool = verdict->pool,
				    .function = oom_call_text(verdict->call),
				    .thread = verdict->tid,
				    .step = verdict->step,
				    .tries = verdict->tries,
				    .repeats = verdict->repeats,
				    .requested_bytes = verdict->requested_bytes,
				    .free_bytes = verdict->free_bytes,
				    .total_bytes = verdict->total_bytes,
				    .process_bytes = verdict->process_bytes,
				    .other_processes_bytes = verdict->others_bytes,
				    .outside_pool_bytes = verdict->outside_bytes,
				    .reserved_unused_bytes = verdict->unused_bytes,
				    .largest_hole_bytes = verdict->hole_bytes,
				    .waiting_bytes = verdict->waiting_bytes,
				    .private_pools_unused_bytes = verdict->private_bytes,
				    .given_back_bytes = verdict->given_back_bytes,
				    .cause = verdict->cause,
				    .bytes_per_step = verdict->per_step_bytes,
				    .limited = oom_is_limited(verdict),
				    .place = "",
				    .stack = verdict->stack};
	oom_cause_line(verdict, &text);
	oom->why = findings_text(found, strbuf_str(&text));
	strbuf_reset(&text);
	oom_advice(replay, verdict, &text);
	oom->try = findings_text(found, strbuf_str(&text));
	strbuf_fini(&text);
	if (verdict->grown_place.bytes != 0)
		add_place_finding(found, &verdict->grown_place, &oom->growing);
	for (i = 0; i < verdict->pool_count; i++)
		add_pool_finding(found, &verdict->pools[i], &oom->pools);
	for (i = 0; i < verdict->place_count; i++)
		add_place_finding(found, &verdict->places[i], &oom->places);
}
