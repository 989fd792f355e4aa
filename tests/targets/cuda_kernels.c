/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_kernels WHAT: kernels that take a while, and memory that the driver keeps. Runs on the stand-in of tests/fakes and on a GPU.
 *
 *     times SEED THREADS COUNT [kill]
 *                   each thread has a stream and launches kernels of random length in each way, between two events; with `kill` it
 *                   prints "ready" and waits to be killed
 *     graph SEED LAUNCHES
 *                   a graph of kernels, captured from a stream, and launched so often
 *     profiler ORDER
 *                   launches ten kernels, then takes activity records as a tool does (ORDER: "register" or "enable" comes first), and
 *                   launches ten more; prints how many records it got
 *     pools SEED, nodes SEED
 *                   memory of pools that keep it, and of nodes of graphs; prints what the driver keeps at each level, and waits there
 *                   until the file that NVML_ASKED names has grown, to which somebody adds a byte for each question to NVML
 *
 * What was launched goes to the file that TRUTH names, a line of JSON for each kernel:
 *
 *     {"tid":7,"name":"spin_kernel","way":"ex","asked_ns":2000,"event_ns":2816,"before_ns":1,"behind_ns":2}     the last two by the wall clock
 */
#include <sys/stat.h>
#include <time.h>

#include "cuda_driver.h"

#define MIB ((size_t)1 << 20)

static const char ptx[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
#define SPIN(name)                                                                                 \
	".visible .entry " name "(.param .u64 ns)\n{\n"                                            \
	"\t.reg .u64 %begin, %now, %ns;\n\t.reg .pred %more;\n"                                    \
	"\tld.param.u64 %ns, [ns];\n\tmov.u64 %begin, %globaltimer;\n"                             \
	"again:\n\tmov.u64 %now, %globaltimer;\n\tsub.u64 %now, %now, %begin;\n"                   \
	"\tsetp.lt.u64 %more, %now, %ns;\n\t@%more bra again;\n\tret;\n}\n"
	SPIN("spin_kernel") SPIN("_ZN5shape6kernel4spinIfLi4EEEvPT_m");

static const char *const names[] = {"spin_kernel", "_ZN5shape6kernel4spinIfLi4EEEvPT_m"};
static cu_handle kernels[2];
static int out = 1;

static uint64_t wall_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint32_t next(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33);
}

static void load(void)
{
	const char *path = getenv("TRUTH");
	cu_handle module;
	int i;

	CUDA(cuModuleLoadData(&module, ptx));
	for (i = 0; i < 2; i++)
		CUDA(cuModuleGetFunction(&kernels[i], module, names[i]));
	if (path != NULL)
		out = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
}

static const char *const ways[] = {"plain", "ex", "cooperative"};

static void launch(uint32_t way, uint32_t kernel, uint64_t ns, cu_handle stream)
{
	struct cu_launch_config config = {.grid = {1, 1, 1}, .block = {1, 1, 1}, .stream = stream};
	void *arguments[] = {&ns, NULL};

	if (way == 0)
		CUDA(cuLaunchKernel(kernels[kernel], 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
	else if (way == 1)
		CUDA(cuLaunchKernelEx(&config, kernels[kernel], arguments, NULL));
	else
		CUDA(cuLaunchCooperativeKernel(kernels[kernel], 1, 1, 1, 1, 1, 1, 0, stream,
					       arguments));
}

/* ---- times ---- */

struct work {
	pthread_t thread;
	uint64_t seed;
	int count;
};

static void tell(const char *name, const char *way, uint64_t asked_ns, float event_ms,
		 uint64_t before_ns, uint64_t behind_ns)
{
	char line[512];
	int length = snprintf(line, sizeof(line),
			      "{\"tid\":%ld,\"name\":\"%s\",\"way\":\"%s\",\"asked_ns\":%llu,"
			      "\"event_ns\":%.0f,\"before_ns\":%llu,\"behind_ns\":%llu}\n",
			      syscall(SYS_gettid), name, way, (unsigned long long)asked_ns,
			      (double)event_ms * 1e6, (unsigned long long)before_ns,
			      (unsigned long long)behind_ns);

	if (write(out, line, (size_t)length) != length)
		cuda_fail("cannot tell", 0);
}

static void *work(void *argument)
{
	struct work *w = argument;
	uint64_t seed = w->seed, before_ns, ns;
	cu_handle stream, from, to;
	float ms;
	int i;

	CUDA(cuCtxSetCurrent(cuda_contexts[0]));
	CUDA(cuStreamCreate(&stream, 1));
	CUDA(cuEventCreate(&from, 0));
	CUDA(cuEventCreate(&to, 0));
	for (i = 0; i < w->count; i++) {
		uint32_t way = next(&seed) % 3, kernel = next(&seed) % 2;

		ns = 20000 + next(&seed) % 300000;
		before_ns = wall_ns();
		CUDA(cuEventRecord(from, stream));
		launch(way, kernel, ns, stream);
		CUDA(cuEventRecord(to, stream));
		CUDA(cuStreamSynchronize(stream));
		CUDA(cuEventElapsedTime(&ms, from, to));
		tell(names[kernel], ways[way], ns, ms, before_ns, wall_ns());
	}
	return NULL;
}

static void times(uint64_t seed, int threads, int count, bool waits)
{
	struct work *all = calloc((size_t)threads, sizeof(*all));
	int i;

	for (i = 0; i < threads; i++) {
		all[i] = (struct work){.seed = seed * 1000 + (uint64_t)i, .count = count};
		(void)pthread_create(&all[i].thread, NULL, work, &all[i]);
	}
	for (i = 0; i < threads; i++)
		(void)pthread_join(all[i].thread, NULL);
	if (waits) {
		(void)printf("ready %d\n", getpid());
		(void)fflush(stdout);
		for (;;)
			(void)pause();
	}
}

/* ---- graphs ---- */

static void graph(uint64_t seed, int times)
{
	cu_handle stream, captured, ready, from, to;
	int nodes = 3 + (int)(next(&seed) % 20), i;
	uint64_t sum = 0;
	float ms;

	CUDA(cuStreamCreate(&stream, 1));
	CUDA(cuEventCreate(&from, 0));
	CUDA(cuEventCreate(&to, 0));
	CUDA(cuStreamBeginCapture(stream, 0));
	for (i = 0; i < nodes; i++) {
		uint64_t ns = 20000 + next(&seed) % 50000;

		launch(0, (uint32_t)i % 2, ns, stream);
		sum += ns;
	}
	CUDA(cuStreamEndCapture(stream, &captured));
	CUDA(cuGraphInstantiateWithFlags(&ready, captured, 0));
	for (i = 0; i < times; i++) {
		uint64_t before_ns = wall_ns();

		CUDA(cuEventRecord(from, stream));
		CUDA(cuGraphLaunch(ready, stream));
		CUDA(cuEventRecord(to, stream));
		CUDA(cuStreamSynchronize(stream));
		CUDA(cuEventElapsedTime(&ms, from, to));
		tell("cuGraphLaunch", "graph", sum, ms, before_ns, wall_ns());
	}
	CUDA(cuGraphExecDestroy(ready));
	CUDA(cuGraphDestroy(captured));
	(void)printf("{\"nodes\":%d}\n", nodes);
}

/* ---- another tool's records ---- */

extern int cuptiActivityRegisterCallbacks(void (*)(uint8_t **, size_t *, size_t *),
					  void (*)(void *, uint32_t, uint8_t *, size_t, size_t))
	__attribute__((weak));
extern int cuptiActivityEnable(uint32_t) __attribute__((weak));
extern int cuptiActivityFlushAll(uint32_t) __attribute__((weak));
extern int cuptiActivityGetNextRecord(uint8_t *, size_t, void **) __attribute__((weak));

static _Atomic int got, strange;

static void on_request(uint8_t **buffer, size_t *bytes, size_t *records)
{
	*buffer = aligned_alloc(8, MIB);
	*bytes = MIB;
	*records = 0;
}

static void on_complete(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid)
{
	void *record = NULL;

	(void)context;
	(void)stream;
	if (bytes != MIB)
		strange++;
	while (valid != 0 && cuptiActivityGetNextRecord(buffer, valid, &record) == 0)
		got += *(uint32_t *)record == 10;
	free(buffer);
}

static void profiler(bool register_first)
{
	int results[2], i;

	for (i = 0; i < 10; i++)
		launch(0, 0, 20000, NULL);
	CUDA(cuCtxSynchronize());
	if (register_first) {
		results[0] = cuptiActivityRegisterCallbacks(on_request, on_complete);
		results[1] = cuptiActivityEnable(10);
	} else {
		results[1] = cuptiActivityEnable(10);
		results[0] = cuptiActivityRegisterCallbacks(on_request, on_complete);
	}
	for (i = 0; i < 10; i++)
		launch(1, 1, 20000, NULL);
	CUDA(cuCtxSynchronize());
	(void)cuptiActivityFlushAll(1);
	(void)printf("{\"registered\":%d,\"enabled\":%d,\"got\":%d,\"strange\":%d}\n", results[0],
		     results[1], got, strange);
}

/* ---- what the driver keeps ---- */

static uint64_t pool_figure(cu_handle pool, int attribute)
{
	uint64_t value = 0;

	CUDA(cuMemPoolGetAttribute(pool, attribute, &value));
	return value;
}

static uint64_t graph_figure(int attribute)
{
	uint64_t value = 0;

	CUDA(cuDeviceGetGraphMemAttribute(0, attribute, &value));
	return value;
}

static uint64_t live_bytes; /* in pools of the driver */

static off_t asked(const char *path)
{
	struct stat info;

	return stat(path, &info) == 0 ? info.st_size : 0;
}

static void level(const char *what, cu_handle pool, cu_handle own)
{
	const char *path = getenv("NVML_ASKED");
	uint64_t reserved =
		(pool == NULL ? 0 : pool_figure(pool, 5)) + (own == NULL ? 0 : pool_figure(own, 5));
	size_t left, total;
	off_t begin = path == NULL ? 0 : asked(path);

	CUDA(cuMemGetInfo(&left, &total));
	(void)printf(
		"{\"level\":\"%s\",\"used\":%zu,\"reserved\":%llu,\"kept\":%llu,\"graphs\":%llu}\n",
		what, total - left, (unsigned long long)reserved,
		(unsigned long long)(reserved > live_bytes ? reserved - live_bytes : 0),
		(unsigned long long)graph_figure(2));
	(void)fflush(stdout);
	if (path == NULL) {
		(void)usleep(1500000);
		return;
	}
	while (asked(path) < begin + 12)
		(void)usleep(10000);
}

static struct sized {
	cu_address address;
	size_t bytes;
} sizes[64];
static int sized;

static void take_blocks(cu_address *blocks, int count, uint64_t *seed, cu_handle pool,
			cu_handle stream)
{
	int i;

	for (i = 0; i < count; i++) {
		size_t bytes = (16 + next(seed) % 64) * MIB + next(seed) % 5000;

		if (pool == NULL)
			CUDA(cuMemAllocAsync(&blocks[i], bytes, stream));
		else
			CUDA(cuMemAllocFromPoolAsync(&blocks[i], bytes, pool, stream));
		cuda_took(blocks[i], bytes, 0, "HAL");
		live_bytes += bytes;
		sizes[sized++ % 64] = (struct sized){blocks[i], bytes};
	}
}

static void give_blocks(cu_address *blocks, int count, cu_handle stream)
{
	int i, k;

	for (i = 0; i < count; i++) {
		for (k = 0; sizes[k].address != blocks[i]; k++)
			;
		live_bytes -= sizes[k].bytes;
		sizes[k].address = 0;
		cuda_gives(blocks[i]);
		CUDA(cuMemFreeAsync(blocks[i], stream));
	}
}

static void keeping_pools(uint64_t seed)
{
	struct cu_pool_properties properties = {.type = 1, .location = {1, 0}};
	uint64_t all = UINT64_MAX;
	cu_address first[8], second[8], plain;
	cu_handle stream, standard, own;

	CUDA(cuStreamCreate(&stream, 1));
	CUDA(cuDeviceGetDefaultMemPool(&standard, 0));
	CUDA(cuMemPoolSetAttribute(standard, 4, &all));
	CUDA(cuMemPoolCreate(&own, &properties));
	CUDA(cuMemPoolSetAttribute(own, 4, &all));
	level("begin", standard, own);
	CUDA(cuMemAlloc(&plain, 24 * MIB));
	cuda_took(plain, 24 * MIB, 0, "HAL");
	take_blocks(first, 8, &seed, NULL, stream);
	take_blocks(second, 8, &seed, own, stream);
	CUDA(cuStreamSynchronize(stream));
	level("taken", standard, own);
	give_blocks(first, 8, stream);
	give_blocks(second, 4, stream);
	CUDA(cuStreamSynchronize(stream));
	level("kept", standard, own);
	CUDA(cuMemPoolTrimTo(standard, 64 * MIB));
	level("trimmed", standard, own);
	give_blocks(second + 4, 4, stream);
	CUDA(cuStreamSynchronize(stream));
	CUDA(cuMemPoolDestroy(own));
	level("destroyed", standard, NULL);
	/* A pool that keeps nothing gives back when the program waits. */
	all = 0;
	CUDA(cuMemPoolSetAttribute(standard, 4, &all));
	take_blocks(first, 4, &seed, NULL, stream);
	give_blocks(first, 4, stream);
	CUDA(cuStreamSynchronize(stream));
	level("waited", standard, NULL);
	take_blocks(first, 4, &seed, NULL, stream);
	level("end", standard, NULL);
	give_blocks(first, 4, stream);
	cuda_gives(plain);
	CUDA(cuMemFree(plain));
}

static void memory_nodes(uint64_t seed)
{
	cu_handle built, ready, node, free_node, stream, captured, second;
	struct cu_alloc_node wanted = {.properties = {.type = 1, .location = {1, 0}}};
	cu_address inside, plain;

	CUDA(cuStreamCreate(&stream, 1));
	level("begin", NULL, NULL);
	CUDA(cuMemAlloc(&plain, 24 * MIB));
	cuda_took(plain, 24 * MIB, 0, "HAL");
	/* A graph that takes memory and gives it back. */
	CUDA(cuGraphCreate(&built, 0));
	wanted.bytes = (200 + next(&seed) % 300) * MIB;
	CUDA(cuGraphAddMemAllocNode(&node, built, NULL, 0, &wanted));
	CUDA(cuGraphAddMemFreeNode(&free_node, built, &node, 1, wanted.address));
	CUDA(cuGraphInstantiateWithFlags(&ready, built, 0));
	level("made", NULL, NULL);
	CUDA(cuGraphLaunch(ready, stream));
	CUDA(cuStreamSynchronize(stream));
	level("launched", NULL, NULL);
	/* One from a capture, whose memory outlives it. */
	CUDA(cuStreamBeginCapture(stream, 0));
	CUDA(cuMemAllocAsync(&inside, (100 + next(&seed) % 500) * MIB, stream));
	launch(0, 0, 20000, stream);
	CUDA(cuStreamEndCapture(stream, &captured));
	CUDA(cuGraphInstantiateWithFlags(&second, captured, 0));
	CUDA(cuGraphLaunch(second, stream));
	CUDA(cuStreamSynchronize(stream));
	level("captured", NULL, NULL);
	CUDA(cuMemFreeAsync(inside, stream));
	CUDA(cuStreamSynchronize(stream));
	CUDA(cuGraphExecDestroy(ready));
	CUDA(cuGraphExecDestroy(second));
	level("freed", NULL, NULL);
	CUDA(cuDeviceGraphMemTrim(0));
	level("trimmed", NULL, NULL);
	cuda_gives(plain);
	CUDA(cuMemFree(plain));
	CUDA(cuGraphDestroy(built));
	CUDA(cuGraphDestroy(captured));
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	bool is_memory = strcmp(what, "pools") == 0 || strcmp(what, "nodes") == 0;

	cuda_begin();
	load();
	if (strcmp(what, "times") == 0)
		times(seed, atoi(argv[3]), atoi(argv[4]), argc > 5);
	else if (strcmp(what, "graph") == 0)
		graph(seed, atoi(argv[3]));
	else if (strcmp(what, "profiler") == 0)
		profiler(strcmp(argv[2], "register") == 0);
	else if (strcmp(what, "pools") == 0)
		keeping_pools(seed);
	else if (strcmp(what, "nodes") == 0)
		memory_nodes(seed);
	if (is_memory)
		cuda_tell();
	return 0;
}
