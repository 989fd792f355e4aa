/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collective communication of the simulated NPU: several ranks in this process, each with a device and a stream, and ranks in other
 * processes that die. And models, which catch what is put on a stream.
 */
#include "unit.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <acl/acl.h>
#include <hccl/hccl.h>

#define assert_ok(call) assert_int_equal(call, 0)

enum {
	RANKS = 3,
	COUNT = 400000, /* more than a slot holds */
};

struct rank {
	HcclComm comm;
	aclrtStream stream;
	float *send;
	float *receive;
};

static struct rank ranks[RANKS];

static int start_ranks(void **state)
{
	int32_t devices[RANKS] = {0, 1, 2};
	HcclComm comms[RANKS];
	int n;

	(void)state;
	if (aclInit(NULL) || aclrtSetDevice(0) || HcclCommInitAll(RANKS, devices, comms))
		return 1;
	for (n = 0; n < RANKS; n++) {
		ranks[n].comm = comms[n];
		ranks[n].send = malloc(COUNT * RANKS * sizeof(float));
		ranks[n].receive = malloc(COUNT * RANKS * sizeof(float));
		if (aclrtSetDevice(n) || aclrtCreateStream(&ranks[n].stream))
			return 1;
	}
	return 0;
}

static int end_ranks(void **state)
{
	int n;

	(void)state;
	for (n = 0; n < RANKS; n++) {
		if (HcclCommDestroy(ranks[n].comm) || aclrtDestroyStream(ranks[n].stream))
			return 1;
		free(ranks[n].send);
		free(ranks[n].receive);
	}
	return 0;
}

static float value(int rank, size_t n)
{
	return (float)(n % 1000) + 1000 * (float)rank;
}

static void fill(void)
{
	size_t n;
	int r;

	for (r = 0; r < RANKS; r++) {
		for (n = 0; n < COUNT * RANKS; n++) {
			ranks[r].send[n] = value(r, n);
			ranks[r].receive[n] = -1;
		}
	}
}

/* Calls it for all ranks, which run at the same time, and waits for all. */
#define ALL(call)                                                                                  \
	do {                                                                                       \
		int all_r;                                                                         \
                                                                                                   \
		for (all_r = 0; all_r < RANKS; all_r++) {                                          \
			struct rank *k = &ranks[all_r];                                            \
                                                                                                   \
			assert_ok(aclrtSetDevice(all_r));                                          \
			assert_ok(call);                                                           \
		}                                                                                  \
		for (all_r = 0; all_r < RANKS; all_r++) {                                          \
			assert_ok(aclrtSetDevice(all_r));                                          \
			assert_ok(aclrtSynchronizeStream(ranks[all_r].stream));                    \
		}                                                                                  \
	} while (0)

static void every_rank_gets_the_sum_of_all(void **state)
{
	size_t n;
	int r;

	(void)state;
	fill();
	ALL(HcclAllReduce(k->send, k->receive, COUNT, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, k->comm,
			  k->stream));
	for (r = 0; r < RANKS; r++) {
		for (n = 0; n < COUNT; n++)
			assert_true(ranks[r].receive[n] == 3 * (float)(n % 1000) + 3000);
	}
	ALL(HcclAllReduce(k->send, k->receive, 10, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_MAX, k->comm,
			  k->stream));
	assert_true(ranks[0].receive[7] == value(2, 7));
	ALL(HcclReduce(k->send, k->receive, 10, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_MIN, 1, k->comm,
		       k->stream));
	assert_true(ranks[1].receive[7] == value(0, 7) && ranks[0].receive[7] == value(2, 7));
}

static void parts_are_gathered_and_scattered(void **state)
{
	size_t n;
	int r;

	(void)state;
	fill();
	ALL(HcclAllGather(k->send, k->receive, COUNT, HCCL_DATA_TYPE_FP32, k->comm, k->stream));
	for (r = 0; r < RANKS; r++) {
		for (n = 0; n < COUNT * RANKS; n++)
			assert_true(ranks[r].receive[n] == value((int)(n / COUNT), n % COUNT));
	}
	ALL(HcclReduceScatter(k->send, k->receive, COUNT, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM,
			      k->comm, k->stream));
	for (r = 0; r < RANKS; r++) {
		for (n = 0; n < COUNT; n++)
			assert_true(ranks[r].receive[n] == 3 * value(1, (size_t)r * COUNT + n));
	}
	ALL(HcclScatter(k->send, k->receive, COUNT, HCCL_DATA_TYPE_FP32, 1, k->comm, k->stream));
	assert_true(ranks[2].receive[5] == value(1, 2 * COUNT + 5));
	ALL(HcclBroadcast(k->send, COUNT, HCCL_DATA_TYPE_FP32, 2, k->comm, k->stream));
	assert_true(ranks[0].send[COUNT - 1] == value(2, COUNT - 1));
	ALL(HcclBarrier(k->comm, k->stream));
}

static void pairs_send_in_any_order(void **state)
{
	size_t n;
	int r;

	(void)state;
	fill();
	ALL(HcclAlltoAll(k->send, COUNT, HCCL_DATA_TYPE_FP32, k->receive, COUNT,
			 HCCL_DATA_TYPE_FP32, k->comm, k->stream));
	for (r = 0; r < RANKS; r++) {
		for (n = 0; n < COUNT * RANKS; n++)
			assert_true(ranks[r].receive[n] ==
				    value((int)(n / COUNT), (size_t)r * COUNT + n % COUNT));
	}
	/* A ring in which all send before they receive, in one group. */
	for (r = 0; r < RANKS; r++) {
		struct rank *k = &ranks[r];

		assert_ok(aclrtSetDevice(r));
		assert_ok(HcclGroupStart());
		assert_ok(HcclSend(k->send, COUNT, HCCL_DATA_TYPE_FP32, (uint32_t)(r + 1) % RANKS,
				   k->comm, k->stream));
		assert_ok(HcclRecv(k->receive, COUNT, HCCL_DATA_TYPE_FP32,
				   (uint32_t)(r + RANKS - 1) % RANKS, k->comm, k->stream));
		assert_ok(HcclGroupEnd());
	}
	for (r = 0; r < RANKS; r++) {
		assert_ok(aclrtSetDevice(r));
		assert_ok(aclrtSynchronizeStream(ranks[r].stream));
		assert_true(ranks[r].receive[COUNT - 1] ==
			    value((r + RANKS - 1) % RANKS, COUNT - 1));
	}
	assert_int_equal(HcclGroupEnd(), HCCL_E_PARA);
}

static void some_of_the_ranks_can_meet_apart(void **state)
{
	uint32_t ids[] = {0, 2};
	HcclComm apart[2];
	uint32_t rank;
	float sum[2] = {0, 0};
	float one = 1;
	int n;

	(void)state;
	for (n = 0; n < 2; n++) {
		assert_ok(aclrtSetDevice((int32_t)ids[n]));
		assert_ok(HcclCreateSubCommConfig(&ranks[ids[n]].comm, 2, ids, 77, (uint32_t)n,
						  NULL, &apart[n]));
		assert_ok(HcclGetRankId(apart[n], &rank));
		assert_int_equal(rank, n);
		assert_ok(HcclAllReduce(&one, &sum[n], 1, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM,
					apart[n], ranks[ids[n]].stream));
	}
	for (n = 0; n < 2; n++) {
		assert_ok(aclrtSetDevice((int32_t)ids[n]));
		assert_ok(aclrtSynchronizeStream(ranks[ids[n]].stream));
		assert_true(sum[n] == 2);
		assert_ok(HcclCommDestroy(apart[n]));
	}
}

/* Nobody waits for it. */
static void a_rank_that_dies_ends_the_communicator(void **state)
{
	HcclResult failure = HCCL_SUCCESS;
	aclrtStream stream;
	HcclRootInfo root;
	HcclComm comm;
	float x = 1;
	pid_t pid;

	(void)state;
	assert_ok(HcclGetRootInfo(&root));
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		HcclComm theirs;

		_exit(aclrtSetDevice(1) || HcclCommInitRootInfo(2, &root, 1, &theirs));
	}
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_ok(aclrtSetDevice(0));
	assert_ok(aclrtCreateStream(&stream));
	assert_ok(HcclCommInitRootInfo(2, &root, 0, &comm));
	assert_ok(HcclGetCommAsyncError(comm, &failure));
	assert_int_equal(failure, HCCL_SUCCESS);
	assert_ok(HcclAllReduce(&x, &x, 1, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream));
	assert_ok(aclrtSynchronizeStream(stream));
	assert_ok(HcclGetCommAsyncError(comm, &failure));
	assert_int_equal(failure, HCCL_E_REMOTE);
	assert_true(x == 1);
	assert_ok(HcclCommDestroy(comm));
	assert_ok(aclrtDestroyStream(stream));
}

enum {
	MANY = 8,	  /* ranks */
	MANY_COUNT = 5000 /* elements of each */
};

/*
 * What a process does that has ranks [first, first + own), each with a device: all of them on their streams before any is waited for.
 * True: every result is right.
 */
static bool meets_all(const HcclRootInfo *root, uint32_t first, uint32_t own)
{
	static float send[MANY][MANY_COUNT * MANY], sums[MANY][MANY_COUNT],
		all[MANY][MANY_COUNT * MANY], turned[MANY][MANY_COUNT * MANY];
	aclrtStream streams[MANY];
	HcclComm comms[MANY];
	uint32_t r, k;
	size_t n;
	bool ok = true;

	for (r = 0; r < own; r++) {
		for (n = 0; n < MANY_COUNT * MANY; n++)
			send[r][n] = (float)((first + r) * 100 + n / MANY_COUNT * 10 + n % 7);
		ok = ok && !aclrtSetDevice((int32_t)(first + r)) &&
		     !aclrtCreateStream(&streams[r]) &&
		     !HcclCommInitRootInfo(MANY, root, first + r, &comms[r]);
	}
	for (r = 0; r < own && ok; r++) {
		ok = !aclrtSetDevice((int32_t)(first + r)) &&
		     !HcclAllReduce(send[r], sums[r], MANY_COUNT, HCCL_DATA_TYPE_FP32,
				    HCCL_REDUCE_SUM, comms[r], streams[r]) &&
		     !HcclAllGather(send[r], all[r], MANY_COUNT, HCCL_DATA_TYPE_FP32, comms[r],
				    streams[r]) &&
		     !HcclAlltoAll(send[r], MANY_COUNT, HCCL_DATA_TYPE_FP32, turned[r], MANY_COUNT,
				   HCCL_DATA_TYPE_FP32, comms[r], streams[r]);
	}
	for (r = 0; r < own && ok; r++)
		ok = !aclrtSetDevice((int32_t)(first + r)) && !aclrtSynchronizeStream(streams[r]);
	for (r = 0; r < own && ok; r++) {
		for (n = 0; n < MANY_COUNT && ok; n++) {
			ok = sums[r][n] == (float)(100 * 28 + MANY * (n % 7));
			for (k = 0; k < MANY; k++)
				ok = ok && all[r][k * MANY_COUNT + n] == (float)(k * 100 + n % 7) &&
				     turned[r][k * MANY_COUNT + n] ==
					     (float)(k * 100 + (first + r) * 10 +
						     ((first + r) * MANY_COUNT + n) % 7);
		}
	}
	return ok;
}

/* In a child: says whether all was right, and stays until everybody has said so: a rank that is gone has died for the others. */
static void meet_and_wait(const HcclRootInfo *root, uint32_t first, uint32_t own, int said,
			  int parent)
{
	char ok = meets_all(root, first, own) ? 1 : 0, none;

	if (write(said, &ok, 1) != 1)
		_exit(1);
	while (read(parent, &none, 1) > 0)
		;
	_exit(0);
}

/* Eight ranks in as many processes; then in four, each with two devices. */
static void ranks_of_many_processes_meet(void **state)
{
	pid_t pids[MANY];
	uint32_t own, first;
	int said[2], wait[2];

	(void)state;
	/* qemu-user fails in children of a process with threads, as soon as these make threads of their own. */
	if (unit_is_emulated())
		skip();
	for (own = 1; own <= 2; own++) {
		HcclRootInfo root;

		assert_ok(HcclGetRootInfo(&root));
		assert_int_equal(pipe(said), 0);
		assert_int_equal(pipe(wait), 0);
		for (first = 0; first < MANY; first += own) {
			pids[first] = fork();
			assert_true(pids[first] >= 0);
			if (pids[first] == 0) {
				(void)close(wait[1]);
				meet_and_wait(&root, first, own, said[1], wait[0]);
			}
		}
		(void)close(said[1]);
		for (first = 0; first < MANY; first += own) {
			char ok = 0;

			assert_int_equal(read(said[0], &ok, 1), 1);
			assert_int_equal(ok, 1);
		}
		(void)close(wait[1]);
		for (first = 0; first < MANY; first += own)
			assert_int_equal(waitpid(pids[first], NULL, 0), pids[first]);
		(void)close(said[0]);
		(void)close(wait[0]);
	}
}

static void wrong_arguments_are_refused(void **state)
{
	HcclRootInfo root;
	HcclComm comm;

	(void)state;
	assert_ok(HcclGetRootInfo(&root));
	assert_int_equal(HcclCommInitRootInfo(2, &root, 2, &comm), HCCL_E_PARA);
	assert_int_equal(HcclCommInitRootInfo(0, &root, 0, &comm), HCCL_E_PARA);
	assert_int_equal(HcclCommInitRootInfo(1, &root, 0, NULL), HCCL_E_PTR);
	(void)strcpy(root.internal, "../elsewhere");
	assert_int_equal(HcclCommInitRootInfo(1, &root, 0, &comm), HCCL_E_PARA);
	assert_int_equal(HcclBroadcast(&root, 1, HCCL_DATA_TYPE_INT8, RANKS, ranks[0].comm, NULL),
			 HCCL_E_PARA);
}

static void count_up(void *counter)
{
	++*(int *)counter;
}

/* Models: captured tasks run when the model does, as often as it does, those of streams that wait for the first one too. */
static void captured_tasks_run_with_their_model(void **state)
{
	aclmdlRICaptureStatus status;
	aclrtStream first;
	aclrtStream second;
	aclrtEvent event;
	aclmdlRI model;
	int counter = 0;
	int n;

	(void)state;
	assert_ok(aclrtSetDevice(0));
	assert_ok(aclrtCreateStream(&first));
	assert_ok(aclrtCreateStream(&second));
	assert_ok(aclrtCreateEvent(&event));
	assert_ok(aclmdlRICaptureBegin(first, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
	assert_int_equal(aclmdlRICaptureBegin(first, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL),
			 ACL_ERROR_RT_STREAM_CAPTURED);
	assert_ok(aclrtLaunchHostFunc(first, count_up, &counter));
	assert_ok(aclrtRecordEvent(event, first));
	assert_ok(aclrtStreamWaitEvent(second, event));
	assert_ok(aclmdlRICaptureGetInfo(second, &status, NULL));
	assert_int_equal(status, ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE);
	assert_ok(aclrtLaunchHostFunc(second, count_up, &counter));
	assert_ok(aclmdlRICaptureEnd(first, &model));
	assert_int_equal(aclmdlRICaptureEnd(first, &model), ACL_ERROR_RT_STREAM_NOT_CAPTURED);
	assert_ok(aclrtSynchronizeDevice());
	assert_int_equal(counter, 0);
	for (n = 0; n < 3; n++)
		assert_ok(aclmdlRIExecuteAsync(model, second));
	/* What is on its way may still need the model. */
	assert_ok(aclmdlRIDestroy(model));
	assert_ok(aclrtLaunchHostFunc(first, count_up, &counter));
	assert_ok(aclrtSynchronizeDevice());
	assert_int_equal(counter, 7);
	assert_ok(aclrtDestroyEvent(event));
	assert_ok(aclrtDestroyStream(first));
	assert_ok(aclrtDestroyStream(second));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_rank_gets_the_sum_of_all),
		cmocka_unit_test(parts_are_gathered_and_scattered),
		cmocka_unit_test(pairs_send_in_any_order),
		cmocka_unit_test(some_of_the_ranks_can_meet_apart),
		cmocka_unit_test(a_rank_that_dies_ends_the_communicator),
		cmocka_unit_test(ranks_of_many_processes_meet),
		cmocka_unit_test(wrong_arguments_are_refused),
		cmocka_unit_test(captured_tasks_run_with_their_model),
	};

	return cmocka_run_group_tests(tests, start_ranks, end_ranks);
}
