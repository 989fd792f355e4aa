/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_ops WORD...: operators on four blocks of device memory, told to the collector as a framework in Python would tell them
 * (api.def), by the names of its functions. Words, in the order they happen:
 *
 *     NAME=WRITTEN:OUTPUTS     operator NAME adds 1 to each byte of the blocks WRITTEN (digits), declares to write the blocks
 *                              OUTPUTS and gives them;
 *                              of an output 4 + B there are only the bytes from 1 MiB on, 100 of them
 *     !B                       a kernel that is handed block B adds 1 to it outside of any operator
 *     ?B                       a kernel that is handed nothing of block B does
 *     watch:B:NAME:LIMIT       the program watches block B; LIMIT -1: any number of dumps
 *     found:B:NAME:LIMIT       the same by its address alone, with another device as a guess
 *     remove:B                 and no longer
 *     limit:BYTES              from here on no file of the program may be longer
 *     free:B                   gives block B back; it is not used again
 *
 * Blocks are written by kernels that take a while, on a stream that nobody waits for: whoever reads too early reads old bytes.
 * Byte i of block B is 7 * i + B + the number of times that 1 was added. Each begin and end of an operator, and each other word,
 * is a line of JSON on stdout with these numbers. --host: the blocks are the host's, and nothing is asynchronous.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "acl/acl.h"
#include "simnpu.h"
#include "target.h"

#define BLOCKS	     4u
#define HOST	     0u /* devices as PyTorch's core numbers them */
#define NPU	     (20u << 8)
#define OTHER_NPU    (20u << 8 | 1u)
#define INNER_AT     (1u << 20)
#define INNER_BYTES  100u
#define KERNEL_US    3000
#define DO(call)     target_check((call) == 0, #call " failed")
#define SYMBOL(name) find((void **)&name, #name)

static const size_t sizes[BLOCKS] = {4096, 1000, (3 << 20) + 17, 1};

static uint64_t (*mscope_watch_op_begin)(uint32_t, const char *, const char *, uint64_t);
static void (*mscope_watch_op_end)(uint64_t, uint32_t, const char *, const char *, uint64_t,
				   const uint64_t *, const uint64_t *, uint32_t);
static void (*mscope_watch_writes)(const uint64_t *, const uint64_t *, uint32_t, uint32_t);
static int (*mscope_watch_add)(uint64_t, uint64_t, const char *, int64_t, uint32_t, uint32_t);
static int (*mscope_watch_remove)(uint64_t, uint64_t);

static uint8_t *blocks[BLOCKS];
static unsigned added[BLOCKS];
static aclrtStream stream;
static bool on_host;

struct span {
	uint8_t *bytes;
	uint64_t count;
};

static void find(void **out, const char *name)
{
	*out = dlsym(RTLD_DEFAULT, name);
	target_check(*out != NULL, "the collector is not loaded");
}

static void bump(const struct span *span)
{
	uint64_t i;

	for (i = 0; i < span->count; i++)
		span->bytes[i]++;
}

static void bump_late(void *arguments, size_t size, uint32_t blocks_asked)
{
	(void)size;
	(void)blocks_asked;
	usleep(KERNEL_US);
	bump(arguments);
}

static void bump_hidden(void *arguments, size_t size, uint32_t blocks_asked)
{
	struct span *span;

	memcpy(&span, arguments, sizeof(span));
	bump_late(span, size, blocks_asked);
}

static void write_block(unsigned b, const char *kernel_name)
{
	struct span span = {blocks[b], sizes[b]};
	aclrtFuncHandle kernel;

	added[b]++;
	if (on_host) {
		bump(&span);
		return;
	}
	DO(simnpuRegisterKernel(kernel_name, bump_late, &kernel));
	DO(aclrtLaunchKernel(kernel, 1, &span, sizeof(span), stream));
}

static void write_hidden(unsigned b)
{
	static struct span spans[BLOCKS];
	struct span *span = &spans[b];
	aclrtFuncHandle kernel;

	added[b]++;
	*span = (struct span){blocks[b], sizes[b]};
	DO(simnpuRegisterKernel("hidden", bump_hidden, &kernel));
	DO(aclrtLaunchKernel(kernel, 1, &span, sizeof(span), stream));
}

static void say(const char *what, const char *name, const char *list)
{
	printf("{\"what\": \"%s\", \"name\": \"%s\", \"list\": \"%s\", \"tid\": %ld, \"added\": "
	       "[%u, "
	       "%u, %u, %u]}\n",
	       what, name, list, syscall(SYS_gettid), added[0], added[1], added[2], added[3]);
	(void)fflush(stdout);
}

static void operate(char *word)
{
	uint32_t device = on_host ? HOST : NPU, count = 0;
	char *written = strchr(word, '='), *outputs, *at, kernel[128];
	uint64_t addresses[BLOCKS], lengths[BLOCKS], number;
	uint64_t on = on_host ? UINT64_MAX : (uint64_t)(uintptr_t)stream;

	*written++ = '\0';
	outputs = strchr(written, ':');
	target_check(outputs != NULL, "NAME=WRITTEN:OUTPUTS");
	*outputs++ = '\0';
	for (at = outputs; *at != '\0'; at++, count++) {
		unsigned b = (unsigned)(*at - '0') % BLOCKS;
		bool inner = (unsigned)(*at - '0') >= BLOCKS;

		addresses[count] = (uint64_t)(uintptr_t)blocks[b] + (inner ? INNER_AT : 0);
		lengths[count] = inner ? INNER_BYTES : sizes[b];
	}
	say("begin", word, "");
	number = mscope_watch_op_begin(device, word, "", on);
	mscope_watch_writes(addresses, lengths, count, 0);
	for (at = written; *at != '\0'; at++) {
		(void)snprintf(kernel, sizeof(kernel), "k_%s_%c", word, *at);
		say("launch", kernel, "");
		write_block((unsigned)(*at - '0'), kernel);
		say("launched", kernel, "");
	}
	say("end", word, outputs);
	mscope_watch_op_end(number, device, word, "", on, addresses, lengths, count);
}

static void watch_block(char *word)
{
	unsigned b = (unsigned)(word[6] - '0');
	char *name = word + 8, *limit = strchr(name, ':'), list[32];

	*limit++ = '\0';
	(void)snprintf(list, sizeof(list), "%u %s", b, limit);
	say("watch", name, list);
	DO(mscope_watch_add((uint64_t)(uintptr_t)blocks[b], sizes[b], name,
			    strtoll(limit, NULL, 10),
			    word[0] == 'f' ? OTHER_NPU
			    : on_host	   ? HOST
					   : NPU,
			    word[0] != 'f'));
}

static void obey(char *word)
{
	if (strchr(word, '=') != NULL) {
		operate(word);
	} else if (word[0] == '!') {
		say("stray", word + 1, "");
		write_block((unsigned)(word[1] - '0'), "stray");
		say("strayed", word + 1, "");
	} else if (word[0] == '?') {
		say("stray", word + 1, "");
		write_hidden((unsigned)(word[1] - '0'));
		say("strayed", word + 1, "");
	} else if (strncmp(word, "watch:", 6) == 0 || strncmp(word, "found:", 6) == 0) {
		watch_block(word);
	} else if (strncmp(word, "remove:", 7) == 0) {
		unsigned b = (unsigned)(word[7] - '0');

		say("remove", word + 7, "");
		/* Not when END has ended it already. */
		(void)mscope_watch_remove((uint64_t)(uintptr_t)blocks[b], sizes[b]);
	} else if (strncmp(word, "limit:", 6) == 0) {
		rlim_t bytes = strtoull(word + 6, NULL, 10);

		DO(setrlimit(RLIMIT_FSIZE, &(struct rlimit){bytes, bytes}));
	} else if (strncmp(word, "free:", 5) == 0) {
		unsigned b = (unsigned)(word[5] - '0');

		say("free", word + 5, "");
		DO(aclrtSynchronizeStream(stream));
		DO(aclrtFree(blocks[b]));
		blocks[b] = NULL;
	} else {
		target_check(false, "no such word");
	}
}

int main(int argc, char **argv)
{
	int first = 1;
	unsigned b;
	size_t i;

	if (argc > 1 && strcmp(argv[1], "--host") == 0) {
		on_host = true;
		first = 2;
	}
	SYMBOL(mscope_watch_op_begin);
	SYMBOL(mscope_watch_op_end);
	SYMBOL(mscope_watch_writes);
	SYMBOL(mscope_watch_add);
	SYMBOL(mscope_watch_remove);
	DO(aclInit(NULL));
	DO(aclrtSetDevice(0));
	DO(aclrtCreateStream(&stream));
	for (b = 0; b < BLOCKS; b++) {
		if (on_host)
			blocks[b] = malloc(sizes[b]);
		else
			DO(aclrtMalloc((void **)&blocks[b], sizes[b], ACL_MEM_MALLOC_HUGE_FIRST));
		target_check(blocks[b] != NULL, "no memory");
		for (i = 0; i < sizes[b]; i++)
			blocks[b][i] = (uint8_t)(7 * i + b);
	}
	for (; first < argc; first++)
		obey(argv[first]);
	DO(aclrtSynchronizeStream(stream));
	return 0;
}
