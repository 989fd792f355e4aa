/* SPDX-License-Identifier: Apache-2.0 */
/* What advise says, for people and as JSON. */
#ifndef MSCOPE_CLI_ADVISE_TEXT_H
#define MSCOPE_CLI_ADVISE_TEXT_H

#include "advise/advise.h"
#include "base/json.h"

void advise_text(const struct advising *advising, struct strbuf *out);
void advise_json(const struct advising *advising, struct json *json);

#endif
