/* SPDX-License-Identifier: Apache-2.0 */
#include "atb.h"

#include <cstdlib>

namespace Mki
{

SVector<Tensor> &LaunchParam::GetInTensors()
{
	return in_;
}

SVector<Tensor> &LaunchParam::GetOutTensors()
{
	return out_;
}

} // namespace Mki

namespace atb
{

constexpr std::uint64_t CONTEXT_MARK = 0x0123456789abcdef;

Context::Context(void *stream) : mark_(CONTEXT_MARK), stream_(stream)
{
}

Context::~Context() = default;

void *Context::stream() const
{
	if (mark_ != CONTEXT_MARK)
		std::abort();
	return stream_;
}

Runner::Runner(const std::string &name, std::uint64_t executeCount)
	: name_(name), executeCount_(executeCount)
{
}

Runner::~Runner() = default;

void Runner::Prepare(const std::string &place)
{
	if (Probe::IsSaveTensorDesc())
		place_ = place;
}

std::int32_t Runner::Execute(RunnerVariantPack &pack)
{
	std::int32_t result;

	stream_ = GetExecuteStream(pack.context);
	if (IsSaveTensor() && Probe::IsSaveTensorBefore())
		StoreUtil::SaveVariantPack(pack, GetSaveTensorDir() + "/before");
	result = ExecuteImpl(pack);
	if (IsSaveTensor() && Probe::IsSaveTensorAfter())
		StoreUtil::SaveVariantPack(pack, GetSaveTensorDir() + "/after");
	return result;
}

std::string Runner::GetOperationName() const
{
	return name_;
}

std::string Runner::GetSaveTensorDir() const
{
	return place_;
}

bool Runner::IsSaveTensor() const
{
	return Probe::IsTensorNeedSave({}, name_) && Probe::IsExecuteCountInRange(executeCount_);
}

void *Runner::GetExecuteStream(Context *context) const
{
	return context == nullptr ? nullptr : context->stream();
}

void Runner::RunKernel(const std::string &name, const Mki::LaunchParam &param,
		       const std::function<void()> &work)
{
	bool save = Probe::IsTensorNeedSave({}, name_) &&
		    Probe::IsExecuteCountInRange(executeCount_);

	if (save && Probe::IsSaveTensorBefore())
		StoreUtil::SaveLaunchParam(stream_, param,
					   GetSaveTensorDir() + "/" + name + "/before");
	if (work)
		work();
	if (save && Probe::IsSaveTensorAfter())
		StoreUtil::SaveLaunchParam(stream_, param,
					   GetSaveTensorDir() + "/" + name + "/after");
}

} // namespace atb
