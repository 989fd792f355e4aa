/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of large matrices by a BLAS of the machine: OpenBLAS or BLIS, opened when the first such product is computed. Nothing is
 * linked with it, and everything computes without it, slower.
 *
 * SIMNPU_BLAS is the library to open instead, or "none". What it computes is double, as everywhere here, on the thread of the stream alone.
 */
#ifndef SIMNPU_OPAPI_BLAS_H
#define SIMNPU_OPAPI_BLAS_H

#include <stdbool.h>
#include <stdint.h>

/* The product of dense matrices, one row after the other. False, and nothing happens: it is small, or there is no such library. */
bool blas_multiply(const double *left, int64_t rows, const double *right, int64_t inner,
		   int64_t columns, double *out);

#endif
