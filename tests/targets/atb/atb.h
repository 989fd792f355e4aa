/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for libatb.so: the classes of Ascend Transformer Boost that a tool looks into, laid out as in the real library, and
 * as much behaviour as tells it from nothing. Runner::Execute runs what a derived class does; probes answer no, or with
 * ATB_SAVE=1 in the environment yes; what would be saved is counted.
 *
 * Built for both forms of std::string, and with ATB_OLD_PACK for the pack of earlier versions, whose context comes sooner.
 */
#ifndef MSCOPE_TESTS_ATB_H
#define MSCOPE_TESTS_ATB_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace Mki
{

template <typename T> struct SVector {
	T items[49];
	std::size_t count;
};

struct Tensor {
	int dtype;
	int format;
	SVector<std::int64_t> dims;
	std::vector<std::int64_t> strides;
	std::int64_t offset;
	void *data;
	std::size_t dataSize;
	void *hostData;
};

static_assert(sizeof(Tensor) == 464 && offsetof(Tensor, data) == 440, "as in the real library");
static_assert(offsetof(SVector<Tensor>, count) == 22736, "as in the real library");

class LaunchParam
{
      public:
	SVector<Tensor> &GetInTensors();
	SVector<Tensor> &GetOutTensors();

      private:
	SVector<Tensor> in_{}, out_{};
};

} // namespace Mki

namespace atb
{

struct Tensor {
	int dtype;
	int format;
	std::int64_t dims[8];
	std::uint64_t dimNum;
	void *deviceData;
	void *hostData;
	std::uint64_t dataSize;
};

static_assert(sizeof(Tensor) == 104, "as in the real library");

template <typename T> struct SVector {
	std::uint64_t capacity = 65;
	std::uint64_t size = 0;
	T items[65]{};
	T *heap = nullptr; /* where the items are when they are more */
};

class Context;

struct RunnerVariantPack {
	SVector<Tensor> inTensors;
	SVector<Tensor> outTensors;
	SVector<bool> inSubtracted;
	SVector<bool> outSubtracted;
	std::uint8_t *hostTilingBuffer = nullptr;
	std::uint8_t *tilingBuffer = nullptr;
	std::uint64_t tilingBufferSize = 0;
	std::uint8_t *workspaceBuffer = nullptr;
	std::uint64_t workspaceBufferSize = 0;
	std::uint8_t *intermediateBuffer = nullptr;
	std::uint64_t intermediateBufferSize = 0;
#ifndef ATB_OLD_PACK
	std::uint8_t *argsDeviceBuffer = nullptr;
	std::uint8_t *argsHostBuffer = nullptr;
#endif
	Context *context = nullptr;
};

static_assert(sizeof(SVector<Tensor>) == 6784 && sizeof(SVector<bool>) == 96,
	      "as in the real library");

class Probe
{
      public:
	static bool IsTensorNeedSave(const std::vector<std::int64_t> &ids,
				     const std::string &opType);
	static bool IsSaveTensorDesc();
	static bool IsSaveTensorBefore();
	static bool IsSaveTensorAfter();
	static bool IsExecuteCountInRange(std::uint64_t executeCount);
};

class StoreUtil
{
      public:
	static void SaveLaunchParam(void *stream, const Mki::LaunchParam &param,
				    const std::string &path);
	static void SaveVariantPack(const RunnerVariantPack &pack, const std::string &path);

	static std::uint64_t savedParams();
	static std::uint64_t savedPacks();
};

class Runner
{
      public:
	Runner(const std::string &name, std::uint64_t executeCount);
	virtual ~Runner();

	/* What an operation does before it executes: its place is kept when somebody asks for it. */
	void Prepare(const std::string &place);
	std::int32_t Execute(RunnerVariantPack &pack);
	std::string GetOperationName() const;
	std::string GetSaveTensorDir() const;
	bool IsSaveTensor() const;
	void *GetExecuteStream(Context *context) const;

      protected:
	virtual std::int32_t ExecuteImpl(RunnerVariantPack &pack) = 0;
	/* One kernel of the operator, which takes and gives what is in `param`. */
	void RunKernel(const std::string &name, const Mki::LaunchParam &param);

      private:
	std::string name_, place_;
	std::uint64_t executeCount_;
};

} // namespace atb

#endif
