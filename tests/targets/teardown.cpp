// SPDX-License-Identifier: Apache-2.0
/*
 * teardown HOW: holds device memory in all the ways that are freed behind main(): by a static object, a thread-local one, an exit
 * handler, a destructor of the program file. Prints what it holds as its last own act, and ends by HOW: return, exit, thread (another
 * thread calls exit() while a third one works), handler (a signal handler calls exit()), _exit, quick_exit, fork (a child holds more
 * and calls exit(), then the parent returns), vfork (the child of vfork() ends, the parent goes on).
 */
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ascend_hal.h"

namespace
{

const unsigned long long FLAGS = (33ull << 56) | 0x904400;
unsigned long long held_bytes, held_blocks;

class Memory
{
      public:
	explicit Memory(unsigned long long bytes) : bytes_(bytes)
	{
		if (halMemAlloc(&at_, bytes, FLAGS) != DRV_ERROR_NONE)
			std::abort();
		held_bytes += bytes;
		held_blocks++;
	}
	Memory(const Memory &) = delete;
	~Memory()
	{
		halMemFree(at_);
		held_bytes -= bytes_;
		held_blocks--;
	}

      private:
	void *at_ = nullptr;
	unsigned long long bytes_;
};

struct Cache {
	std::vector<Memory *> all;
	~Cache()
	{
		for (Memory *memory : all)
			delete memory;
	}
};

Cache cache;
thread_local Cache own_cache;
Memory *by_handler, *by_program_file;

void at_exit()
{
	delete by_handler;
	/* Not at the end: it is allocated behind it. */
	new Memory(5 << 20);
}

__attribute__((destructor)) void at_unload()
{
	delete by_program_file;
}

void tell()
{
	std::printf("{\"pid\": %d, \"bytes\": %llu, \"blocks\": %llu}\n", getpid(), held_bytes, held_blocks);
	std::fflush(stdout);
}

std::atomic<bool> stop_working;
std::atomic<unsigned> rounds;

/* Takes and gives back the whole time; what it holds at a moment is not known, so it is of the host and not counted. */
void *work(void *)
{
	while (!stop_working) {
		void *at = nullptr;

		halMemAlloc(&at, 4096, (33ull << 56) | 0x900800);
		halMemFree(at);
		rounds++;
	}
	return nullptr;
}

void *leave(void *)
{
	tell();
	std::exit(7);
}

void on_signal(int)
{
	tell();
	std::exit(7);
}

} // namespace

int main(int argc, char **argv)
{
	const char *how = argc == 2 ? argv[1] : "";
	pthread_t thread, worker;

	std::atexit(at_exit);
	for (int i = 0; i < 10; i++)
		cache.all.push_back(new Memory(1 << 20));
	own_cache.all.push_back(new Memory(2 << 20));
	by_handler = new Memory(3 << 20);
	by_program_file = new Memory(4 << 20);
	delete new Memory(7 << 20);
	if (std::strcmp(how, "thread") == 0) {
		pthread_create(&worker, nullptr, work, nullptr);
		while (rounds < 1000)
			usleep(1000);
		pthread_create(&thread, nullptr, leave, nullptr);
		pthread_join(thread, nullptr);
	}
	if (std::strcmp(how, "handler") == 0) {
		std::signal(SIGTERM, on_signal);
		std::raise(SIGTERM);
	}
	if (std::strcmp(how, "fork") == 0) {
		if (fork() == 0) {
			/* Its own trace knows only what it took itself. */
			held_bytes = held_blocks = 0;
			cache.all.clear();
			own_cache.all.clear();
			by_handler = by_program_file = nullptr;
			cache.all.push_back(new Memory(6 << 20));
			tell();
			std::exit(7);
		}
		wait(nullptr);
	}
	if (std::strcmp(how, "vfork") == 0) {
		if (vfork() == 0)
			execl("/bin/true", "true", nullptr);
		wait(nullptr);
		cache.all.push_back(new Memory(8 << 20));
	}
	tell();
	if (std::strcmp(how, "exit") == 0)
		std::exit(7);
	if (std::strcmp(how, "_exit") == 0)
		_exit(7);
	if (std::strcmp(how, "quick_exit") == 0)
		quick_exit(7);
	return 7;
}
