/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atb_watch WORD...: operators of ATB on four blocks of device memory, in the order of the words:
 *
 *     PATH=WRITTEN:OUTPUTS     the operator called by the last part of PATH, at this place in its model, adds 1 to each byte of
 *                              the blocks WRITTEN (digits), by a kernel for each, and has the blocks OUTPUTS
 *     !B                       a kernel of nobody's adds 1 to block B
 *
 * What the blocks hold and what is said about it on stdout is as in watch_ops.c; "kbegin" and "kend" are kernels of ATB. Kernels
 * take a while, and nobody waits for them.
 */
#include "atb.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include <sys/syscall.h>
#include <unistd.h>

#include "acl/acl.h"
#include "simnpu.h"

namespace
{

constexpr unsigned BLOCKS = 4;
constexpr std::size_t SIZES[BLOCKS] = {4096, 1000, (3 << 20) + 17, 1};
constexpr unsigned KERNEL_US = 3000;

struct Span {
	std::uint8_t *bytes;
	std::uint64_t count;
};

std::uint8_t *blocks[BLOCKS];
unsigned added[BLOCKS];
aclrtStream stream;

void require(bool holds, const char *what)
{
	if (!holds)
		throw std::logic_error(what);
}

void say(const std::string &what, const std::string &name, const std::string &list = "",
	 const std::string &path = "")
{
	std::printf("{\"what\": \"%s\", \"name\": \"%s\", \"list\": \"%s\", \"path\": \"%s\", \"tid\": "
		    "%ld, \"added\": [%u, %u, %u, %u]}\n",
		    what.c_str(), name.c_str(), list.c_str(), path.c_str(), syscall(SYS_gettid),
		    added[0], added[1], added[2], added[3]);
}

void bump_late(void *arguments, std::size_t, std::uint32_t)
{
	const Span *span = static_cast<const Span *>(arguments);

	usleep(KERNEL_US);
	for (std::uint64_t i = 0; i < span->count; i++)
		span->bytes[i]++;
}

void launch(unsigned block, const std::string &name)
{
	Span span = {blocks[block], SIZES[block]};
	aclrtFuncHandle kernel;

	say("launch", name);
	added[block]++;
	require(simnpuRegisterKernel(name.c_str(), bump_late, &kernel) == 0, "no kernel");
	require(aclrtLaunchKernel(kernel, 1, &span, sizeof(span), stream) == 0, "no launch");
	say("launched", name);
}

class Operator : public atb::Runner
{
      public:
	Operator(const std::string &path, const std::string &written, const std::string &outputs)
		: Runner(path.substr(path.rfind('/') + 1), 0), path_(path), written_(written),
		  outputs_(outputs)
	{
	}

	void run();

      protected:
	std::int32_t ExecuteImpl(atb::RunnerVariantPack &pack) override;

      private:
	std::string path_, written_, outputs_;
};

std::int32_t Operator::ExecuteImpl(atb::RunnerVariantPack &)
{
	auto param = std::make_unique<Mki::LaunchParam>();

	for (char digit : written_) {
		std::string name = "k" + GetOperationName() + "_" + digit;
		auto &out = param->GetOutTensors();

		/* A kernel says what it writes, unless it is none of its operator's outputs. */
		out.count = 0;
		for (char output : outputs_) {
			if (output == digit || written_.find(output) == written_.npos) {
				out.items[out.count].data = blocks[output - '0'];
				out.items[out.count++].dataSize = SIZES[output - '0'];
			}
		}

		say("kbegin", "0_" + name, "", path_ + "/0_" + name);
		RunKernel("0_" + name, *param,
			  [&] { launch(static_cast<unsigned>(digit - '0'), name); });
		say("kend", "0_" + name, "", path_ + "/0_" + name);
	}
	return 0;
}

void Operator::run()
{
	auto pack = std::make_unique<atb::RunnerVariantPack>();
	atb::Context context(stream);

	pack->context = &context;
#ifndef ATB_OLD_PACK
	pack->argsDeviceBuffer = blocks[0];
	pack->argsHostBuffer = reinterpret_cast<std::uint8_t *>(pack.get());
#endif
	for (char digit : outputs_) {
		atb::Tensor &tensor = pack->outTensors.items[pack->outTensors.size++];

		tensor.deviceData = blocks[digit - '0'];
		tensor.dataSize = SIZES[digit - '0'];
	}
	Prepare("0_" + std::to_string(getpid()) + "/" + path_);
	say("begin", GetOperationName(), "", path_);
	require(Execute(*pack) == 0, "an operator failed");
	say("end", GetOperationName(), outputs_, path_);
}

} // namespace

int main(int argc, char **argv)
{
	require(aclInit(nullptr) == 0 && aclrtSetDevice(0) == 0 && aclrtCreateStream(&stream) == 0,
		"no device");
	for (unsigned b = 0; b < BLOCKS; b++) {
		void *address = nullptr;

		require(aclrtMalloc(&address, SIZES[b], ACL_MEM_MALLOC_HUGE_FIRST) == 0, "no memory");
		blocks[b] = static_cast<std::uint8_t *>(address);
		for (std::size_t i = 0; i < SIZES[b]; i++)
			blocks[b][i] = static_cast<std::uint8_t>(7 * i + b);
	}
	for (int i = 1; i < argc; i++) {
		std::string word = argv[i];
		std::size_t equals = word.find('='), colon = word.find(':');

		if (word[0] == '!') {
			launch(static_cast<unsigned>(word[1] - '0'), "stray");
			continue;
		}
		require(equals != word.npos && colon != word.npos, "PATH=WRITTEN:OUTPUTS");
		Operator(word.substr(0, equals), word.substr(equals + 1, colon - equals - 1),
			 word.substr(colon + 1))
			.run();
	}
	return aclrtSynchronizeStream(stream) == 0 ? 0 : 1;
}
