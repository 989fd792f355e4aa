/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/texts.h"

#include <errno.h>
#include <string.h>

#include "base/hash.h"

#define SWEEP_BYTES_MIN (1u << 20)

void texts_fini(struct texts *texts)
{
	strbuf_fini(&texts->bytes);
	map_fini(&texts->by_content);
}

int texts_intern(struct texts *texts, const void *text, size_t bytes, uint64_t *out_offset)
{
	struct map_key key = {HASH_BEGIN, 0};
	const uint8_t *at = text;
	const uint64_t *known;
	size_t i;

	for (i = 0; i < bytes; i++) {
		key.a = hash_add_byte(key.a, at[i]);
		key.b = key.b * 31 + at[i];
	}
	key.b ^= (uint64_t)bytes << 32;
	known = map_get(&texts->by_content, key);
	if (known != NULL) {
		*out_offset = *known;
		return 0;
	}
	*out_offset = texts->bytes.length;
	/* A text ends at its first NUL anyway: messages are C strings. */
	strbuf_add(&texts->bytes, text, bytes);
	strbuf_add_char(&texts->bytes, '\0');
	return strbuf_failed(&texts->bytes) ? -ENOMEM
					    : map_put(&texts->by_content, key, *out_offset);
}

bool texts_want_sweep(const struct texts *texts)
{
	/* A slot of the map is 32 bytes, which short texts are not. */
	return texts->bytes.length + texts->by_content.count * sizeof(struct map_slot) >
	       (texts->sweep_at > SWEEP_BYTES_MIN ? texts->sweep_at : SWEEP_BYTES_MIN);
}

void texts_sweep_begin(struct texts_sweep *sweep, struct texts *texts)
{
	*sweep = (struct texts_sweep){.texts = texts};
}

uint64_t texts_keep(struct texts_sweep *sweep, uint64_t offset)
{
	const char *text = sweep->texts->bytes.data + offset;
	const uint64_t *known = map_get(&sweep->moved, (struct map_key){offset, 0});
	uint64_t to = 0;

	if (known != NULL)
		return *known;
	if (sweep->error == 0)
		sweep->error = texts_intern(&sweep->kept, text, strlen(text), &to);
	if (sweep->error == 0)
		sweep->error = map_put(&sweep->moved, (struct map_key){offset, 0}, to);
	return to;
}

int texts_sweep_end(struct texts_sweep *sweep)
{
	int r = sweep->error;

	texts_fini(sweep->texts);
	*sweep->texts = sweep->kept;
	/* What is kept may be all there ever is: the next one when there is twice as much. */
	sweep->texts->sweep_at = 2 * (sweep->kept.bytes.length +
				      sweep->kept.by_content.count * sizeof(struct map_slot));
	map_fini(&sweep->moved);
	return r;
}
