/* SPDX-License-Identifier: Apache-2.0 */
/* What cuda_client is linked with: functions of CUDA's runtime by name and version, and one of NCCL by name. Never loaded. */
#ifdef NCCL
void ncclMadeUp(void);
void ncclMadeUp(void)
{
}
#else
#define FUNCTION(name)                                                                             \
	void name(void);                                                                           \
	void name(void)                                                                            \
	{                                                                                          \
	}
FUNCTION(cudaMalloc)
FUNCTION(cudaFree)
FUNCTION(cudaMemcpy)
FUNCTION(cudaMemset)
FUNCTION(cudaLaunchKernel)
FUNCTION(cudaMemGetInfo)
FUNCTION(cudaGetErrorString)
FUNCTION(cudaMadeUp)
#endif
