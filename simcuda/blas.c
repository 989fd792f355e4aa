/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLAS and cuBLASLt: PyTorch gives them their workspaces from its own pool, by the card's properties; here they compute nothing. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

#define HANDLE_BYTES                                                                               \
	(UINT64_C(130) << 20) /* what a handle takes beside the pool: measured on an H200 */

#define SETTING(name)                                                                              \
	SIM_API int name(void);                                                                    \
	int name(void)                                                                             \
	{                                                                                          \
		return SIM_OK;                                                                     \
	}
#define WORK(name)                                                                                 \
	SIM_API int name(void);                                                                    \
	int name(void)                                                                             \
	{                                                                                          \
		sim_launched();                                                                    \
		return SIM_OK;                                                                     \
	}
/* They are one thing without a state. */
#define MADE(name)                                                                                 \
	SIM_API int name(void **out);                                                              \
	int name(void **out)                                                                       \
	{                                                                                          \
		static char made;                                                                  \
		*out = &made;                                                                      \
		return SIM_OK;                                                                     \
	}
#include "accepted.def"

SIM_API int cublasCreate_v2(void **out);
SIM_API int cublasGetMathMode(void *handle, int *out);
SIM_API int cublasGetPointerMode_v2(void *handle, int *out);
SIM_API int cublasGetVersion_v2(void *handle, int *out);
SIM_API const char *cublasGetStatusString(int code);
SIM_API size_t cublasLtGetVersion(void);
SIM_API int cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c,
					   void *d, void *preference, int wanted, void *results,
					   int *out_count);

/* What cublasLtMatmulAlgoGetHeuristic() fills. */
struct algorithm {
	uint64_t data[8];
	size_t workspace;
	int state;
	float waves;
	int reserved[4];
};

int cublasCreate_v2(void **out)
{
	static int counted;

	if (!__atomic_exchange_n(&counted, 1, __ATOMIC_RELAXED))
		sim_beside(HANDLE_BYTES);
	*out = malloc(1);
	return *out == NULL ? 3 : SIM_OK;
}

int cublasGetMathMode(void *handle, int *out)
{
	(void)handle;
	*out = 0;
	return SIM_OK;
}

int cublasGetPointerMode_v2(void *handle, int *out)
{
	(void)handle;
	*out = 0;
	return SIM_OK;
}

int cublasGetVersion_v2(void *handle, int *out)
{
	(void)handle;
	*out = sim_version() * 10;
	return SIM_OK;
}

const char *cublasGetStatusString(int code)
{
	return code == SIM_OK ? "CUBLAS_STATUS_SUCCESS" : cudaGetErrorString(SIM_NOT_SUPPORTED);
}

size_t cublasLtGetVersion(void)
{
	return (size_t)sim_version() * 10;
}

/* One algorithm that needs no workspace; PyTorch takes the one it has set aside whatever this says. */
int cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c,
				   void *d, void *preference, int wanted, void *results,
				   int *out_count)
{
	(void)handle;
	(void)operation;
	(void)a;
	(void)b;
	(void)c;
	(void)d;
	(void)preference;
	*out_count = wanted > 0 ? 1 : 0;
	if (wanted > 0)
		memset(results, 0, sizeof(struct algorithm));
	return SIM_OK;
}
