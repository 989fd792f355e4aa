/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a memory snapshot of PyTorch: the reader of pickles must end with values that hold, or with a sentence; and a snapshot
 * must go the whole way, to a run that is replayed and written as a snapshot again, which must be read back.
 */
#include <stdint.h>

#include "engine/export_view.h"
#include "import/pickle.h"
#include "replay_all.h"
#include "symbols/elf_cache.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every value that a walk can reach is one. */
static void check_values(const struct pickle *pickle, const uint8_t *data, size_t size)
{
	size_t i, k;

	for (i = 0; i < pickle->value_count; i++) {
		const struct pickle_value *value = &pickle->values[i];

		if (value->type == PICKLE_TEXT &&
		    ((const uint8_t *)value->text < data ||
		     (const uint8_t *)value->text + value->length > data + size))
			abort();
	}
	for (i = 0; i < pickle->container_count; i++) {
		for (k = 0; k < pickle->containers[i].count; k++) {
			if (pickle->containers[i].values[k] >= pickle->value_count)
				abort();
		}
	}
}

static void export_again(const char *path)
{
	struct elf_cache elves = {.no_lines = true};
	struct input input, again;
	struct view_job job = {
		.input = &input, .form = &view_torch, .output = getenv("TMPDIR"), .elves = &elves};
	struct mscope_error err = {0};

	if (input_open(&input, path, NULL, NULL, &err) == 0) {
		if (view_export(&job, &err) == 0) {
			if (input_open(&again, job.view.files[0].path, NULL, NULL, &err) < 0)
				abort();
			input_close(&again);
			(void)unlink(job.view.files[0].path);
		} else if (err.message[0] == '\0') {
			abort(); /* a snapshot without memory is refused, in a sentence */
		}
		view_export_close(&job);
	} else if (err.message[0] == '\0') {
		abort();
	}
	input_close(&input);
	elf_cache_fini(&elves);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct fuzz_file file;
	struct mscope_error err = {0};
	struct pickle pickle;
	int r;

	(void)setenv("TMPDIR", "/dev/shm", 0); /* temporary traces of no disk */
	r = pickle_read(&pickle, data, size, "fuzz", &err);
	if (r == 0)
		check_values(&pickle, data, size);
	else if (err.message[0] == '\0')
		abort();
	pickle_fini(&pickle);
	if (!pickle_probe(data, size))
		return 0;
	fuzz_file_fill(&file, data, size);
	export_again(file.path);
	return 0;
}
