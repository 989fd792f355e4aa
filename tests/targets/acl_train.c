/* SPDX-License-Identifier: Apache-2.0 */
/*
 * acl_train [--threads=N] [--devices=N] [--steps=N] [--launches=N] [--workers=N] [--late=N] [--profiler] [--again] [--abrupt]
 * [--plain]: a training as people write it in C against AscendCL. Thread i works on device i modulo --devices, on two streams. A
 * step has the range that the manuals show, blocks of several kinds, and one kernel through each of the ten functions that
 * launch one, --launches times over; every kernel adds 1 to an array on the device, which is looked at in the end. Every third
 * step leaves a block behind. Before its steps a thread registers memory of the program, pinned and not, maps physical memory,
 * and takes some from the driver in each way that other libraries do.
 *
 * --workers forks so many processes before AscendCL is used, each with one device of its own in ASCEND_RT_VISIBLE_DEVICES, and
 * the parent only waits. --late forks them after the training, with all that AscendCL keeps. --again does it all a second time,
 * after aclFinalize(). --abrupt ends without aclFinalize(), --plain has no thread, step or device. --profiler is another tool
 * in the same process: it reads the profiling channel of the first device and has callbacks of its own, and says on stdout how
 * much it got.
 *
 * The truth (client.h) has also ["acl",0,"init"], ["acl",0,"fini"] and ["launch",0,device,stream,name]; blocks are those that
 * the driver sees. What ran when is in the log of the simulated device (SIMNPU_LOG), not here.
 */
#include "client.h"

#include <sys/wait.h>

#include "acl/acl.h"
#include "mstx/ms_tools_ext.h"
#include "profiling/prof_api.h"
#include "runtime/rt.h"
#include "simnpu.h"

#define NUMBERS	     256
#define STREAMS	     2
#define WORKERS_MAX  8
#define PAGE	     4096
#define HUGE_PAGE    (2 * MIB)
#define RECORD_BYTES 64

#define DO(call) target_check((call) == 0, #call " failed")

/* A kernel's arguments. */
struct span {
	uint32_t *numbers;
	uint64_t count;
};

struct stream {
	aclrtStream handle;
	uint64_t number;
};

struct worker {
	pthread_t thread;
	unsigned number;
	unsigned device; /* as the program calls it */
	struct log *log;
	struct stream streams[STREAMS];
	struct span span;
};

struct held {
	uint64_t id;
	void *address; /* or handle */
};

static unsigned devices_count;
static unsigned steps_count;
static unsigned launches_count;

/* ---- what the program says of itself ---- */

static void log_word(struct log *log, const char *op, const char *word)
{
	log_begin(log, op, 0);
	log_string(log, word);
	log_end(log);
}

static struct held log_block(struct log *log, void *address, uint64_t size, int device,
			     const char *kind, const char *page)
{
	struct held block = {log->next_id++, address};

	log_begin(log, "malloc", block.id);
	log_number(log, (uint64_t)(uintptr_t)address);
	log_number(log, size);
	log_number(log, device < 0 ? UINT64_MAX : device_physical((unsigned)device));
	log_string(log, kind);
	log_string(log, page);
	log_end(log);
	return block;
}

static void log_free(struct log *log, const struct held *block)
{
	log_begin(log, "free", block->id);
	log_end(log);
}

static void write_truth(void)
{
	log_write("acl", true);
}

/* ---- memory ---- */

/* AscendCL asks the driver for 32 bytes more, and for whole 32s; above 1 MiB for huge pages. */
static struct held take(struct worker *w, size_t size, aclrtMemMallocPolicy policy)
{
	uint64_t asked = (size + 32 + 31) / 32 * 32;
	bool is_huge = policy == ACL_MEM_MALLOC_HUGE_FIRST && asked > MIB;
	void *address;

	DO(aclrtMalloc(&address, size, policy));
	return log_block(w->log, address, asked, (int)w->device, "alloc",
			 is_huge ? "huge" : "normal");
}

static void give_back(struct worker *w, const struct held *block)
{
	log_free(w->log, block);
	DO(aclrtFree(block->address));
}

static struct held take_host(struct worker *w, size_t size)
{
	void *address;

	DO(aclrtMallocHost(&address, size));
	return log_block(w->log, address, size, -1, "host", "normal");
}

static void give_back_host(struct worker *w, const struct held *block)
{
	log_free(w->log, block);
	DO(aclrtFreeHost(block->address));
}

/* Memory that the program has already. Only when pinned does it become memory that somebody took. */
static void register_memory(struct worker *w)
{
	struct held pinned;
	char *memory = aligned_alloc(PAGE, 4 * PAGE);

	target_check(memory != NULL, "no memory");
	DO(aclrtHostRegisterV2(memory, 2 * PAGE, ACL_HOST_REG_MAPPED | ACL_HOST_REG_PINNED));
	pinned = log_block(w->log, memory, 2 * PAGE, -1, "host", "normal");
	DO(aclrtHostRegisterV2(memory + 2 * PAGE, PAGE, ACL_HOST_REG_MAPPED));
	target_check(aclrtHostRegisterV2(memory, PAGE, ACL_HOST_REG_PINNED) != 0,
		     "registered twice");
	DO(aclrtHostUnregister(memory + 2 * PAGE));
	target_check(aclrtHostUnregister(memory + PAGE) != 0, "it was not registered");
	log_free(w->log, &pinned);
	DO(aclrtHostUnregister(memory));
	free(memory);
}

/* Physical memory has a handle, and then a place in a range of addresses, which is no memory itself. */
static void map_memory(struct worker *w, aclrtMemAttr attribute, const char *page)
{
	aclrtPhysicalMemProp property = {.memAttr = attribute,
					 .location = {w->device, ACL_MEM_LOCATION_TYPE_DEVICE}};
	struct held block;
	void *handle;
	void *place;

	DO(aclrtMallocPhysical(&handle, HUGE_PAGE, &property, 0));
	block = log_block(w->log, handle, HUGE_PAGE, (int)w->device, "create", page);
	DO(aclrtReserveMemAddress(&place, 4 * HUGE_PAGE, 0, NULL, 1));
	DO(aclrtMapMem(place, HUGE_PAGE, 0, handle, 0));
	memset(place, (int)w->number, HUGE_PAGE);
	DO(aclrtUnmapMem(place));
	DO(aclrtReleaseMemAddress(place));
	log_free(w->log, &block);
	DO(aclrtFreePhysical(handle));
}

/* What other libraries ask the driver for: each kind of address, and giant pages. */
static void take_spaces(struct worker *w)
{
	static const struct {
		unsigned long long flag;
		uint64_t size;
		const char *kind;
		const char *page;
	} spaces[] = {
		{MEM_SVM | MEM_PAGE_HUGE | MEM_SET_ALIGN(9), 3 * MIB, "alloc", "huge"},
		{MEM_SVM | MEM_SET_ALIGN(9), 100, "alloc", "normal"},
		{MEM_DEV | MEM_TYPE_HBM | MEM_PAGE_GIANT, MIB << 10, "alloc", "giant"},
		{MEM_DVPP | MEM_SET_ALIGN(9), 5000, "alloc", "normal"},
		{MEM_UVM | MEM_SET_ALIGN(9), 6000, "alloc", "normal"},
		{MEM_HOST | MEM_SET_ALIGN(9), 7000, "host", "normal"},
		{MEM_HOST_AGENT | MEM_SET_ALIGN(9), 8000, "host", "normal"},
		{MEM_HOST_UVA | MEM_SET_ALIGN(9), 9000, "host", "normal"},
	};
	unsigned physical = device_physical(w->device);
	struct held held;
	void *address;

	for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++) {
		bool is_host = strcmp(spaces[i].kind, "host") == 0;

		DO(halMemAlloc(&address, spaces[i].size,
			       spaces[i].flag | FLAG_MODULE | (is_host ? 0 : physical)));
		held = log_block(w->log, address, spaces[i].size, is_host ? -1 : (int)w->device,
				 spaces[i].kind, spaces[i].page);
		log_free(w->log, &held);
		DO(halMemFree(address));
	}
}

/* ---- kernels ---- */

static void add_one(void *arguments, size_t size, uint32_t blocks)
{
	struct span span;

	target_check(size == sizeof(span) && blocks == 1, "arguments of a kernel");
	memcpy(&span, arguments, sizeof(span));
	for (uint64_t i = 0; i < span.count; i++)
		span.numbers[i]++;
}

typedef int launch_function(void *kernel, const char *name, struct span *span, void *stream);

static int launch_acl(void *kernel, const char *name, struct span *span, void *stream)
{
	(void)name;
	return aclrtLaunchKernel(kernel, 1, span, sizeof(*span), stream);
}

static int launch_acl_v2(void *kernel, const char *name, struct span *span, void *stream)
{
	(void)name;
	return aclrtLaunchKernelV2(kernel, 1, span, sizeof(*span), NULL, stream);
}

static int launch_acl_config(void *kernel, const char *name, struct span *span, void *stream)
{
	aclrtArgsHandle list;
	aclrtParamHandle parameter;

	(void)name;
	DO(aclrtKernelArgsInit(kernel, &list));
	DO(aclrtKernelArgsAppend(list, span, sizeof(*span), &parameter));
	DO(aclrtKernelArgsFinalize(list));
	return aclrtLaunchKernelWithConfig(kernel, 1, stream, NULL, list, NULL);
}

static int launch_acl_host(void *kernel, const char *name, struct span *span, void *stream)
{
	(void)name;
	return aclrtLaunchKernelWithHostArgs(kernel, 1, stream, NULL, span, sizeof(*span), NULL, 0);
}

static int launch_rt(void *kernel, const char *name, struct span *span, void *stream)
{
	(void)name;
	return rtKernelLaunch(kernel, 1, span, sizeof(*span), NULL, stream);
}

static int launch_rt_handle(void *kernel, const char *name, struct span *span, void *stream)
{
	rtArgsEx_t arguments = {.args = span, .argsSize = sizeof(*span)};

	(void)name;
	return rtKernelLaunchWithHandleV2(kernel, 0, 1, &arguments, NULL, stream, NULL);
}

static int launch_rt_flag(void *kernel, const char *name, struct span *span, void *stream)
{
	rtArgsEx_t arguments = {.args = span, .argsSize = sizeof(*span)};

	(void)name;
	return rtKernelLaunchWithFlagV2(kernel, 1, &arguments, NULL, stream, 0, NULL);
}

static int launch_rt_aicpu(void *kernel, const char *name, struct span *span, void *stream)
{
	rtAicpuArgsEx_t arguments = {.args = span, .argsSize = sizeof(*span)};

	(void)kernel;
	return rtAicpuKernelLaunchExWithArgs(0, name, 1, &arguments, NULL, stream, 0);
}

static rtArgsHandle list_of(void *kernel, struct span *span)
{
	rtParaHandle parameter;
	rtArgsHandle list;

	DO(rtsKernelArgsInit(kernel, &list));
	DO(rtsKernelArgsAppend(list, span, sizeof(*span), &parameter));
	DO(rtsKernelArgsFinalize(list));
	return list;
}

static int launch_rt_func(void *kernel, const char *name, struct span *span, void *stream)
{
	(void)name;
	return rtLaunchKernelByFuncHandle(kernel, 1, list_of(kernel, span), stream);
}

static int launch_rt_func_v2(void *kernel, const char *name, struct span *span, void *stream)
{
	(void)name;
	return rtLaunchKernelByFuncHandleV2(kernel, 1, list_of(kernel, span), stream, NULL);
}

static struct {
	launch_function *launch;
	const char *name;
	void *kernel;
} kernels[] = {
	{launch_acl, "MatMul_k1", NULL},
	{launch_acl_v2, "Add_k2", NULL},
	{launch_acl_config, "Cast,fp16,fp32_k3", NULL},
	{launch_acl_host, "Softmax\"v2\"_k4", NULL},
	{launch_rt, "Conv2D_k5", NULL},
	{launch_rt_handle, "LayerNorm_k6", NULL},
	{launch_rt_flag, "转置_k7", NULL},
	{launch_rt_aicpu, "TopK_aicpu_k8", NULL},
	{launch_rt_func, "Gelu_k9", NULL},
	{launch_rt_func_v2, "ReduceSum_k10", NULL},
};

enum { KERNEL_COUNT = sizeof(kernels) / sizeof(kernels[0]) };

static void launch(struct worker *w, size_t kernel, const struct stream *stream)
{
	DO(kernels[kernel].launch(kernels[kernel].kernel, kernels[kernel].name, &w->span,
				  stream->handle));
	log_begin(w->log, "launch", 0);
	log_number(w->log, device_physical(w->device));
	log_number(w->log, stream->number);
	log_string(w->log, kernels[kernel].name);
	log_end(w->log);
}

/* ---- the training ---- */

static void step(struct worker *w, unsigned round)
{
	const struct stream *stream = &w->streams[round % STREAMS];
	uint32_t host[NUMBERS] = {0};
	struct held tensor, large, pinned;
	uint64_t range;

	range = mstxRangeStartA("step start", stream->handle);
	log_begin(w->log, "range_start", range);
	log_string(w->log, NULL);
	log_string(w->log, "step start");
	log_end(w->log);
	tensor = take(w, sizeof(host), ACL_MEM_MALLOC_HUGE_FIRST);
	large = take(w, (1 + round % 3) * MIB,
		     round % 2 ? ACL_MEM_MALLOC_HUGE_FIRST : ACL_MEM_MALLOC_NORMAL_ONLY);
	pinned = take_host(w, PAGE + round);
	/* Copies and events are tasks too, but no kernels. */
	DO(aclrtMemcpyAsync(tensor.address, sizeof(host), host, sizeof(host),
			    ACL_MEMCPY_HOST_TO_DEVICE, stream->handle));
	w->span = (struct span){tensor.address, NUMBERS};
	for (unsigned i = 0; i < launches_count; i++) {
		for (size_t kernel = 0; kernel < KERNEL_COUNT; kernel++)
			launch(w, kernel, stream);
	}
	DO(aclrtSynchronizeStream(stream->handle));
	DO(aclrtMemcpy(host, sizeof(host), tensor.address, sizeof(host),
		       ACL_MEMCPY_DEVICE_TO_HOST));
	for (unsigned i = 0; i < NUMBERS; i++)
		target_check(host[i] == launches_count * KERNEL_COUNT, "the kernels did not run");
	give_back_host(w, &pinned);
	give_back(w, &large);
	if (round % 3 != 2)
		give_back(w, &tensor);
	mstxMarkA("optimizer", stream->handle);
	log_begin(w->log, "mark", 0);
	log_string(w->log, NULL);
	log_string(w->log, "optimizer");
	log_end(w->log);
	mstxRangeEnd(range);
	log_begin(w->log, "range_end", range);
	log_string(w->log, NULL);
	log_end(w->log);
}

static void open_streams(struct worker *w)
{
	DO(aclrtSetDevice((int32_t)w->device));
	for (unsigned i = 0; i < STREAMS; i++) {
		int32_t number;

		DO(aclrtCreateStream(&w->streams[i].handle));
		DO(aclrtStreamGetId(w->streams[i].handle, &number));
		w->streams[i].number = (uint64_t)number;
	}
}

static void *work(void *argument)
{
	struct worker *w = argument;

	w->log = log_new();
	w->device = w->number % devices_count;
	open_streams(w);
	register_memory(w);
	map_memory(w, ACL_HBM_MEM_HUGE, "huge");
	map_memory(w, ACL_HBM_MEM_NORMAL, "normal");
	take_spaces(w);
	for (unsigned round = 0; round < steps_count; round++)
		step(w, round);
	for (unsigned i = 0; i < STREAMS; i++)
		DO(aclrtDestroyStream(w->streams[i].handle));
	DO(aclrtResetDevice((int32_t)w->device));
	return NULL;
}

static void train(struct log *log, unsigned threads_count)
{
	struct worker workers[WORKERS_MAX] = {{0}};

	DO(aclInit(NULL));
	log_word(log, "acl", "init");
	target_check(aclInit(NULL) != 0, "AscendCL can be initialised twice");
	for (size_t i = 0; i < KERNEL_COUNT; i++)
		DO(simnpuRegisterKernel(kernels[i].name, add_one, &kernels[i].kernel));
	for (unsigned i = 0; i < threads_count; i++) {
		workers[i].number = i;
		DO(pthread_create(&workers[i].thread, NULL, work, &workers[i]));
	}
	for (unsigned i = 0; i < threads_count; i++)
		DO(pthread_join(workers[i].thread, NULL));
}

static void end(struct log *log)
{
	DO(aclFinalize());
	log_word(log, "acl", "fini");
	target_check(aclFinalize() != 0, "AscendCL can be finalised twice");
}

static void mark(struct log *log, const char *message)
{
	mstxMarkA(message, NULL);
	log_begin(log, "mark", 0);
	log_string(log, NULL);
	log_string(log, message);
	log_end(log);
}

/* ---- other processes ---- */

static void wait_all(const pid_t *children, unsigned count)
{
	int status;

	for (unsigned i = 0; i < count; i++)
		target_check(waitpid(children[i], &status, 0) == children[i] && status == 0,
			     "a child failed");
}

/* A launcher: each process sees one device, which it calls 0. */
static void run_workers(struct log *log, unsigned count, unsigned threads_count)
{
	pid_t children[WORKERS_MAX];
	char list[16];

	mark(log, "launcher");
	for (unsigned i = 0; i < count; i++) {
		children[i] = fork();
		target_check(children[i] >= 0, "fork failed");
		if (children[i] != 0)
			continue;
		(void)snprintf(list, sizeof(list), "%u", count - i);
		DO(setenv("ASCEND_RT_VISIBLE_DEVICES", list, 1));
		atomic_store(&logs_count, 0);
		log = log_new();
		train(log, threads_count);
		end(log);
		write_truth();
		exit(0);
	}
	wait_all(children, count);
}

/* Children that go on with the parent's device, which is theirs alone from then on. */
static void run_late(unsigned count)
{
	pid_t children[WORKERS_MAX];

	for (unsigned i = 0; i < count; i++) {
		struct worker w = {.number = i};

		children[i] = fork();
		target_check(children[i] >= 0, "fork failed");
		if (children[i] != 0)
			continue;
		atomic_store(&logs_count, 0);
		w.log = log_new();
		open_streams(&w);
		for (unsigned round = 0; round < steps_count; round++)
			step(&w, round);
		end(w.log);
		write_truth();
		exit(0);
	}
	wait_all(children, count);
}

/* ---- another tool ---- */

static atomic_uint_fast64_t tracks;

static int32_t on_compact(uint32_t aging, const void *data, uint32_t length)
{
	const struct MsprofCompactInfo *record = data;

	(void)aging;
	target_check(length == sizeof(*record), "length of a record");
	if (record->type == RT_PROFILE_TYPE_TASK_TRACK && record->data.runtimeTrack.kernelName != 0)
		atomic_fetch_add(&tracks, 1);
	return 0;
}

static void profiler_start(void)
{
	int32_t (*callback)(uint32_t, const void *, uint32_t) = on_compact;
	uint32_t enable[9] = {1};
	struct prof_start_para para = {.sample_period = 20,
				       .real_time = 1,
				       .user_data = enable,
				       .user_data_size = sizeof(enable)};
	MsprofCommandHandle command = {.profSwitch = PROF_TASK_TIME | PROF_RUNTIME_TRACE,
				       .devNums = 1,
				       .type = PROF_COMMANDHANDLE_TYPE_START};

	DO(prof_drv_start(0, CHANNEL_STARS_SOC_LOG_BUFFER, &para));
	DO(MsprofRegisterProfileCallback(PROFILE_REPORT_COMPACT_CALLBACK, *(void **)&callback,
					 sizeof(callback)));
	DO(profSetProfCommand(&command, sizeof(command)));
}

static void profiler_stop(void)
{
	uint64_t bytes = 0;
	char buffer[1024 * RECORD_BYTES];
	int got;

	while ((got = prof_channel_read(0, CHANNEL_STARS_SOC_LOG_BUFFER, buffer, sizeof(buffer))) >
	       0)
		bytes += (uint64_t)got;
	DO(prof_stop(0, CHANNEL_STARS_SOC_LOG_BUFFER));
	printf("records %llu tracks %llu\n", (unsigned long long)(bytes / RECORD_BYTES),
	       (unsigned long long)atomic_load(&tracks));
}

int main(int argc, char **argv)
{
	unsigned threads_count = option_number(argc, argv, "--threads", 1);
	unsigned workers_count = option_number(argc, argv, "--workers", 0);
	unsigned late_count = option_number(argc, argv, "--late", 0);
	bool has_profiler = option_set(argc, argv, "--profiler");
	struct log *log = log_new();

	devices_count = option_number(argc, argv, "--devices", 1);
	steps_count = option_number(argc, argv, "--steps", 4);
	launches_count = option_number(argc, argv, "--launches", 1);
	target_check(threads_count <= WORKERS_MAX && workers_count <= WORKERS_MAX &&
			     late_count <= WORKERS_MAX,
		     "at most 8");
	if (option_set(argc, argv, "--plain"))
		threads_count = 0;
	if (workers_count > 0) {
		run_workers(log, workers_count, threads_count);
		write_truth();
		return 0;
	}
	if (has_profiler)
		profiler_start();
	train(log, threads_count);
	run_late(late_count);
	if (has_profiler)
		profiler_stop();
	if (option_set(argc, argv, "--again")) {
		end(log);
		train(log, threads_count);
	}
	if (!option_set(argc, argv, "--abrupt"))
		end(log);
	write_truth();
	return 0;
}
