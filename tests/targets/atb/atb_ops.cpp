/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atb_ops [--threads=N] [--rounds=N] [--devices=N]: threads that run operators of ATB, graphs of several and their kernels, with
 * tensors in memory of PyTorch's pool, of ATB's pool, of the driver alone, and of nobody that is known.
 *
 * Writes what it did as the other clients do (client.h), one line per thread:
 *
 *     ["block",id,pool,address,size]  ["unblock",id]
 *     ["op","START",name,path,workspace,bytes]  ["kernel","START",name,path]      and "END"; one that throws has none
 *     ["access","op","UNKNOWN",name,address,size,dtype,format,[dims],id]         or "kernel"; id 0: no block
 *     ["saved",params,packs]                                                     of the first thread, at the end
 */
#include "atb.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>

#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "acl/acl.h"
#include "ascend_hal.h"
#include "mstx/ms_tools_ext.h"

namespace
{

constexpr std::uint64_t MIB = 1 << 20;
constexpr std::uint64_t SEGMENT_BYTES = 8 * MIB;
constexpr std::uint64_t FLAG_HUGE = std::uint64_t{33} << 56 | 1 << 17 | 1 << 10;

const char *const NAMES[] = {
	"LinearOperation",
	"Self\"Attention\"Operation",
	"Elewise,Add,Operation",
	"\xe7\xae\x97\xe5\xad\x90Operation", /* in Chinese */
	"A name of three hundred bytes that goes on: "
	"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567"
	"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567"
	"01234567890123456789012345678901234567890123456789012345678901234567890123456789",
	"x",
};
const int DTYPES[] = {0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 16, 17, 27, 29, 30, 33, -1, 5};
const int FORMATS[] = {0, 1, 2, 3, 4, 12, 16, 27, 29, 30, 32, 33, 35, 47, -1, 5};

void require(bool holds, const char *what)
{
	if (!holds)
		throw std::logic_error(what);
}

std::string quoted(const std::string &text)
{
	std::string out = "\"";

	for (char c : text) {
		if (c == '"' || c == '\\')
			out += '\\';
		out += c;
	}
	return out + "\"";
}

std::string number(std::uint64_t value)
{
	return std::to_string(value);
}

struct Block {
	std::uint64_t id, address, size;
	mstxMemRegionHandle_t handle;
};

/* What a thread does, and its log of it. */
class Worker
{
      public:
	Worker(unsigned number, unsigned device)
		: seed_(88172645463325252u + number), next_(std::uint64_t{number} << 32 | 1),
		  device_(device)
	{
	}

	void run(unsigned rounds);
	void write(const char *client) const;

	void add(const std::string &event)
	{
		events_ += (events_.empty() ? "[" : ",[") + event + "]";
	}

	std::uint64_t random(std::uint64_t below)
	{
		seed_ ^= seed_ << 13, seed_ ^= seed_ >> 7, seed_ ^= seed_ << 17;
		return seed_ % below;
	}

	/* A place in memory, and whose block it is in; 0 for nobody's. */
	std::uint64_t place(std::uint64_t *id)
	{
		std::uint64_t choice = random(8);

		*id = 0;
		if (choice == 0)
			return 0x7000;
		if (choice == 1) {
			*id = segment_.id;
			return segment_.address + SEGMENT_BYTES - 64 - random(1000);
		}
		const Block &block = blocks_[random(blocks_.size())];

		*id = block.id;
		return block.address + (choice < 5 ? 0 : random(block.size));
	}

	const std::string &device() const
	{
		return device_text_;
	}

      private:
	void take();
	void give();
	void log_block(const Block &block, const char *pool);

	std::uint64_t seed_, next_;
	unsigned device_;
	long tid_ = 0;
	std::string events_, device_text_;
	Block segment_{};
	std::vector<Block> blocks_;
	friend class Operator;
};

void Worker::log_block(const Block &block, const char *pool)
{
	add("\"block\"," + number(block.id) + "," + quoted(pool) + "," + number(block.address) +
	    "," + number(block.size));
}

/* A segment of the driver; the first half of it is PyTorch's, the third quarter ATB's. */
void Worker::take()
{
	static mstxDomainHandle_t pta = mstxDomainCreateA("ptaCaching"),
				  atb = mstxDomainCreateA("atb");
	void *address = nullptr;

	require(halMemAlloc(&address, SEGMENT_BYTES, FLAG_HUGE | device_) == 0, "halMemAlloc");
	segment_ = {next_++, reinterpret_cast<std::uint64_t>(address), SEGMENT_BYTES, nullptr};
	log_block(segment_, "HAL");
	for (unsigned i = 0; i < 12; i++) {
		bool is_atb = i >= 8;
		Block block{next_++, segment_.address + i * MIB / 2,
			    1 + random(MIB / 2 - 1), nullptr};
		mstxMemVirtualRangeDesc_t range = {device_, reinterpret_cast<void *>(block.address),
						   block.size};
		mstxMemRegionsRegisterBatch_t batch = {nullptr, MSTX_MEM_TYPE_VIRTUAL_ADDRESS, 1,
						       &range, &block.handle};

		mstxMemRegionsRegister(is_atb ? atb : pta, &batch);
		log_block(block, is_atb ? "ATB" : "PTA");
		blocks_.push_back(block);
	}
}

void Worker::give()
{
	static mstxDomainHandle_t pta = mstxDomainCreateA("ptaCaching"),
				  atb = mstxDomainCreateA("atb");

	for (std::size_t i = 0; i < blocks_.size(); i++) {
		bool is_atb = i >= 8;
		mstxMemRegionRef_t reference = {};
		mstxMemRegionsUnregisterBatch_t batch = {1, &reference};

		reference.refType = is_atb ? MSTX_MEM_REGION_REF_TYPE_HANDLE
					   : MSTX_MEM_REGION_REF_TYPE_POINTER;
		if (is_atb)
			reference.handle = blocks_[i].handle;
		else
			reference.pointer = reinterpret_cast<void *>(blocks_[i].address);
		add("\"unblock\"," + number(blocks_[i].id));
		mstxMemRegionsUnregister(is_atb ? atb : pta, &batch);
	}
	blocks_.clear();
	add("\"unblock\"," + number(segment_.id));
	require(halMemFree(reinterpret_cast<void *>(segment_.address)) == 0, "halMemFree");
}

std::string access_event(const char *level, const char *kind, const std::string &name,
			 std::uint64_t address, std::uint64_t size, int dtype, int format,
			 const std::int64_t *dims, std::uint64_t count, std::uint64_t id)
{
	std::string shape;

	for (std::uint64_t i = 0; i < count; i++)
		shape += (i ? "," : "") + std::to_string(dims[i]);
	return quoted("access") + "," + quoted(level) + "," + quoted(kind) + "," + quoted(name) +
	       "," + number(address) + "," + number(size) + "," + std::to_string(dtype) + "," +
	       std::to_string(format) + ",[" + shape + "]," + number(id);
}

template <typename T, std::size_t N> T pick(Worker &worker, const T (&list)[N])
{
	return list[worker.random(N)];
}

class Operator : public atb::Runner
{
      public:
	Operator(Worker &worker, const std::string &name, const std::string &path,
		 std::uint64_t count, unsigned depth, bool throws = false)
		: Runner(name, count), worker_(worker), name_(name), path_(path), count_(count),
		  depth_(depth), throws_(throws)
	{
	}

	void run();

      protected:
	std::int32_t ExecuteImpl(atb::RunnerVariantPack &pack) override;

      private:
	std::vector<std::string> fill(atb::SVector<atb::Tensor> &vector, const char *kind);
	std::vector<std::string> fill(Mki::SVector<Mki::Tensor> &vector, const char *kind,
				      const std::string &kernel);
	void kernel(unsigned number_in_operator);

	Worker &worker_;
	std::string name_, path_;
	std::uint64_t count_;
	unsigned depth_;
	bool throws_;
	std::vector<atb::Tensor> heap_[2];
};

/* Mostly a few; now and then more than the vector itself has room for. Tensors without an address are told by nobody. */
std::vector<std::string> Operator::fill(atb::SVector<atb::Tensor> &vector, const char *kind)
{
	std::uint64_t count = worker_.random(16) == 0 ? 60 + worker_.random(40) : worker_.random(5);
	std::vector<atb::Tensor> &heap = heap_[std::strcmp(kind, "WRITE") == 0];
	std::vector<std::string> events;

	vector.size = count;
	if (count > 65) {
		heap.resize(count);
		vector.heap = heap.data();
		vector.capacity = count;
	}
	for (std::uint64_t i = 0; i < count; i++) {
		atb::Tensor &tensor = count > 65 ? heap[i] : vector.items[i];
		std::uint64_t id, address = worker_.place(&id);

		tensor = {};
		tensor.dtype = pick(worker_, DTYPES);
		tensor.format = pick(worker_, FORMATS);
		tensor.dimNum = worker_.random(9);
		for (std::uint64_t k = 0; k < tensor.dimNum; k++)
			tensor.dims[k] = k == 7 ? INT64_MIN
						: static_cast<std::int64_t>(worker_.random(5000)) - 1;
		tensor.dataSize = worker_.random(100000);
		if (worker_.random(8) == 0)
			continue;
		tensor.deviceData = reinterpret_cast<void *>(address);
		events.push_back(access_event("op", kind, name_, address, tensor.dataSize,
					      tensor.dtype, tensor.format, tensor.dims,
					      tensor.dimNum, id));
	}
	return events;
}

std::vector<std::string> Operator::fill(Mki::SVector<Mki::Tensor> &vector, const char *kind,
					const std::string &kernel)
{
	std::vector<std::string> events;

	vector.count = worker_.random(4);
	if (worker_.random(16) == 0)
		vector.count = 49;
	for (std::size_t i = 0; i < vector.count; i++) {
		Mki::Tensor &tensor = vector.items[i];
		std::uint64_t id, address = worker_.place(&id);

		tensor.dtype = pick(worker_, DTYPES);
		tensor.format = pick(worker_, FORMATS);
		tensor.dims.count = worker_.random(16) == 0 ? 49 : worker_.random(5);
		for (std::size_t k = 0; k < tensor.dims.count; k++)
			tensor.dims.items[k] = static_cast<std::int64_t>(worker_.random(INT64_MAX));
		tensor.data = reinterpret_cast<void *>(address);
		tensor.dataSize = worker_.random(100000);
		events.push_back(access_event("kernel", kind, kernel, address, tensor.dataSize,
					      tensor.dtype, tensor.format, tensor.dims.items,
					      tensor.dims.count, id));
	}
	return events;
}

void Operator::kernel(unsigned number_in_operator)
{
	std::string kernel = std::to_string(number_in_operator) + "_" + pick(worker_, NAMES);
	auto param = std::make_unique<Mki::LaunchParam>();
	std::vector<std::string> in = fill(param->GetInTensors(), "UNKNOWN", kernel),
				 out = fill(param->GetOutTensors(), "WRITE", kernel);

	worker_.add("\"kernel\",\"START\"," + quoted(kernel) + "," +
		    quoted(path_ + "/" + kernel + "/before"));
	for (const std::string &event : in)
		worker_.add(event);
	RunKernel(kernel, *param);
	for (const std::string &event : out)
		worker_.add(event);
	worker_.add("\"kernel\",\"END\"," + quoted(kernel) + "," +
		    quoted(path_ + "/" + kernel + "/after"));
}

std::int32_t Operator::ExecuteImpl(atb::RunnerVariantPack &)
{
	require(errno == 71, "errno has changed on the way in");
	if (throws_)
		throw std::runtime_error("as the operator does");
	for (std::uint64_t i = 0; depth_ > 0 && i < 2; i++) {
		std::string name = pick(worker_, NAMES);

		Operator(worker_, name, path_ + "/" + number(i) + "_" + name, count_, depth_ - 1)
			.run();
	}
	for (std::uint64_t i = worker_.random(3); i > 0; i--)
		kernel(static_cast<unsigned>(i));
	errno = 72;
	return static_cast<std::int32_t>(depth_);
}

void Operator::run()
{
	auto pack = std::make_unique<atb::RunnerVariantPack>();
	std::vector<std::string> in = fill(pack->inTensors, "UNKNOWN"),
				 out = fill(pack->outTensors, "WRITE");
	std::string about = quoted(name_) + "," + quoted(path_) + ",";

	static_assert(offsetof(atb::RunnerVariantPack, workspaceBuffer) == 13784, "as in the library");
	if (worker_.random(4) != 0) {
		pack->workspaceBuffer = reinterpret_cast<std::uint8_t *>(0x12c041000000);
		pack->workspaceBufferSize = worker_.random(MIB);
		pack->intermediateBufferSize = worker_.random(MIB);
	}
	about += number(reinterpret_cast<std::uint64_t>(pack->workspaceBuffer)) + "," +
		 number(pack->workspaceBufferSize + pack->intermediateBufferSize);
	Prepare(path_);
	worker_.add("\"op\",\"START\"," + about);
	for (const std::string &event : in)
		worker_.add(event);
	errno = 71;
	try {
		require(Execute(*pack) == static_cast<std::int32_t>(depth_),
			"the result has changed on the way out");
	} catch (const std::runtime_error &) {
		require(throws_, "an exception from nowhere");
		return;
	}
	require(errno == 72, "errno has changed on the way out");
	for (const std::string &event : out)
		worker_.add(event);
	worker_.add("\"op\",\"END\"," + about);
}

void Worker::run(unsigned rounds)
{
	tid_ = syscall(SYS_gettid);
	require(aclrtSetDevice(static_cast<std::int32_t>(device_)) == 0, "aclrtSetDevice");
	take();
	for (unsigned round = 0; round < rounds; round++) {
		std::string name = pick(*this, NAMES);

		Operator(*this, name,
			 number(device_) + "_" + number(static_cast<std::uint64_t>(getpid())) + "/" +
				 number(round) + "/0_" + name,
			 round, round % 3, round + 1 == rounds)
			.run();
	}
	give();
}

void Worker::write(const char *client) const
{
	const char *path = std::getenv("TRUTH");
	std::FILE *file = path ? std::fopen(path, "a") : stdout;

	require(file != nullptr, "cannot write the truth");
	std::fprintf(file,
		     "{\"pid\":%d,\"tid\":%ld,\"part\":0,\"client\":\"%s\",\"reports\":true,"
		     "\"events\":[%s]}\n",
		     getpid(), tid_, client, events_.c_str());
	if (path)
		std::fclose(file);
}

unsigned option(int argc, char **argv, const char *name, unsigned standard)
{
	std::size_t length = std::strlen(name);

	for (int i = 1; i < argc; i++) {
		if (std::strncmp(argv[i], name, length) == 0 && argv[i][length] == '=')
			return static_cast<unsigned>(std::atoi(argv[i] + length + 1));
	}
	return standard;
}

} // namespace

int main(int argc, char **argv)
{
	unsigned threads = option(argc, argv, "--threads", 1),
		 rounds = option(argc, argv, "--rounds", 30),
		 devices = option(argc, argv, "--devices", 1);
	std::vector<Worker> workers;
	std::vector<std::thread> running;

	require(aclInit(nullptr) == 0, "aclInit");
	for (unsigned i = 0; i < threads; i++)
		workers.emplace_back(i, i % devices);
	for (Worker &worker : workers)
		running.emplace_back([&worker, rounds] { worker.run(rounds); });
	for (std::thread &thread : running)
		thread.join();
	workers[0].add("\"saved\"," + number(atb::StoreUtil::savedParams()) + "," +
		       number(atb::StoreUtil::savedPacks()));
	for (const Worker &worker : workers)
		worker.write("atb_ops");
	return 0;
}
