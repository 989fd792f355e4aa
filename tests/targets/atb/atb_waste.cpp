/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atb_waste WORD...: memory of ATB's pool and operators that use it, in the order of the words:
 *
 *     make:N:BYTES     block N is allocated
 *     use:N            an operator reads it
 *     drop:N           it is freed
 *
 * Nothing else is in the pool, so what the peak is can be said beforehand.
 */
#include "atb.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <stdexcept>

#include "acl/acl.h"
#include "mstx/ms_tools_ext.h"

namespace
{

constexpr std::uint64_t BASE = 0x200000000000, APART = std::uint64_t{1} << 32;

void *address_of(unsigned block)
{
	return reinterpret_cast<void *>(BASE + block * APART);
}

class Reader : public atb::Runner
{
      public:
	Reader() : Runner("ReadOperation", 0)
	{
	}

	void run(unsigned block)
	{
		auto pack = std::make_unique<atb::RunnerVariantPack>();

		pack->inTensors.size = 1;
		pack->inTensors.items[0] = {};
		pack->inTensors.items[0].deviceData = address_of(block);
		pack->inTensors.items[0].dataSize = 1;
		Prepare("0_1/0/0_ReadOperation");
		if (Execute(*pack) != 0)
			throw std::logic_error("no operator");
	}

      protected:
	std::int32_t ExecuteImpl(atb::RunnerVariantPack &) override
	{
		return 0;
	}
};

} // namespace

int main(int argc, char **argv)
{
	std::map<unsigned, mstxMemRegionHandle_t> handles;
	mstxDomainHandle_t atb;
	unsigned block;
	std::uint64_t bytes;

	if (aclInit(nullptr) != 0 || aclrtSetDevice(0) != 0)
		return 1;
	atb = mstxDomainCreateA("atb");
	for (int i = 1; i < argc; i++) {
		if (std::sscanf(argv[i], "make:%u:%lu", &block, &bytes) == 2) {
			mstxMemVirtualRangeDesc_t range = {0, address_of(block), bytes};
			mstxMemRegionsRegisterBatch_t batch = {nullptr, MSTX_MEM_TYPE_VIRTUAL_ADDRESS, 1,
							       &range, &handles[block]};

			mstxMemRegionsRegister(atb, &batch);
		} else if (std::sscanf(argv[i], "use:%u", &block) == 1) {
			Reader().run(block);
		} else if (std::sscanf(argv[i], "drop:%u", &block) == 1) {
			mstxMemRegionRef_t reference = {};
			mstxMemRegionsUnregisterBatch_t batch = {1, &reference};

			reference.refType = MSTX_MEM_REGION_REF_TYPE_HANDLE;
			reference.handle = handles[block];
			mstxMemRegionsUnregister(atb, &batch);
		} else {
			return 2;
		}
	}
	return 0;
}
