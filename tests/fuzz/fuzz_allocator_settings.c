/* SPDX-License-Identifier: Apache-2.0 */
/* The text of PYTORCH_CUDA_ALLOC_CONF or PYTORCH_NPU_ALLOC_CONF, for the release that the first byte chooses. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "twin/allocator_settings.h"
#include "twin/block_sizes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct twin_settings settings;
	struct mscope_error err = {0};
	struct twin_release release;
	uint32_t first, last;
	bool npu;
	char *text;

	if (size == 0)
		return 0;
	npu = data[0] >= 128;
	first = twin_release_first(npu);
	last = twin_release_last(npu);
	release = twin_release_of(first + data[0] % (last - first + 1), npu);
	text = malloc(size);
	if (text == NULL)
		return 0;
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	if (twin_settings_parse(text, &release, &settings, &err) == 0) {
		for (uint32_t i = 0; i < 40; i++) {
			uint64_t bytes = ((uint64_t)1 << i) + 3;
			uint64_t block = block_size_of(&settings, &release, bytes);

			assert(block >= bytes && segment_size_of(&settings, block) >= block);
		}
	} else {
		assert(err.message[0] != '\0');
	}
	free(text);
	return 0;
}
