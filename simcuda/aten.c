/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators of PyTorch whose results have a size that depends on values, or a value that everybody expects. PyTorch calls each operator through an
 * exported function, so that ours, which was loaded first, is called in its place and calls it.
 *
 * nonzero(), which masks use, and unique(): the number that they read back from the card is the largest possible one. all() of unknown values is
 * true. record_stream(): memory that waits for another stream, which takes a time that nobody knows here.
 *
 * The functions return objects through a pointer, their first argument on x86-64; on other machines there is no such argument in C.
 */
#include "sim.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

SIM_API uint64_t simcuda_waiting(void);

static uint64_t waiting, waiting_most; /* of this step, and of the worst */

SIM_API void simcuda_step(void);

void simcuda_step(void)
{
	__atomic_store_n(&waiting, 0, __ATOMIC_RELAXED);
}

uint64_t simcuda_waiting(void)
{
	return __atomic_load_n(&waiting_most, __ATOMIC_RELAXED);
}

#if defined(__x86_64__)

typedef void *call(void *result, const void *tensor, long a, long b, long c, long d);

/* PyTorch's own function; each name is looked up once. */
static void *original(const char *name)
{
	static void *torch;
	void *library = __atomic_load_n(&torch, __ATOMIC_ACQUIRE);

	if (library == NULL) {
		library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
		__atomic_store_n(&torch, library, __ATOMIC_RELEASE);
	}
	return library == NULL ? NULL : dlsym(library, name);
}

#define CUDA 1

/* What PyTorch's stable functions in C say of a tensor; -1: they are not there, or it is not on the card. */
static int64_t ask(const void *tensor, const char *question)
{
	int (*device)(const void *, int32_t *);
	int (*number)(const void *, int64_t *);
	void *first = original("aoti_torch_get_device_type"), *second = original(question);
	int64_t answer = -1;
	int32_t type = 0;

	if (first == NULL || second == NULL)
		return -1;
	__builtin_memcpy(&device, &first, sizeof(first));
	__builtin_memcpy(&number, &second, sizeof(second));
	if (device(tensor, &type) != 0 || type != CUDA || number(tensor, &answer) != 0)
		return -1;
	return answer;
}

static void *forward(const char *name, void *result, const void *tensor, long a, long b, long c,
		     long d)
{
	void *found = original(name);
	call *function;

	/* It was called, so it is somewhere. */
	if (found == NULL)
		abort();
	__builtin_memcpy(&function, &found, sizeof(found));
	return function(result, tensor, a, b, c, d);
}

/* Numbers that are read meanwhile are `most`. */
static void *largest(const char *name, int64_t most, void *result, const void *tensor, long a,
		     long b, long c, long d)
{
	int64_t before = sim_largest(most);
	void *answer = forward(name, result, tensor, a, b, c, d);

	(void)sim_largest(before);
	return answer;
}

#define LARGEST(name)                                                                              \
	SIM_API void *name(void *result, const void *tensor, long a, long b, long c, long d);      \
	void *name(void *result, const void *tensor, long a, long b, long c, long d)               \
	{                                                                                          \
		return largest(#name, ask(tensor, "aoti_torch_get_numel"), result, tensor, a, b,   \
			       c, d);                                                              \
	}
LARGEST(_ZN2at4_ops8_unique24callERKNS_6TensorEbbb)
LARGEST(_ZN2at4_ops18unique_consecutive4callERKNS_6TensorEbbSt8optionalIlE)
LARGEST(_ZN2at4_ops18unique_consecutive4callERKNS_6TensorEbbN3c108optionalIlEE)

/*
 * How many elements of a mask are not zero, as the host has computed it beside. It is kept by the mask's address until that is said again, because the
 * gradient of x[mask] asks once more, where no line of the program does; autograd sees to it that the mask is still the same then.
 */
#define COUNTS 4096u

static struct {
	int64_t address, elements, count;
} counts[COUNTS];
static pthread_mutex_t counts_lock = PTHREAD_MUTEX_INITIALIZER;

static size_t slot_of(int64_t address)
{
	return (size_t)((uint64_t)address * UINT64_C(0x9E3779B97F4A7C15) >> 52) % COUNTS;
}

SIM_API void simcuda_mask(int64_t address, int64_t elements, int64_t count);
void simcuda_mask(int64_t address, int64_t elements, int64_t count)
{
	const size_t slot = slot_of(address);

	(void)pthread_mutex_lock(&counts_lock);
	if (count >= 0 || counts[slot].address == address) {
		counts[slot].address = count < 0 ? 0 : address;
		counts[slot].elements = elements;
		counts[slot].count = count;
	}
	(void)pthread_mutex_unlock(&counts_lock);
}

/* -1: it is not known. */
static int64_t count_of(int64_t address, int64_t elements)
{
	const size_t slot = slot_of(address);
	int64_t count = -1;

	(void)pthread_mutex_lock(&counts_lock);
	if (address > 0 && counts[slot].address == address && counts[slot].elements == elements)
		count = counts[slot].count;
	(void)pthread_mutex_unlock(&counts_lock);
	return count;
}

SIM_API void *_ZN2at4_ops7nonzero4callERKNS_6TensorE(void *result, const void *tensor, long a,
						     long b, long c, long d);
void *_ZN2at4_ops7nonzero4callERKNS_6TensorE(void *result, const void *tensor, long a, long b,
					     long c, long d)
{
	const int64_t elements = ask(tensor, "aoti_torch_get_numel");
	const int64_t count = count_of(ask(tensor, "aoti_torch_get_data_ptr"), elements);
	const int64_t before = sim_answer(-1);
	void *answer;

	(void)sim_answer(count >= 0 ? count : before);
	answer = largest("_ZN2at4_ops7nonzero4callERKNS_6TensorE", elements, result, tensor, a, b,
			 c, d);
	(void)sim_answer(before);
	return answer;
}

/* Sizes without a largest one: what is read meanwhile makes the figures doubtful, which the answer says. */
#define UNBOUNDED(name, operator)                                                                  \
	SIM_API void *name(void *result, const void *tensor, long a, long b, long c, long d);      \
	void *name(void *result, const void *tensor, long a, long b, long c, long d)               \
	{                                                                                          \
		const char *before = sim_unbounded(                                                \
			"the size of " operator" follows from values that were not computed");     \
		void *answer = forward(#name, result, tensor, a, b, c, d);                         \
                                                                                                   \
		(void)sim_unbounded(before);                                                       \
		return answer;                                                                     \
	}
UNBOUNDED(_ZN2at4_ops24repeat_interleave_Tensor4callERKNS_6TensorESt8optionalIN3c106SymIntEE,
	  "repeat_interleave()")
UNBOUNDED(_ZN2at4_ops24repeat_interleave_Tensor4callERKNS_6TensorEN3c108optionalINS5_6SymIntEEE,
	  "repeat_interleave()")
UNBOUNDED(_ZN2at4_ops8bincount4callERKNS_6TensorERKSt8optionalIS2_EN3c106SymIntE, "bincount()")
UNBOUNDED(_ZN2at4_ops8bincount4callERKNS_6TensorERKSt8optionalIS2_El, "bincount()")
UNBOUNDED(_ZN2at4_ops7one_hot4callERKNS_6TensorEl, "one_hot()")
UNBOUNDED(_ZN2at4_ops24_nested_tensor_from_mask4callERKNS_6TensorES4_b, "a nested tensor")

/* As many elements as before at most: none are equal. */
SIM_API void *_ZN2at4_ops9_coalesce4callERKNS_6TensorE(void *result, const void *tensor, long a,
						       long b, long c, long d);
void *_ZN2at4_ops9_coalesce4callERKNS_6TensorE(void *result, const void *tensor, long a, long b,
					       long c, long d)
{
	int64_t (*elements)(const void *);
	void *found = original("_ZN2at4_ops4_nnz4callERKNS_6TensorE");
	int64_t count = -1;

	if (found != NULL && ask(tensor, "aoti_torch_get_dim") >= 0) {
		__builtin_memcpy(&elements, &found, sizeof(found));
		count = elements(tensor);
	}
	return largest("_ZN2at4_ops9_coalesce4callERKNS_6TensorE", count, result, tensor, a, b, c,
		       d);
}

/* How long a tensor is along a dimension, which may be counted from the last; -1: not known. */
static int64_t length_along(const void *tensor, long dimension)
{
	int (*sizes)(const void *, int64_t **);
	void *found = original("aoti_torch_get_sizes");
	int64_t *list = NULL, dimensions = ask(tensor, "aoti_torch_get_dim");

	dimension += dimension < 0 ? dimensions : 0;
	if (found == NULL || dimension < 0 || dimension >= dimensions)
		return -1;
	__builtin_memcpy(&sizes, &found, sizeof(found));
	return sizes(tensor, &list) == 0 ? list[dimension] : -1;
}

SIM_API void *_ZN2at4_ops10unique_dim4callERKNS_6TensorElbbb(void *result, const void *tensor,
							     long a, long b, long c, long d);
void *_ZN2at4_ops10unique_dim4callERKNS_6TensorElbbb(void *result, const void *tensor, long a,
						     long b, long c, long d)
{
	return largest("_ZN2at4_ops10unique_dim4callERKNS_6TensorElbbb", length_along(tensor, a),
		       result, tensor, a, b, c, d);
}

/* all(): the answer that programs check for. */
SIM_API void *_ZN2at4_ops3all4callERKNS_6TensorE(void *result, const void *tensor, long a, long b,
						 long c, long d);
void *_ZN2at4_ops3all4callERKNS_6TensorE(void *result, const void *tensor, long a, long b, long c,
					 long d)
{
	void *answer = forward("_ZN2at4_ops3all4callERKNS_6TensorE", result, tensor, a, b, c, d);
	int64_t address = ask(result, "aoti_torch_get_data_ptr");

	if (address > 0 && sim_is_device((void *)(uintptr_t)address))
		sim_guess_true((void *)(uintptr_t)address);
	return answer;
}

/* It returns nothing, so the tensor is the first argument. */
SIM_API void _ZN2at4_ops13record_stream4callERNS_6TensorEN3c106StreamE(const void *tensor, long a,
								       long b, long c);
void _ZN2at4_ops13record_stream4callERNS_6TensorEN3c106StreamE(const void *tensor, long a, long b,
							       long c)
{
	int64_t bytes = ask(tensor, "aoti_torch_get_storage_size");
	uint64_t now;

	if (bytes > 0) {
		now = __atomic_add_fetch(&waiting, (uint64_t)bytes, __ATOMIC_RELAXED);
		if (now > __atomic_load_n(&waiting_most, __ATOMIC_RELAXED))
			__atomic_store_n(&waiting_most, now, __ATOMIC_RELAXED);
	}
	(void)forward("_ZN2at4_ops13record_stream4callERNS_6TensorEN3c106StreamE",
		      (void *)(uintptr_t)tensor, (const void *)a, b, c, 0, 0);
}

#endif
