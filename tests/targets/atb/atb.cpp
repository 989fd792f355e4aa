/* SPDX-License-Identifier: Apache-2.0 */
#include "atb.h"

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

void *Runner::GetExecuteStream(Context *) const
{
	return nullptr;
}

void Runner::RunKernel(const std::string &name, const Mki::LaunchParam &param)
{
	bool save = Probe::IsTensorNeedSave({}, name_) &&
		    Probe::IsExecuteCountInRange(executeCount_);

	if (save && Probe::IsSaveTensorBefore())
		StoreUtil::SaveLaunchParam(nullptr, param,
					   GetSaveTensorDir() + "/" + name + "/before");
	if (save && Probe::IsSaveTensorAfter())
		StoreUtil::SaveLaunchParam(nullptr, param,
					   GetSaveTensorDir() + "/" + name + "/after");
}

} // namespace atb
