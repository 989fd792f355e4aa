/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_tools WHAT: a program that uses NVIDIA's interfaces for tools itself.
 *
 *     profiler   takes ten blocks, subscribes to CUPTI as torch.profiler does, and takes ten more; prints how many calls it was told of
 *     profiler2  the same by cuptiSubscribe_v2
 *     nvtx       marks and ranges of NVTX in each form, as a client of NVTX's headers makes them; prints what must be found
 *     leak       twenty steps, marked by NVTX; leaky_workspace() keeps a block in each, steady_buffer() gives its back
 */
#include <wchar.h>

#include "cuda_driver.h"

#define MIB ((size_t)1 << 20)

/* ---- another subscriber ---- */

extern int cuptiSubscribe(void **, void (*)(void *, uint32_t, uint32_t, const void *), void *)
	__attribute__((weak));
extern int cuptiSubscribe_v2(void **, void (*)(void *, uint32_t, uint32_t, const void *), void *,
			     void *) __attribute__((weak));

static _Atomic int told;

static void on_call(void *userdata, uint32_t domain, uint32_t number, const void *data)
{
	(void)userdata;
	(void)domain;
	(void)data;
	told += number == 243; /* cuMemAlloc_v2, before and behind it */
}

static void take_ten(cu_address *out)
{
	int i;

	for (i = 0; i < 10; i++) {
		CUDA(cuMemAlloc(&out[i], (size_t)(i + 1) * MIB));
		cuda_took(out[i], (size_t)(i + 1) * MIB, 0, "HAL");
	}
}

static void profiler(bool second)
{
	int (*subscribe)(void **, void (*)(void *, uint32_t, uint32_t, const void *), void *) =
		cuptiSubscribe;
	int (*enable)(uint32_t, void *, uint32_t, uint32_t);
	cu_address before[10], behind[10];
	void *subscriber = NULL;
	int result, i;

	*(void **)&enable = dlsym(RTLD_DEFAULT, "cuptiEnableCallback");
	take_ten(before);
	result = second ? cuptiSubscribe_v2(&subscriber, on_call, NULL, NULL)
			: subscribe(&subscriber, on_call, NULL);
	if (result == 0)
		(void)enable(1, subscriber, 1, 243);
	take_ten(behind);
	for (i = 0; i < 10; i++) {
		CUDA(cuMemFree(before[i]));
		CUDA(cuMemFree(behind[i]));
	}
	(void)printf("{\"subscribed\":%d,\"told\":%d}\n", result, told);
}

/* ---- NVTX, as its headers do it ---- */

typedef void function(void);

#define CORE_SIZE    16
#define DOMAINS_SIZE 16

static function *core[CORE_SIZE], *with_domains[DOMAINS_SIZE];
static function **core_slots[CORE_SIZE + 1], **domain_slots[DOMAINS_SIZE + 1];

static int get_module(uint32_t module, function ****out_table, unsigned int *out_size)
{
	if (module != 1 && module != 5)
		return 0;
	*out_table = module == 1 ? core_slots : domain_slots;
	*out_size = module == 1 ? CORE_SIZE : DOMAINS_SIZE;
	return 1;
}

static const struct {
	size_t bytes;
	int (*get)(uint32_t, function ****, unsigned int *);
} callbacks = {sizeof(callbacks), get_module};

static const void *get_export_table(uint32_t number)
{
	return number == 1 ? &callbacks : NULL;
}

struct attributes {
	uint16_t version, bytes;
	uint32_t category;
	int32_t color_type;
	uint32_t color;
	int32_t payload_type, reserved;
	uint64_t payload;
	int32_t message_type;
	const void *message;
};

static struct attributes attributes(int type, const void *message)
{
	return (struct attributes){.version = 3,
				   .bytes = sizeof(struct attributes),
				   .message_type = type,
				   .message = message};
}

#define CORE(number, type, ...)	  ((type)core[number])(__VA_ARGS__)
#define DOMAIN(number, type, ...) ((type)with_domains[number])(__VA_ARGS__)

typedef void mark_a(const char *);
typedef void mark_w(const wchar_t *);
typedef void mark_ex(const struct attributes *);
typedef uint64_t start_a(const char *);
typedef uint64_t start_w(const wchar_t *);
typedef uint64_t start_ex(const struct attributes *);
typedef void end(uint64_t);
typedef int push_a(const char *);
typedef int push_w(const wchar_t *);
typedef int push_ex(const struct attributes *);
typedef int pop(void);
typedef void *create_a(const char *);
typedef void *create_w(const wchar_t *);
typedef void *register_a(void *, const char *);
typedef void domain_mark(void *, const struct attributes *);
typedef uint64_t domain_start(void *, const struct attributes *);
typedef void domain_end(void *, uint64_t);
typedef int domain_push(void *, const struct attributes *);
typedef int domain_pop(void *);

static bool load_tool(void)
{
	const char *path = getenv("NVTX_INJECTION64_PATH");
	void *library = path == NULL ? NULL : dlopen(path, RTLD_LAZY);
	int (*initialize)(const void *(*)(uint32_t));
	int i;

	for (i = 0; i < CORE_SIZE; i++)
		core_slots[i] = &core[i];
	for (i = 0; i < DOMAINS_SIZE; i++)
		domain_slots[i] = &with_domains[i];
	if (library == NULL)
		return false;
	*(void **)&initialize = dlsym(library, "InitializeInjectionNvtx2");
	return initialize != NULL && initialize(get_export_table) != 0;
}

static void mark_all(void)
{
	struct attributes plain = attributes(1, "mark ex"), wide = attributes(2, L"mark \u00e9");
	struct attributes handle, inside = attributes(1, "in a domain");
	void *domain = DOMAIN(12, create_a *, "layers"), *other = DOMAIN(13, create_w *, L"other");
	void *text = DOMAIN(10, register_a *, domain, "registered");
	uint64_t first, second;

	handle = attributes(3, text);
	CORE(2, mark_a *, "mark a");
	CORE(3, mark_w *, L"mark w");
	CORE(1, mark_ex *, &plain);
	CORE(1, mark_ex *, &wide);
	/* Ranges that overlap. */
	first = CORE(5, start_a *, "first");
	second = CORE(6, start_w *, L"second");
	CORE(7, end *, first);
	CORE(7, end *, second);
	first = CORE(4, start_ex *, &plain);
	CORE(7, end *, first);
	/* Pushed ones, two of them in a domain of their own. */
	(void)CORE(9, push_a *, "outer");
	(void)DOMAIN(4, domain_push *, domain, &inside);
	(void)CORE(10, push_w *, L"inner");
	(void)DOMAIN(5, domain_pop *, domain);
	(void)CORE(11, pop *);
	(void)CORE(8, push_ex *, &plain);
	(void)CORE(11, pop *);
	(void)CORE(11, pop *);
	DOMAIN(1, domain_mark *, domain, &handle);
	first = DOMAIN(2, domain_start *, other, &inside);
	DOMAIN(3, domain_end *, other, first);
}

static void nvtx(void)
{
	cu_address address;
	int i;

	if (!load_tool()) {
		(void)printf("{\"nvtx\":false}\n");
		return;
	}
	mark_all();
	for (i = 0; i < 6; i++) {
		(void)CORE(9, push_a *, "step start");
		CUDA(cuMemAlloc(&address, 2 * MIB));
		cuda_took(address, 2 * MIB, 0, "HAL");
		(void)CORE(11, pop *);
	}
	(void)printf("{\"nvtx\":true}\n");
}

/* ---- a leak ---- */

static cu_address take(size_t bytes)
{
	cu_address address;

	CUDA(cuMemAlloc(&address, bytes));
	cuda_took(address, bytes, 0, "HAL");
	return address;
}

__attribute__((noinline)) static cu_address leaky_workspace(void)
{
	return take(3 * MIB);
}

__attribute__((noinline)) static cu_address steady_buffer(void)
{
	return take(5 * MIB);
}

static void leak(void)
{
	int i;

	if (!load_tool())
		cuda_fail("no tool", 0);
	for (i = 0; i < 20; i++) {
		cu_address buffer;

		(void)CORE(9, push_a *, "step start");
		buffer = steady_buffer();
		(void)leaky_workspace();
		cuda_gives(buffer);
		CUDA(cuMemFree(buffer));
		(void)CORE(11, pop *);
	}
}

int main(int argc, char **argv)
{
	cuda_begin();
	if (argc > 1 && strcmp(argv[1], "leak") == 0)
		leak();
	else if (argc > 1 && strcmp(argv[1], "nvtx") == 0)
		nvtx();
	else
		profiler(argc > 1 && strcmp(argv[1], "profiler2") == 0);
	cuda_tell();
	return 0;
}
