/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a command line, words separated by NUL. Besides memory errors it looks for a message that cannot be printed
 * as one line, and for a program that is given words that are not on the line, or in another order.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "options/options.h"

#define WORDS_MAX 64

static void check_message(const struct mscope_error *err)
{
	size_t length = strlen(err->message), i;

	if (err->code == 0 || length == 0 || length + 1 >= sizeof(err->message))
		abort();
	for (i = 0; i < length; i++) {
		if ((unsigned char)err->message[i] < 0x20 || err->message[i] == 0x7f)
			abort();
	}
}

/* What the program gets must be the rest of the line, in order, less what was taken out with a notice. */
static void check_words(const struct options *o, int argc, char **argv)
{
	int from = o->word, i;

	if (o->argc > argc || o->argv[o->argc] != NULL)
		abort();
	for (i = 0; i < o->argc; i++, from++) {
		while (from < argc && argv[from] != o->argv[i])
			from++;
		if (from == argc)
			abort();
	}
	if (o->verb == VERB_NONE && !o->compare && o->argc != argc - o->word &&
	    o->notices.length == 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char name[] = "msmemscope";
	char *argv[WORDS_MAX + 1] = {name};
	struct mscope_error err = {0};
	struct options o;
	char *line, *at;
	int argc = 1;

	line = malloc(size + 1);
	if (line == NULL)
		return 0;
	memcpy(line, data, size);
	line[size] = '\0';
	for (at = line; at < line + size && argc < WORDS_MAX; at += strlen(at) + 1)
		argv[argc++] = at;

	if (options_parse(argc, argv, &o, &err) != 0) {
		check_message(&err);
	} else {
		if (!o.help && !o.version && !o.print_prefix)
			check_words(&o, argc, argv);
		if (o.output_path != NULL && o.output_path[0] != '/')
			abort();
		options_fini(&o);
	}
	free(line);
	return 0;
}
