/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors as rows of numbers, whatever their type, strides and shape.
 *
 * A view is a tensor seen in a shape: dimensions of 1 repeat as often as the shape says. Its elements have numbers in the order of
 * the shape, and any piece of them is read into, or written from, a plain array. Operators work on such pieces, PIECE elements
 * at a time or row by row, and so never see strides or types.
 */
#ifndef SIMNPU_OPAPI_ARRAY_H
#define SIMNPU_OPAPI_ARRAY_H

#include "numbers.h"
#include "op.h"

enum {
	PIECE = 1024,
};

struct shape {
	uint32_t dim_count;
	int64_t dims[DIMS_MAX];
};

struct view {
	aclDataType type;
	unsigned char *data;
	uint32_t dim_count; /* neighbours that lie in one row are one dimension */
	int64_t dims[DIMS_MAX];
	int64_t strides[DIMS_MAX]; /* in elements, 0 where it repeats */
	size_t size;		   /* of an element */
};

/* Elements of a shape or a tensor; 1 without dimensions. */
int64_t shape_count(const struct shape *shape);
int64_t tensor_count(const struct tensor *tensor);

struct shape shape_of(const struct tensor *tensor);

/* What both broadcast to. */
struct shape shape_of_both(const struct tensor *left, const struct tensor *right);

/* A dimension counted from the end when negative. */
uint32_t dim_of(const struct tensor *tensor, int64_t dim);

/* The tensor in a shape, which it must be able to take. */
struct view view_as(const struct tensor *tensor, const struct shape *shape);

/* The tensor in its own. */
struct view view_of(const struct tensor *tensor);

/* Elements `start` to `start + count`. */
void view_read(const struct view *view, int64_t start, int64_t count, double *out);
void view_read_integers(const struct view *view, int64_t start, int64_t count, int64_t *out);
void view_write(const struct view *view, int64_t start, int64_t count, const double *in);
void view_write_integers(const struct view *view, int64_t start, int64_t count, const int64_t *in);
void view_read_complex(const struct view *view, int64_t start, int64_t count, double complex *out);
void view_write_complex(const struct view *view, int64_t start, int64_t count,
			const double complex *in);

/* One element. */
double view_at(const struct view *view, int64_t n);
int64_t view_integer_at(const struct view *view, int64_t n);
void view_put(const struct view *view, int64_t n, double value);

/* One element of any type into another, converted. */
void view_copy(const struct view *to, int64_t at, const struct view *from, int64_t n);

/* to[at] + factor * from[n] and to[at] * from[n], of any type: integers stay exact. */
void view_add(const struct view *to, int64_t at, const struct view *from, int64_t n,
	      double complex factor);
void view_multiply(const struct view *to, int64_t at, const struct view *from, int64_t n);

bool view_equals(const struct view *left, int64_t at, const struct view *right, int64_t n);

/* Whether it is not 0. */
bool view_is_true(const struct view *view, int64_t n);

/* All elements, in memory that the caller frees. NULL when there is none, which is said. */
double *tensor_read(const struct op *op, const struct tensor *tensor);
int64_t *tensor_read_integers(const struct op *op, const struct tensor *tensor);
void tensor_write(const struct tensor *tensor, const double *values);
void tensor_write_integers(const struct tensor *tensor, const int64_t *values);
void tensor_fill(const struct tensor *tensor, double value);

/* Copies with conversion; the source broadcasts. */
void tensor_copy(const struct tensor *to, const struct tensor *from);

/* malloc() of `count` elements of `size`, which says so when there is none. */
void *op_array(const struct op *op, int64_t count, size_t size);

/* The same elements with dimension `dim` moved to the end: rows along it follow each other. */
struct tensor tensor_with_last(const struct tensor *tensor, uint32_t dim);

/* The same elements with all marked dimensions moved to the end, and how many elements these have. */
struct tensor tensor_with_marked_last(const struct tensor *tensor, const bool marked[DIMS_MAX],
				      int64_t *marked_count);

/* Another shape of the same elements, which lie densely. */
struct tensor tensor_dense(aclDataType type, void *data, const struct shape *shape);

/* A scalar as a tensor without dimensions, for as long as the scalar lives. */
struct tensor scalar_tensor(const struct scalar *scalar);

/* One element of a tensor as a number; 0 for one that is not there. */
double tensor_number(const struct tensor *tensor);

#endif
