/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the records of a process that reads lines and was taken over by what it read. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "symbols/elf_cache.h"
#include "symbols/lines.h"
#include "symbols/lines_work.h"
#include "symbols/modules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_text(const char *text)
{
	if (text != NULL && (strlen(text) > LINES_TEXT_MAX || strpbrk(text, "\033\n") != NULL))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static const struct lines_limits limits = LINES_LIMITS_DEFAULT;
	struct module_info info = {.base = 0,
				   .end = 4096,
				   .path = "/nonexistent",
				   .build_id = (const uint8_t *)"id",
				   .build_id_length = 2};
	struct lines_frame frames[LINES_FRAMES_MAX];
	struct elf_cache cache = {0};
	struct modules modules;
	struct module *module;
	struct lines *lines;
	uint64_t address;

	modules_init(&modules, &cache);
	lines = lines_new(&cache, &limits);
	if (lines == NULL || modules_load(&modules, &info, 0, &module) < 0)
		abort();
	for (address = 0; address < 8; address++) {
		if (lines_want(lines, module, "", address) < 0)
			abort();
	}
	while (bytes >= sizeof(struct lines_record)) {
		struct lines_record record;
		char *content;

		memcpy(&record, data, sizeof(record));
		data += sizeof(record);
		bytes -= sizeof(record);
		record.bytes = (uint32_t)(record.bytes < bytes ? record.bytes : bytes);
		/* A copy, so that reading beyond it is seen. */
		content = malloc(record.bytes > 0 ? record.bytes : 1);
		memcpy(content, data, record.bytes);
		(void)lines_take_record(lines, &record, content);
		free(content);
		data += record.bytes;
		bytes -= record.bytes;
	}
	for (address = 0; address < 9; address++) {
		size_t count = lines_get(lines, module, address, frames, LINES_FRAMES_MAX);

		while (count-- > 0) {
			check_text(frames[count].function);
			check_text(frames[count].file);
		}
	}
	lines_free(lines);
	modules_fini(&modules);
	elf_cache_fini(&cache);
	return 0;
}
