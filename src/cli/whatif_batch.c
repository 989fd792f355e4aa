/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/whatif_batch.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/pager.h"
#include "cli/whatif_input.h"
#include "twin/batches.h"

#define BAND_SHOWN 0.01

/* ---- batches of the runs ---- */

static uint64_t take_number(const char **at)
{
	uint64_t value = 0;

	for (; isdigit((unsigned char)**at); (*at)++)
		value = value < UINT32_MAX ? value * 10 + (uint64_t)(**at - '0') : UINT32_MAX;
	return value;
}

/* The one number in which two texts differ; false: they differ in something else, or in more. */
static bool one_number(const char *a, const char *b, uint64_t *out_a, uint64_t *out_b)
{
	bool found = false;

	while (*a != '\0' || *b != '\0') {
		if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
			uint64_t x = take_number(&a), y = take_number(&b);

			if (x == y)
				continue;
			if (found)
				return false;
			found = true;
			*out_a = x;
			*out_b = y;
		} else if (*a++ != *b++) {
			return false;
		}
	}
	return found;
}

/* The batch of run `i` and of run `k`, by what differs between them. */
static bool guess(const struct whatif_input *inputs, char *const *words, size_t i, size_t k,
		  uint64_t *out_i, uint64_t *out_k)
{
	if (inputs[i].command[0] != '\0' && inputs[k].command[0] != '\0' &&
	    one_number(inputs[i].command, inputs[k].command, out_i, out_k))
		return true;
	return one_number(text_base_name(words[i]), text_base_name(words[k]), out_i, out_k);
}

static bool find_batches(const struct options *options, const struct whatif_input *inputs,
			 size_t count, uint64_t *out)
{
	char *const *words = options->argv + 1;

	if (options->batch_of.count > 0) {
		for (size_t i = 0; i < count && i < options->batch_of.count; i++)
			out[i] = options->batch_of.value[i];
		if (options->batch_of.count == count)
			return true;
		cli_say("--batch-of has %" PRIu32 " numbers for %zu runs", options->batch_of.count,
			count);
		return false;
	}
	for (size_t i = 1; i < count; i++) {
		uint64_t first = 0;

		if (!guess(inputs, words, 0, i, &first, &out[i]) || (i > 1 && first != out[0])) {
			cli_say("the batches of the runs are not known: their command lines or file names differ in more than one number. Say them: --batch-of=4,8");
			return false;
		}
		out[0] = first;
	}
	return true;
}

/* By ascending batch. */
static bool sort_runs(struct batch_choice *choice)
{
	for (size_t i = 0; i < choice->run_count; i++)
		for (size_t k = i + 1; k < choice->run_count; k++) {
			const struct pool_history *history = choice->runs[i];
			uint64_t batch = choice->run_batches[i];

			if (choice->run_batches[k] >= batch)
				continue;
			choice->runs[i] = choice->runs[k];
			choice->run_batches[i] = choice->run_batches[k];
			choice->runs[k] = history;
			choice->run_batches[k] = batch;
		}
	for (size_t i = 0; i < choice->run_count; i++)
		if (choice->run_batches[i] == 0 ||
		    (i > 0 && choice->run_batches[i] == choice->run_batches[i - 1])) {
			cli_say("each run must have another batch, of at least 1");
			return false;
		}
	return true;
}

/* ---- saying it ---- */

static void add_list(struct strbuf *out, const uint64_t *numbers, size_t count)
{
	for (size_t i = 0; i < count; i++)
		strbuf_addf(out, "%s%" PRIu64,
			    i == 0	     ? ""
			    : i + 1 == count ? " and "
					     : ", ",
			    numbers[i]);
}

static void add_row(struct strbuf *out, const struct batch_row *row, uint64_t limit_bytes)
{
	strbuf_addf(out, "  batch %-8" PRIu64, row->batch);
	if ((double)(row->high - row->low) > BAND_SHOWN * (double)row->low) {
		strbuf_add_size(out, row->low);
		strbuf_add_str(out, " to ");
		strbuf_add_size(out, row->high);
	} else {
		strbuf_add_size(out, row->reserved_peak);
	}
	if (limit_bytes != 0)
		strbuf_add_str(out, row->fits ? "  fits" : "  does not fit");
	strbuf_add_char(out, '\n');
}

static void add_sites(struct strbuf *out, const struct batches *b, bool blocks_only)
{
	if (b->site_count == 0)
		return;
	strbuf_add_str(out, "Not a line over the batch");
	if (b->has_odd && blocks_only)
		strbuf_add_str(
			out,
			", so figures are ranges (torch_npu reports blocks, which can be larger than what was asked for)");
	else if (b->has_odd)
		strbuf_add_str(
			out,
			", so figures are ranges (libraries choose such sizes by themselves, as cuDNN its workspaces)");
	strbuf_add_str(out, ": ");
	for (size_t i = 0; i < b->site_count; i++) {
		strbuf_addf(out, "%s%s (", i == 0 ? "" : ", ",
			    b->sites[i].name[0] == '\0' ? "requests without a call site"
							: b->sites[i].name);
		strbuf_add_size(out, b->sites[i].bytes);
		strbuf_add_char(out, ')');
	}
	strbuf_add_str(out, ".\n");
}

/* A batch that is larger than all recorded ones may run other kernels: PyTorch and cuBLAS choose them by size. */
static void add_caution(struct strbuf *out, const struct batches *b,
			const struct batch_choice *choice)
{
	uint64_t recorded = 0;

	for (size_t i = 0; i < choice->run_count; i++)
		recorded = recorded > choice->run_batches[i] ? recorded : choice->run_batches[i];
	for (size_t i = 0; i < b->row_count; i++) {
		if (b->rows[i].batch <= recorded)
			continue;
		strbuf_addf(
			out,
			"Libraries may choose other kernels for a batch larger than %" PRIu64
			", with other workspaces. To be sure, record a batch near the one that you want.\n",
			recorded);
		return;
	}
}

static void batch_text(struct strbuf *out, const struct batches *b,
		       const struct batch_choice *choice)
{
	const struct what_if *last = &b->runs[choice->run_count - 1];

	bool npu = choice->runs[0]->npu;

	strbuf_addf(out, "PyTorch pool on %s %" PRIu32 ", runs with batch ", npu ? "NPU" : "GPU",
		    choice->runs[0]->device);
	add_list(out, choice->run_batches, choice->run_count);
	if (b->requests > 0)
		strbuf_addf(out, ": %" PRIu64 " of %" PRIu64 " allocations are paired", b->paired,
			    b->requests);
	strbuf_add_str(out, ".\n");
	if (b->refusal[0] != '\0') {
		strbuf_addf(out, "%s\n", b->refusal);
		add_sites(out, b, choice->runs[0]->blocks_only);
		return;
	}
	strbuf_addf(out, "Reserved at the peak (%s 2.%" PRIu32 ", %s):\n",
		    npu ? "torch_npu" : "torch", last->release.minor,
		    choice->settings != NULL && choice->settings[0] != '\0' ? choice->settings
		    : choice->settings != NULL || last->history->settings[0] == '\0'
			    ? "default settings"
			    : last->history->settings);
	for (size_t i = 0; i < choice->run_count; i++) {
		strbuf_addf(out, "  batch %-8" PRIu64, choice->run_batches[i]);
		strbuf_add_size(out, b->runs[i].reserved_peak);
		strbuf_add_str(out, "  recorded\n");
	}
	for (size_t i = 0; i < b->row_count; i++)
		add_row(out, &b->rows[i], choice->limit_bytes);
	if (choice->limit_bytes != 0) {
		strbuf_add_str(out, "With at most ");
		strbuf_add_size(out, choice->limit_bytes);
		if (b->largest == 0)
			strbuf_add_str(out, " for the pool, no batch fits.\n");
		else
			strbuf_addf(out, " for the pool, the largest batch is %" PRIu64 ".\n",
				    b->largest);
	}
	add_sites(out, b, choice->runs[0]->blocks_only);
	add_caution(out, b, choice);
}

static void json_rows(struct json *json, const struct batches *b, const struct batch_choice *choice)
{
	json_array(json, "batches");
	for (size_t i = 0; i < b->row_count; i++) {
		json_object(json, NULL);
		json_u64(json, "batch", b->rows[i].batch);
		json_u64(json, "reserved_peak", b->rows[i].reserved_peak);
		json_u64(json, "low", b->rows[i].low);
		json_u64(json, "high", b->rows[i].high);
		if (choice->limit_bytes != 0)
			json_bool(json, "fits", b->rows[i].fits);
		json_end(json);
	}
	json_end(json);
	if (choice->limit_bytes != 0)
		json_u64(json, "largest_batch", b->largest);
}

static void batch_json(struct strbuf *out, const struct batches *b,
		       const struct batch_choice *choice)
{
	const struct what_if *last = &b->runs[choice->run_count - 1];
	struct json writer, *json = &writer;
	char device[16];

	snprintf(device, sizeof(device), "%" PRIu32, choice->runs[0]->device);
	json_begin(json, out);
	json_object(json, NULL);
	json_u64(json, "schema", 1);
	json_array(json, "pools");
	json_object(json, NULL);
	json_string(json, "device", device);
	json_string(json, "pool", "PTA");
	json_string(json, "set",
		    choice->settings != NULL ? choice->settings
		    : last->history != NULL  ? last->history->settings
					     : "");
	json_array(json, "runs");
	for (size_t i = 0; i < b->run_count; i++) {
		json_object(json, NULL);
		json_u64(json, "batch", choice->run_batches[i]);
		json_u64(json, "reserved_peak", b->runs[i].reserved_peak);
		json_bool(json, "agrees", b->runs[i].agreement.agrees);
		json_end(json);
	}
	json_end(json);
	json_u64(json, "allocations", b->requests);
	json_u64(json, "paired", b->paired);
	json_array(json, "not_linear");
	for (size_t i = 0; i < b->site_count; i++) {
		json_object(json, NULL);
		json_string(json, "call_site", b->sites[i].name);
		json_u64(json, "bytes", b->sites[i].bytes);
		json_u64(json, "requests", b->sites[i].requests);
		json_end(json);
	}
	json_end(json);
	if (b->refusal[0] != '\0')
		json_string(json, "refusal", b->refusal);
	else
		json_rows(json, b, choice);
	json_end(json);
	json_end(json);
	json_end(json);
	strbuf_add_char(out, '\n');
}

/* ---- the whole ---- */

static int answer(const struct options *options, const struct batch_choice *choice)
{
	struct mscope_error err = {0};
	struct strbuf text = {0};
	struct batches b;
	int code = MSCOPE_EXIT_OK, r = batches_answer(&b, choice, &err);

	if (r != 0) {
		cli_say("%s", err.message[0] != '\0' ? err.message : mscope_status_str(r));
		code = r == MSCOPE_E_USAGE ? MSCOPE_EXIT_USAGE : MSCOPE_EXIT_FAILED;
	} else if (options->json) {
		batch_json(&text, &b, choice);
		cli_write(STDOUT_FILENO, strbuf_str(&text), text.length);
	} else {
		batch_text(&text, &b, choice);
		pager_write(&text);
	}
	if (r == 0 && b.refusal[0] != '\0')
		code = MSCOPE_EXIT_FAILED;
	strbuf_fini(&text);
	batches_fini(&b);
	return code;
}

/* The pool of the first run, and of the others on the same device. */
static bool choose_pools(const struct options *options, const struct whatif_input *inputs,
			 struct batch_choice *choice)
{
	for (size_t i = 0; i < choice->run_count; i++) {
		choice->runs[i] =
			whatif_pool(&inputs[i], i == 0 ? UINT32_MAX : choice->runs[0]->device);
		if (choice->runs[i] == NULL) {
			cli_say("%s has no record of PyTorch's pool that can be replayed",
				options->argv[i + 1]);
			return false;
		}
	}
	return true;
}

int whatif_batch(const struct options *options)
{
	struct whatif_input inputs[BATCH_RUNS_MOST] = {0};
	uint64_t batches[OPTION_NUMBERS_MAX];
	struct batch_choice choice = {.run_count = (size_t)options->argc - 1,
				      .batches = batches,
				      .batch_count = options->batch.count,
				      .settings =
					      options->set.count > 0 ? options->set.value[0] : NULL,
				      .limit_bytes = options->limit.bytes,
				      .torch = options->torch};
	int code = MSCOPE_EXIT_OK;

	if (choice.run_count < 2 || choice.run_count > BATCH_RUNS_MOST || options->set.count > 1 ||
	    options->card.bytes != 0) {
		cli_say("--batch takes two or three runs of the same program, at most one --set, and --limit but not --card");
		return MSCOPE_EXIT_USAGE;
	}
	for (uint32_t i = 0; i < options->batch.count; i++)
		batches[i] = options->batch.value[i];
	for (size_t i = 0; i < choice.run_count && code == MSCOPE_EXIT_OK; i++)
		code = whatif_input_read(&inputs[i], options->argv[i + 1], options, true);
	if (code == MSCOPE_EXIT_OK &&
	    !find_batches(options, inputs, choice.run_count, choice.run_batches))
		code = MSCOPE_EXIT_USAGE;
	if (code == MSCOPE_EXIT_OK && !choose_pools(options, inputs, &choice))
		code = MSCOPE_EXIT_FAILED;
	if (code == MSCOPE_EXIT_OK && !sort_runs(&choice))
		code = MSCOPE_EXIT_USAGE;
	if (code == MSCOPE_EXIT_OK)
		code = answer(options, &choice);
	for (size_t i = 0; i < choice.run_count; i++) {
		if (code == MSCOPE_EXIT_OK && inputs[i].damaged)
			code = MSCOPE_EXIT_DAMAGED;
		whatif_input_fini(&inputs[i]);
	}
	return code;
}
