/* SPDX-License-Identifier: Apache-2.0 */
/*
 * acl_train_cpp [--work]: the manuals' example of mstx in C++, with the header's implementation in the program itself. Without
 * --work it needs no device and no aclInit(); with it the step takes device memory, and a kernel runs there.
 *
 * Writes what it did as the other clients do (client.h), with std::string instead of a log.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <sys/syscall.h>
#include <unistd.h>

#include "acl/acl.h"
#include "mstx/ms_tools_ext.h"
#include "simnpu.h"

namespace
{

class Truth
{
      public:
	void add(const std::string &event)
	{
		events_ += (events_.empty() ? "[" : ",[") + event + "]";
	}

	void write() const
	{
		const char *path = std::getenv("TRUTH");
		std::FILE *file = path ? std::fopen(path, "a") : stdout;

		if (!file)
			throw std::runtime_error("cannot write the truth");
		std::fprintf(
			file,
			"{\"pid\":%d,\"tid\":%ld,\"part\":0,\"client\":\"cpp\",\"reports\":true,"
			"\"events\":[%s]}\n",
			getpid(), syscall(SYS_gettid), events_.c_str());
		if (path)
			std::fclose(file);
	}

      private:
	std::string events_;
};

Truth truth;

void check(aclError error)
{
	if (error)
		throw std::runtime_error("AscendCL: " + std::to_string(error));
}

/* Device memory that goes with its owner. */
class Tensor
{
      public:
	explicit Tensor(std::size_t count) : count_(count)
	{
		const std::size_t bytes = count * sizeof(float);

		check(aclrtMalloc(reinterpret_cast<void **>(&data_), bytes,
				  ACL_MEM_MALLOC_HUGE_FIRST));
		id_ = ++last_;
		truth.add("\"malloc\"," + std::to_string(id_) + "," +
			  std::to_string(reinterpret_cast<std::uintptr_t>(data_)) + "," +
			  std::to_string((bytes + 63) / 32 * 32) + ",0,\"alloc\",\"normal\"");
	}

	~Tensor()
	{
		truth.add("\"free\"," + std::to_string(id_));
		if (aclrtFree(data_))
			std::abort();
	}

	Tensor(const Tensor &) = delete;
	Tensor &operator=(const Tensor &) = delete;

	float *data() const
	{
		return data_;
	}

	std::vector<float> to_host() const
	{
		std::vector<float> host(count_);
		const std::size_t bytes = count_ * sizeof(float);

		check(aclrtMemcpy(host.data(), bytes, data_, bytes, ACL_MEMCPY_DEVICE_TO_HOST));
		return host;
	}

      private:
	static int last_;
	float *data_ = nullptr;
	std::size_t count_;
	int id_;
};

int Tensor::last_ = 0;

struct FillArguments {
	float *data;
	std::uint64_t count;
	float value;
};

void fill(void *arguments, std::size_t, std::uint32_t)
{
	FillArguments a;

	std::memcpy(&a, arguments, sizeof(a));
	for (std::uint64_t i = 0; i < a.count; i++)
		a.data[i] = a.value;
}

void work()
{
	constexpr std::size_t count = 1000;
	void *kernel = nullptr;
	aclrtStream stream = nullptr;
	Tensor tensor(count);
	auto other = std::make_unique<Tensor>(2 * count);
	const FillArguments arguments = {tensor.data(), count, 2.5f};

	check(aclrtCreateStream(&stream));
	check(simnpuRegisterKernel("Fill<float>", fill, &kernel));
	check(aclrtLaunchKernel(kernel, 1, &arguments, sizeof(arguments), stream));
	truth.add("\"launch\",0,0,0,\"Fill<float>\"");
	other.reset();
	check(aclrtSynchronizeStream(stream));
	for (float value : tensor.to_host()) {
		if (value != arguments.value)
			throw std::runtime_error("the kernel did not run");
	}
	check(aclrtDestroyStream(stream));
}

void run(bool works)
{
	if (works) {
		check(aclInit(nullptr));
		truth.add("\"acl\",0,\"init\"");
		check(aclrtSetDevice(0));
	}

	mstxMarkA("MarkA", nullptr);
	truth.add("\"mark\",0,null,\"MarkA\"");
	uint64_t id = mstxRangeStartA("step start", nullptr);
	truth.add("\"range_start\"," + std::to_string(id) + ",null,\"step start\"");
	if (works)
		work();
	mstxRangeEnd(id);
	truth.add("\"range_end\"," + std::to_string(id) + ",null");

	if (works) {
		check(aclrtResetDevice(0));
		check(aclFinalize());
		truth.add("\"acl\",0,\"fini\"");
	}
}

} // namespace

int main(int argc, char **argv)
{
	try {
		run(argc > 1 && std::strcmp(argv[1], "--work") == 0);
		truth.write();
	} catch (const std::exception &error) {
		std::fprintf(stderr, "target: %s\n", error.what());
		return 99;
	}
	return 0;
}
