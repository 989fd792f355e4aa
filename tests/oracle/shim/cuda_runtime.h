/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's headers include the compiler's part of CUDA, which a C++ program without kernels does not need. */
#include <cuda_runtime_api.h>
