/* SPDX-License-Identifier: Apache-2.0 */
/* What a screen says of a device: what it held, and why it had no more. Whole lines; they may be broken, and cut. */
#ifndef MSCOPE_SINK_SCREEN_OOM_H
#define MSCOPE_SINK_SCREEN_OOM_H

#include "analysis/whole_device.h"

/* A request that was refused; `earlier` came before it. */
void screen_oom(const struct findings *found, const struct finding_oom *oom, size_t earlier,
		struct strbuf *out);

/* "GPU 0 then: 1.1 of 140 GiB = PyTorch pool 340 MiB + cuBLAS 130 + context 539 + kernels 96 MiB"; `then` is device_then()'s. */
void screen_device(const struct device_account *account, const struct device_view *then,
		   struct strbuf *out);

#endif
