/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.json in a project directory: the settings that its files were made with, in the keys and numbers of the original. Most
 * of them come from trace/settings.def. Four blanks of indent, keys in the order of their bytes, mode 0640.
 */
#ifndef MSCOPE_SINK_CONFIG_H
#define MSCOPE_SINK_CONFIG_H

#include "base/status.h"
#include "base/strbuf.h"
#include "sink/project.h"
#include "trace/session.h"

/* The text of the file; `exported_from` as in struct project. */
void config_text(const struct session *session, const char *exported_from, struct strbuf *out);

/* Writes it into a project directory that is made. */
int config_write(const struct session *session, const struct project *project,
		 struct mscope_error *err);

/* Whether `export` made the project in this directory, and of which run (as in struct project). */
bool config_exported_from(const char *directory, char out[PROJECT_STEM_MAX]);

#endif
