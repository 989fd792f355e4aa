/* SPDX-License-Identifier: Apache-2.0 */
/* The answer of whatif, for a person and as JSON. */
#ifndef MSCOPE_CLI_WHATIF_TEXT_H
#define MSCOPE_CLI_WHATIF_TEXT_H

#include "base/json.h"
#include "twin/what_if.h"

void whatif_text(const struct what_if *answer, const struct what_if_choice *choice,
		 struct strbuf *out);
/* `run` is its path where the document has several runs, else NULL. */
void whatif_json(const struct what_if *answer, const char *run, struct json *json);

#endif
