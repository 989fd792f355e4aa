/* SPDX-License-Identifier: Apache-2.0 */
#include "views/interned.h"

#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "base/status.h"

void interned_fini(struct interned *interned)
{
	map_fini(&interned->known);
	strbuf_fini(&interned->texts);
	interned->count = 0;
}

int interned_number(struct interned *interned, const char *text, size_t length, uint32_t *out,
		    bool *out_new)
{
	struct map_key key = {hash_add(HASH_BEGIN, text, length), 0};
	const uint64_t *known;

	*out_new = false;
	for (; (known = map_get(&interned->known, key)) != NULL; key.b++) {
		const char *at = interned->texts.data + (*known >> 32);

		if (strncmp(at, text, length) == 0 && at[length] == '\0') {
			*out = (uint32_t)*known;
			return 0;
		}
	}
	if (interned->texts.length + length >= UINT32_MAX)
		return MSCOPE_E_LIMIT;
	if (map_put(&interned->known, key,
		    (uint64_t)interned->texts.length << 32 | interned->count) < 0)
		return -ENOMEM;
	strbuf_add(&interned->texts, text, length);
	strbuf_add_char(&interned->texts, '\0');
	if (strbuf_failed(&interned->texts))
		return -ENOMEM;
	*out = interned->count++;
	*out_new = true;
	return 0;
}
