/* SPDX-License-Identifier: Apache-2.0 */
#include "viewer/directories.h"

#include <stdbool.h>
#include <string.h>

#include "base/compiler.h"

struct piece {
	const char *text;
	size_t length;
};

static bool is(struct piece piece, const char *word)
{
	return piece.length == strlen(word) && memcmp(piece.text, word, piece.length) == 0;
}

/* The name at the end of a path; a path from the root only. */
static struct piece name_of(struct piece path)
{
	size_t end = path.length, i;

	if (end == 0 || path.text[0] != '/')
		return path;
	while (end > 1 && path.text[end - 1] == '/')
		end--;
	for (i = end; i > 0 && path.text[i - 1] != '/'; i--)
		;
	return (struct piece){path.text + i, end - i};
}

/* A file of a library from its package on: "torch/nn/functional.py". */
static struct piece package_of(struct piece path)
{
	static const char *const roots[] = {"/site-packages/", "/dist-packages/"};
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(roots); i++) {
		const char *at = memmem(path.text, path.length, roots[i], strlen(roots[i]));

		if (at != NULL) {
			at += strlen(roots[i]);
			return (struct piece){at, path.length - (size_t)(at - path.text)};
		}
	}
	return name_of(path);
}

void directories_leave_words(const char *words, size_t length, struct strbuf *out)
{
	size_t at = 0;

	while (at < length) {
		struct piece word = {words + at, 0};
		const char *equals;

		while (at + word.length < length && word.text[word.length] != ' ')
			word.length++;
		at += word.length;
		/* An option with a path: --data=/data/set. */
		equals = memchr(word.text, '=', word.length);
		if (equals != NULL) {
			size_t option = (size_t)(equals - word.text) + 1;

			strbuf_add(out, word.text, option);
			word = (struct piece){word.text + option, word.length - option};
		}
		word = name_of(word);
		strbuf_add(out, word.text, word.length);
		for (; at < length && words[at] == ' '; at++)
			strbuf_add_char(out, ' ');
	}
}

void directories_leave_name(char *path)
{
	struct piece name = name_of((struct piece){path, strlen(path)});

	memmove(path, name.text, name.length);
	path[name.length] = '\0';
}

/* Whether the frame that the text goes on with is the program's own (site_json()); what is no frame counts as such. */
static bool is_own(const char *text, size_t length)
{
	const char *no = memmem(text, length, "\"user\":false", 12);
	const char *yes = memmem(text, length, "\"user\":true", 11);

	return no == NULL || (yes != NULL && yes < no);
}

static void add_value(struct piece key, struct piece value, const char *rest, size_t length,
		      struct strbuf *out)
{
	if (is(key, "command")) {
		directories_leave_words(value.text, value.length, out);
		return;
	}
	if (is(key, "module") || is(key, "input"))
		value = name_of(value);
	else if (is(key, "file") && !is_own(rest, length))
		value = package_of(value);
	strbuf_add(out, value.text, value.length);
}

void directories_leave_out(const struct strbuf *answer, struct strbuf *out)
{
	const char *text = strbuf_str(answer);
	struct piece key = {"", 0};
	size_t i = 0, copied = 0;

	while (i < answer->length) {
		struct piece string;

		if (text[i++] != '"') {
			/* A value follows its key at once. */
			if (text[i - 1] != ':')
				key.length = 0;
			continue;
		}
		string = (struct piece){text + i, 0};
		while (i < answer->length && text[i] != '"')
			i += text[i] == '\\' ? 2 : 1;
		if (i >= answer->length)
			break;
		string.length = (size_t)(text + i - string.text);
		i++;
		if (i < answer->length && text[i] == ':') {
			key = string;
			continue;
		}
		if (key.length == 0)
			continue;
		strbuf_add(out, text + copied, (size_t)(string.text - text) - copied);
		copied = i - 1;
		add_value(key, string, text + i, answer->length - i, out);
		key.length = 0;
	}
	strbuf_add(out, text + copied, answer->length - copied);
}
