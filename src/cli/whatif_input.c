/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/whatif_input.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/reading.h"
#include "import/torch_history.h"
#include "import/torch_snapshot.h"
#include "symbols/elf_cache.h"

void whatif_input_fini(struct whatif_input *input)
{
	pool_histories_fini(&input->traced);
	for (size_t i = 0; i < input->read_count; i++)
		pool_history_fini(&input->read[i]);
	free(input->read);
	*input = (struct whatif_input){0};
}

static int read_snapshot(struct whatif_input *input, const char *word)
{
	struct mscope_error err = {0};
	int r = torch_history_read(word, &input->read, &input->read_count, &err);

	if (r == 0)
		return MSCOPE_EXIT_OK;
	cli_say("%s", err.message);
	return input_exit_code(r);
}

/* The pools of a run that is open. 0 or an error. */
static int take_pools(struct whatif_input *input, struct input *opened,
		      const struct reading *reading, struct mscope_error *err)
{
	struct elf_cache elves = {0};
	struct pass pass = {0};
	struct pass_setup setup = {.elves = &elves,
				   .run = opened->run,
				   .event = pool_histories_take,
				   .event_arg = &input->traced};
	const char *command = run_identity(opened->run, "command");
	int r = pass_open(&pass, &setup, err);

	if (r == 0)
		r = pass_all(&pass, err);
	if (r == 0)
		r = pool_histories_end(&input->traced, pass.replay);
	snprintf(input->command, sizeof(input->command), "%s", command == NULL ? "" : command);
	if (r == 0)
		input->damaged = reading_is_damaged(reading, opened, pass.replay,
						    "what can be read is replayed");
	pass_close(&pass);
	elf_cache_fini(&elves);
	return r;
}

static int read_run(struct whatif_input *input, const char *word, const struct options *options)
{
	struct reading reading = {.word = word, .log_level = options->log_level};
	struct mscope_error err = {0};
	struct input opened;
	int code = MSCOPE_EXIT_OK, r = reading_open(&reading, &opened, &err);

	if (r < 0) {
		cli_say("%s", err.message);
		input_close(&opened);
		return input_exit_code(r);
	}
	r = take_pools(input, &opened, &reading, &err);
	if (r < 0) {
		cli_say("cannot read %s: %s", word,
			err.message[0] != '\0' ? err.message : mscope_status_str(r));
		code = MSCOPE_EXIT_FAILED;
	}
	input_close(&opened);
	return code;
}

int whatif_input_read(struct whatif_input *input, const char *word, const struct options *options,
		      bool sites)
{
	*input = (struct whatif_input){.traced = {.sites = sites}};
	return snapshot_probe(word) ? read_snapshot(input, word) : read_run(input, word, options);
}

const char *whatif_lacking(const struct pool_recorder *pool)
{
	if (pool->npu.strange)
		return "torch_npu's pool says that it holds another amount of memory than the driver gave it in the record; the recording may have started late";
	if (pool->untold)
		return "it has no requested sizes; they are recorded from PyTorch 2.3 on, on CUDA";
	return NULL;
}

const struct pool_history *whatif_pool(const struct whatif_input *input, uint32_t device)
{
	for (size_t i = 0; i < input->read_count; i++)
		if (device == UINT32_MAX || input->read[i].device == device)
			return &input->read[i];
	for (size_t i = 0; i < input->traced.count; i++) {
		const struct pool_recorder *pool = &input->traced.pools[i];

		if (whatif_lacking(pool) == NULL && pool->history.event_count > 0 &&
		    (device == UINT32_MAX || pool->history.device == device))
			return &pool->history;
	}
	return NULL;
}
