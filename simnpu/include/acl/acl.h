/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AscendCL as the simulated NPU offers it: link with -lascendcl. Every function may be called from any thread.
 */
#ifndef ACL_H
#define ACL_H

#include "acl_base.h"
#include "acl_rt.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/*
 * Starts the use of AscendCL. `configPath` is NULL, empty, or a file that can be read (its content is not interpreted),
 * otherwise ACL_ERROR_INVALID_FILE. ACL_ERROR_REPEAT_INITIALIZE when it was called before.
 */
aclError aclInit(const char *configPath);

/* Ends it. ACL_ERROR_UNINITIALIZE without aclInit(), ACL_ERROR_REPEAT_FINALIZE the second time. */
aclError aclFinalize(void);

/* What went wrong last on this thread, in words; NULL when nothing did since the last call. */
const char *aclGetRecentErrMsg(void);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
