/* SPDX-License-Identifier: Apache-2.0 */
/* Apart from those who ask, so that no compiler knows the answers. */
#include "atb.h"

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace atb
{

static bool isSaving()
{
	const char *save = std::getenv("ATB_SAVE");

	return save != nullptr && std::strcmp(save, "1") == 0;
}

bool Probe::IsTensorNeedSave(const std::vector<std::int64_t> &, const std::string &)
{
	return isSaving();
}

bool Probe::IsSaveTensorDesc()
{
	return isSaving();
}

bool Probe::IsSaveTensorBefore()
{
	return isSaving();
}

bool Probe::IsSaveTensorAfter()
{
	return isSaving();
}

bool Probe::IsExecuteCountInRange(std::uint64_t)
{
	return isSaving();
}

static std::atomic<std::uint64_t> params, packs;

void StoreUtil::SaveLaunchParam(void *, const Mki::LaunchParam &, const std::string &)
{
	params++;
}

void StoreUtil::SaveVariantPack(const RunnerVariantPack &, const std::string &)
{
	packs++;
}

std::uint64_t StoreUtil::savedParams()
{
	return params;
}

std::uint64_t StoreUtil::savedPacks()
{
	return packs;
}

} // namespace atb
