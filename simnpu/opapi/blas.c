/* SPDX-License-Identifier: Apache-2.0 */
#include "blas.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* From this many multiplications on the library is faster than our own loop. */
#define LARGE 32768.0

enum {
	ROW_MAJOR = 101, /* CblasRowMajor */
	AS_IT_IS = 111,	 /* CblasNoTrans */
};

typedef void (*dgemm_function)(int order, int left_form, int right_form, int rows, int columns,
			       int inner, double alpha, const double *left, int left_stride,
			       const double *right, int right_stride, double beta, double *out,
			       int out_stride);

static dgemm_function dgemm;

static void *open_library(void)
{
	static const char *const names[] = {"libopenblas.so.0", "libblis.so.4"};
	const char *wanted = getenv("SIMNPU_BLAS");
	void *library = NULL;
	size_t n;

	if (wanted && strcmp(wanted, "none") == 0)
		return NULL;
	if (wanted && *wanted) {
		library = dlopen(wanted, RTLD_NOW | RTLD_LOCAL);
		if (!library)
			(void)fprintf(stderr, "simnpu: SIMNPU_BLAS=%s cannot be opened\n", wanted);
		return library;
	}
	for (n = 0; n < sizeof(names) / sizeof(names[0]) && !library; n++)
		library = dlopen(names[n], RTLD_NOW | RTLD_LOCAL);
	return library;
}

static void find(void)
{
	void *library = open_library();
	void (*set_threads)(int count);
	void (*set_threads_of_blis)(intptr_t count);

	if (!library)
		return;
	*(void **)&set_threads = dlsym(library, "openblas_set_num_threads");
	if (set_threads)
		set_threads(1);
	*(void **)&set_threads_of_blis = dlsym(library, "bli_thread_set_num_threads");
	if (set_threads_of_blis)
		set_threads_of_blis(1);
	*(void **)&dgemm = dlsym(library, "cblas_dgemm");
}

bool blas_multiply(const double *left, int64_t rows, const double *right, int64_t inner,
		   int64_t columns, double *out)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (rows > INT_MAX || columns > INT_MAX || inner > INT_MAX ||
	    (double)rows * (double)columns * (double)inner < LARGE)
		return false;
	(void)pthread_once(&once, find);
	if (!dgemm)
		return false;
	dgemm(ROW_MAJOR, AS_IT_IS, AS_IT_IS, (int)rows, (int)columns, (int)inner, 1, left,
	      (int)inner, right, (int)columns, 0, out, (int)columns);
	return true;
}
