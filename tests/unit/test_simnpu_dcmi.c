/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libdcmi.so against what the simulated driver hands out, in this process and in others. Every test has a directory of its own
 * to share, and runs in a child, because both libraries read their variables once; the parent calls neither.
 */
#include <stdlib.h>

#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ascend_hal.h>
#include <dcmi_interface_api.h>

#define MIB ((uint64_t)1 << 20)

#define DEV_NORMAL (MEM_DEV | MEM_TYPE_HBM | MEM_SET_ALIGN(9))
#define HOST	   (MEM_HOST | MEM_SET_ALIGN(9))

/* In the child: says where it failed and ends. cmocka's assertions would go on with the parent's list of tests. */
#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			(void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);      \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

static char directory[] = "/tmp/test_simnpu_dcmi.XXXXXX";
static const char *program;

/* The one file in the shared directory; NULL when there is none. */
static const char *shared_file(void)
{
	static char path[sizeof(directory) + 300];
	struct stat space;

	(void)stat("/proc/self/ns/pid", &space);
	(void)snprintf(path, sizeof(path), "%s/simnpu-%u-%llu", directory, (unsigned)geteuid(),
		       (unsigned long long)space.st_ino);
	return access(path, F_OK) == 0 ? path : NULL;
}

static void in_child(void (*body)(void))
{
	int status = -1;
	pid_t pid;

	if (shared_file())
		(void)unlink(shared_file());
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)setpgid(0, 0);
		(void)setenv("SIMNPU_SHARE", directory, 1);
		(void)unsetenv("SIMNPU_DEVICES");
		(void)unsetenv("SIMNPU_CARD_DEVICES");
		(void)unsetenv("SIMNPU_HBM");
		(void)alarm(UNIT_HANGS_S);
		body();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	/* A test that failed leaves its own children behind. */
	(void)kill(-pid, SIGKILL);
	assert_int_equal(status, 0);
}

static void *must_alloc(uint64_t size, uint64_t flag)
{
	void *address = NULL;

	CHECK(halMemAlloc(&address, size, flag) == DRV_ERROR_NONE);
	return address;
}

static uint64_t device_mib(int card)
{
	struct dcmi_hbm_info info;

	CHECK(dcmi_init() == DCMI_OK);
	CHECK(dcmi_get_device_hbm_info(card, 0, &info) == DCMI_OK);
	return info.memory_usage;
}

/* Bytes of a process on a device, -1 when it is not listed. */
static int64_t process_bytes(int card, pid_t pid)
{
	struct dcmi_proc_mem_info entries[DCMI_PROC_MAX];
	struct dcmi_proc_mem_info again[DCMI_PROC_MAX];
	int again_count = -1;
	int64_t found = -1;
	int count = -1;

	CHECK(dcmi_init() == DCMI_OK);
	CHECK(dcmi_get_npu_proc_mem_info(card, 0, entries, &count) == DCMI_OK);
	CHECK(dcmi_get_device_resource_info(card, 0, again, &again_count) == DCMI_OK);
	CHECK(count >= 0 && count == again_count);
	for (int i = 0; i < count; i++) {
		if (entries[i].proc_id == pid) {
			CHECK(found == -1);
			found = (int64_t)entries[i].proc_mem_usage;
		}
	}
	return found;
}

static void check_codes(void)
{
	struct dcmi_proc_mem_info entries[DCMI_PROC_MAX];
	struct dcmi_hbm_info info;
	int number;

	CHECK(dcmi_get_card_list(&number, (int[1]){0}, 1) == DCMI_ERR_CODE_INNER_ERR);
	CHECK(dcmi_get_device_hbm_info(0, 0, &info) == DCMI_ERR_CODE_INNER_ERR);
	CHECK(dcmi_init() == DCMI_OK && dcmi_init() == DCMI_OK);
	CHECK(dcmi_get_card_list(NULL, &number, 1) == DCMI_ERR_CODE_INVALID_PARAMETER);
	CHECK(dcmi_get_card_list(&number, NULL, 1) == DCMI_ERR_CODE_INVALID_PARAMETER);
	CHECK(dcmi_get_card_list(&number, &number, 0) == DCMI_ERR_CODE_INVALID_PARAMETER);
	CHECK(dcmi_get_device_num_in_card(8, &number) == DCMI_ERR_CODE_DEVICE_NOT_EXIST);
	CHECK(dcmi_get_device_num_in_card(-1, &number) == DCMI_ERR_CODE_INVALID_PARAMETER);
	CHECK(dcmi_get_device_logic_id(&number, 0, 1) == DCMI_ERR_CODE_DEVICE_NOT_EXIST);
	CHECK(dcmi_get_device_logic_id(NULL, 0, 0) == DCMI_ERR_CODE_INVALID_PARAMETER);
	CHECK(dcmi_get_device_hbm_info(0, 0, NULL) == DCMI_ERR_CODE_INVALID_PARAMETER);
	CHECK(dcmi_get_device_hbm_info(0, -1, &info) == DCMI_ERR_CODE_INVALID_PARAMETER);
	CHECK(dcmi_get_npu_proc_mem_info(0, 0, NULL, &number) == DCMI_ERR_CODE_INVALID_PARAMETER);
	CHECK(dcmi_get_npu_proc_mem_info(0, 0, entries, NULL) == DCMI_ERR_CODE_INVALID_PARAMETER);
}

static void wrong_arguments_get_codes(void **state)
{
	(void)state;
	in_child(check_codes);
}

static void check_cards(void)
{
	int cards[32];
	int devices;
	int count;
	int logic;

	(void)setenv("SIMNPU_DEVICES", "5", 1);
	(void)setenv("SIMNPU_CARD_DEVICES", "2", 1);
	CHECK(dcmi_init() == DCMI_OK);
	CHECK(dcmi_get_card_list(&count, cards, 32) == DCMI_OK);
	CHECK(count == 3 && cards[0] == 0 && cards[1] == 1 && cards[2] == 2);
	CHECK(dcmi_get_card_list(&count, cards, 2) == DCMI_OK && count == 2);
	CHECK(dcmi_get_device_num_in_card(0, &devices) == DCMI_OK && devices == 2);
	CHECK(dcmi_get_device_num_in_card(2, &devices) == DCMI_OK && devices == 1);
	CHECK(dcmi_get_device_logic_id(&logic, 1, 1) == DCMI_OK && logic == 3);
	CHECK(dcmi_get_device_logic_id(&logic, 2, 0) == DCMI_OK && logic == 4);
	CHECK(dcmi_get_device_logic_id(&logic, 2, 1) == DCMI_ERR_CODE_DEVICE_NOT_EXIST);
}

static void devices_lie_on_cards(void **state)
{
	(void)state;
	in_child(check_cards);
}

static void check_own_use(void)
{
	struct drv_mem_prop prop = {
		.side = MEM_DEV_SIDE, .devid = 3, .pg_type = MEM_HUGE_PAGE_TYPE};
	struct drv_mem_handle *handle = NULL;
	struct dcmi_chip_info chip;
	struct dcmi_hbm_info info;
	void *large;
	void *small;

	CHECK(device_mib(3) == 0);
	CHECK(process_bytes(3, getpid()) == -1);
	large = must_alloc(10 * MIB, DEV_NORMAL | 3);
	CHECK(device_mib(3) == 10);
	CHECK(process_bytes(3, getpid()) == (int64_t)(10 * MIB));
	small = must_alloc(1, DEV_NORMAL | 3);
	(void)must_alloc(MIB, HOST);
	CHECK(device_mib(3) == 11);
	CHECK(process_bytes(3, getpid()) == (int64_t)(10 * MIB + 4096));
	CHECK(halMemCreate(&handle, 4 * MIB, &prop, 0) == DRV_ERROR_NONE);
	CHECK(process_bytes(3, getpid()) == (int64_t)(14 * MIB + 4096));
	CHECK(halMemRelease(handle) == DRV_ERROR_NONE);
	CHECK(halMemFree(small) == DRV_ERROR_NONE);
	CHECK(process_bytes(3, getpid()) == (int64_t)(10 * MIB));
	CHECK(halMemFree(large) == DRV_ERROR_NONE);
	CHECK(device_mib(3) == 0);
	CHECK(process_bytes(3, getpid()) == 0);
	CHECK(process_bytes(2, getpid()) == -1);
	CHECK(dcmi_get_device_hbm_info(3, 0, &info) == DCMI_OK);
	CHECK(info.memory_size == 64 * 1024);
	CHECK(dcmi_get_device_chip_info(3, 0, &chip) == DCMI_OK);
	CHECK(strcmp((const char *)chip.chip_type, "Ascend") == 0);
	CHECK(strcmp((const char *)chip.chip_name, "910B1") == 0);
	CHECK(dcmi_get_device_chip_info(3, 9, &chip) == DCMI_ERR_CODE_DEVICE_NOT_EXIST);
}

static void figures_follow_what_a_process_takes(void **state)
{
	(void)state;
	in_child(check_own_use);
}

static void check_refused(void)
{
	void *address;

	(void)setenv("SIMNPU_HBM", "16M", 1);
	(void)must_alloc(12 * MIB, DEV_NORMAL);
	CHECK(halMemAlloc(&address, 5 * MIB, DEV_NORMAL) == DRV_ERROR_OUT_OF_MEMORY);
	CHECK(halMemFree(&address) == DRV_ERROR_INVALID_VALUE);
	CHECK(process_bytes(0, getpid()) == (int64_t)(12 * MIB));
	CHECK(device_mib(0) == 12);
}

static void what_was_refused_does_not_count(void **state)
{
	(void)state;
	in_child(check_refused);
}

/* Another process, which holds `mib` of device 0 until it is ended. */
static pid_t start_holder(uint64_t mib, void (*more)(void))
{
	int pipes[2];
	char byte;
	pid_t pid;

	CHECK(pipe(pipes) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		(void)must_alloc(mib * MIB, DEV_NORMAL);
		CHECK(write(pipes[1], "x", 1) == 1);
		if (more)
			more();
		for (;;)
			(void)pause();
	}
	CHECK(read(pipes[0], &byte, 1) == 1);
	(void)close(pipes[0]);
	(void)close(pipes[1]);
	return pid;
}

static void end_holder(pid_t pid)
{
	CHECK(kill(pid, SIGKILL) == 0);
	CHECK(waitpid(pid, NULL, 0) == pid);
}

static void check_two(void)
{
	pid_t first = start_holder(3, NULL);
	pid_t second = start_holder(5, NULL);

	CHECK(device_mib(0) == 8);
	CHECK(process_bytes(0, first) == (int64_t)(3 * MIB));
	CHECK(process_bytes(0, second) == (int64_t)(5 * MIB));
	(void)must_alloc(7 * MIB, DEV_NORMAL);
	CHECK(device_mib(0) == 15);
	end_holder(first);
	end_holder(second);
}

static void processes_are_told_apart_and_summed(void **state)
{
	(void)state;
	in_child(check_two);
}

static void check_overcommit(void)
{
	pid_t first;
	pid_t second;

	(void)setenv("SIMNPU_HBM", "16M", 1);
	first = start_holder(10, NULL);
	second = start_holder(10, NULL);
	CHECK(device_mib(0) == 16);
	CHECK(process_bytes(0, first) == (int64_t)(10 * MIB));
	end_holder(first);
	end_holder(second);
}

static void device_never_shows_more_than_it_has(void **state)
{
	(void)state;
	in_child(check_overcommit);
}

static void check_killed(void)
{
	pid_t pid = start_holder(3, NULL);
	siginfo_t info;

	CHECK(device_mib(0) == 3);
	CHECK(kill(pid, SIGKILL) == 0);
	/* Dead, but nobody has collected its status. */
	CHECK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
	CHECK(device_mib(0) == 0);
	CHECK(process_bytes(0, pid) == -1);
	CHECK(waitpid(pid, NULL, 0) == pid);
	CHECK(device_mib(0) == 0);
}

static void killed_process_counts_for_nothing(void **state)
{
	(void)state;
	in_child(check_killed);
}

static void *hold_on(void *unused)
{
	(void)unused;
	for (;;)
		(void)pause();
	return NULL;
}

static void end_first_thread(void)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, hold_on, NULL) == 0);
	pthread_exit(NULL);
}

static void check_leader_gone(void)
{
	pid_t pid = start_holder(3, end_first_thread);
	char path[64];
	char text[256];
	int turns = 0;
	FILE *file;

	/* Until its first thread is a zombie. */
	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	do {
		CHECK(++turns < 5000);
		(void)usleep(1000);
		file = fopen(path, "r");
		CHECK(file && fgets(text, sizeof(text), file));
		(void)fclose(file);
	} while (!strstr(text, ") Z"));
	CHECK(process_bytes(0, pid) == (int64_t)(3 * MIB));
	end_holder(pid);
	CHECK(process_bytes(0, pid) == -1);
}

static void process_lives_as_long_as_any_thread(void **state)
{
	(void)state;
	in_child(check_leader_gone);
}

static void check_slots_return(void)
{
	struct stat before;
	struct stat after;

	end_holder(start_holder(1, NULL));
	CHECK(stat(shared_file(), &before) == 0);
	for (unsigned i = 0; i < 50; i++)
		end_holder(start_holder(1, NULL));
	CHECK(stat(shared_file(), &after) == 0);
	CHECK(after.st_blocks == before.st_blocks);
	CHECK(device_mib(0) == 0);
}

static void place_of_a_dead_process_is_taken_again(void **state)
{
	(void)state;
	in_child(check_slots_return);
}

static void check_fork(void)
{
	void *mine = must_alloc(3 * MIB, DEV_NORMAL);
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		/* It has a copy of everything, but is seen only when it does something with it. */
		CHECK(process_bytes(0, getpid()) == -1);
		(void)must_alloc(5 * MIB, DEV_NORMAL);
		CHECK(process_bytes(0, getpid()) == (int64_t)(8 * MIB));
		CHECK(process_bytes(0, getppid()) == (int64_t)(3 * MIB));
		CHECK(halMemFree(mine) == DRV_ERROR_NONE);
		CHECK(process_bytes(0, getpid()) == (int64_t)(5 * MIB));
		CHECK(process_bytes(0, getppid()) == (int64_t)(3 * MIB));
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(device_mib(0) == 3);
}

static void forked_child_counts_its_own_copy(void **state)
{
	(void)state;
	in_child(check_fork);
}

static void check_exec(void)
{
	(void)must_alloc(3 * MIB, DEV_NORMAL);
	(void)execl("/proc/self/exe", program, "second-image", (char *)NULL);
	CHECK(!"exec");
}

/* In the new image: the pid is the same, the memory is gone. */
static void check_second_image(void)
{
	(void)must_alloc(5 * MIB, DEV_NORMAL);
	CHECK(process_bytes(0, getpid()) == (int64_t)(5 * MIB));
	CHECK(device_mib(0) == 5);
}

static void new_image_of_a_process_starts_from_nothing(void **state)
{
	(void)state;
	if (unit_is_emulated())
		skip();
	in_child(check_exec);
}

static void *churn(void *argument)
{
	void **keep = argument;
	void *blocks[16] = {NULL};

	for (unsigned i = 0; i < 4000; i++) {
		unsigned n = i * 7 % 16;

		if (blocks[n])
			CHECK(halMemFree(blocks[n]) == DRV_ERROR_NONE);
		blocks[n] = must_alloc(4096 * (1 + i % 9), DEV_NORMAL);
	}
	for (unsigned n = 0; n < 16; n++)
		CHECK(halMemFree(blocks[n]) == DRV_ERROR_NONE);
	*keep = must_alloc(MIB, DEV_NORMAL);
	return NULL;
}

static void check_threads(void)
{
	enum { THREADS = 24 };
	pthread_t threads[THREADS];
	void *kept[THREADS];

	/* Listed from now on. */
	CHECK(halMemFree(must_alloc(1, DEV_NORMAL)) == DRV_ERROR_NONE);
	for (unsigned i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, churn, &kept[i]) == 0);
	for (unsigned i = 0; i < 20; i++)
		CHECK(process_bytes(0, getpid()) <= (int64_t)(64 * MIB));
	for (unsigned i = 0; i < THREADS; i++)
		(void)pthread_join(threads[i], NULL);
	CHECK(process_bytes(0, getpid()) == (int64_t)(THREADS * MIB));
	/* Freed by another thread than took it. */
	for (unsigned i = 0; i < THREADS; i++)
		CHECK(halMemFree(kept[i]) == DRV_ERROR_NONE);
	CHECK(process_bytes(0, getpid()) == 0);
}

static void figures_of_many_threads_add_up(void **state)
{
	(void)state;
	in_child(check_threads);
}

/* Memory is there, figures are not, and nobody complains. */
static void check_unpublished(void)
{
	void *address;

	errno = 4711;
	address = must_alloc(3 * MIB, DEV_NORMAL);
	CHECK(errno == 4711);
	CHECK(device_mib(0) == 0);
	CHECK(process_bytes(0, getpid()) == -1);
	CHECK(halMemFree(address) == DRV_ERROR_NONE);
}

static void check_no_directory(void)
{
	(void)setenv("SIMNPU_SHARE", "/nonexistent", 1);
	check_unpublished();
}

static void check_size_limit(void)
{
	struct rlimit limit = {1 << 20, 1 << 20};

	CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	check_unpublished();
}

static void check_foreign_file(void)
{
	char path[sizeof(directory) + 300];
	char other[sizeof(directory) + 300];
	int fd;

	/* Learn the name, then put something else there. */
	end_holder(start_holder(1, NULL));
	CHECK(shared_file());
	(void)strcpy(path, shared_file());
	CHECK(unlink(path) == 0);
	(void)snprintf(other, sizeof(other), "%s/other", directory);
	fd = open(other, O_WRONLY | O_CREAT, 0600);
	CHECK(fd >= 0 && symlink(other, path) == 0);
	check_unpublished();
	CHECK(lseek(fd, 0, SEEK_END) == 0);
	(void)close(fd);
	CHECK(unlink(other) == 0 && unlink(path) == 0);
	CHECK(mkfifo(path, 0600) == 0);
	check_unpublished();
	CHECK(unlink(path) == 0);
}

static void check_short_file(void)
{
	char path[sizeof(directory) + 300];
	int fd;

	end_holder(start_holder(1, NULL));
	(void)strcpy(path, shared_file());
	CHECK(truncate(path, 100) == 0);
	/* A reader does not touch what is not there; the next to take a place makes the file whole. */
	CHECK(device_mib(0) == 0);
	(void)must_alloc(3 * MIB, DEV_NORMAL);
	CHECK(device_mib(0) == 3);
	/* Owners of all kinds that never lived. */
	fd = open(path, O_WRONLY);
	for (unsigned i = 0; i < 1000; i++) {
		uint64_t word = (uint64_t)i * 0x9e3779b97f4a7c15;

		CHECK(pwrite(fd, &word, 8, 8 + 8 * i) == 8);
	}
	(void)close(fd);
	CHECK(device_mib(0) == 3);
}

static void without_a_file_memory_is_served_all_the_same(void **state)
{
	(void)state;
	in_child(check_no_directory);
	in_child(check_size_limit);
	in_child(check_foreign_file);
}

static void damaged_file_is_survived(void **state)
{
	(void)state;
	in_child(check_short_file);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wrong_arguments_get_codes),
		cmocka_unit_test(devices_lie_on_cards),
		cmocka_unit_test(figures_follow_what_a_process_takes),
		cmocka_unit_test(what_was_refused_does_not_count),
		cmocka_unit_test(processes_are_told_apart_and_summed),
		cmocka_unit_test(device_never_shows_more_than_it_has),
		cmocka_unit_test(killed_process_counts_for_nothing),
		cmocka_unit_test(process_lives_as_long_as_any_thread),
		cmocka_unit_test(place_of_a_dead_process_is_taken_again),
		cmocka_unit_test(forked_child_counts_its_own_copy),
		cmocka_unit_test(new_image_of_a_process_starts_from_nothing),
		cmocka_unit_test(figures_of_many_threads_add_up),
		cmocka_unit_test(without_a_file_memory_is_served_all_the_same),
		cmocka_unit_test(damaged_file_is_survived),
	};
	int failed;

	program = argv[0];
	if (argc > 1) {
		check_second_image();
		return 0;
	}
	if (!mkdtemp(directory))
		return 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	if (shared_file())
		(void)unlink(shared_file());
	(void)rmdir(directory);
	return failed;
}
