/* SPDX-License-Identifier: Apache-2.0 */
/* The end of `msmemscope ctl PID who`. */
#ifndef MSCOPE_CLI_CTL_WHO_H
#define MSCOPE_CLI_CTL_WHO_H

#include "cli/remote.h"
#include "options/options.h"

/* CONTROL_WHO was accepted: waits for the answer and shows call sites that grow, with what keeps their memory. Returns the exit code. */
int ctl_who(const struct remote *remote, const struct options *options);

#endif
