/* SPDX-License-Identifier: Apache-2.0 */
/* --on-forecast: a command of the user's that runs when a device will be full. */
#ifndef MSCOPE_CLI_FORECAST_COMMAND_H
#define MSCOPE_CLI_FORECAST_COMMAND_H

#include "findings/findings.h"

/* Starts it by the shell and does not wait; its output goes to our standard error. */
void forecast_command(const char *command, uint32_t pid, const struct finding_forecast *forecast,
		      const char *text);

#endif
