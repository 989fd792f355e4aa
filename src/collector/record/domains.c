/* SPDX-License-Identifier: Apache-2.0 */
#include "collector/record/domains.h"

#include <string.h>

const struct domain *domains_of(const struct domains *domains, const void *handle)
{
	const struct domain *domain = handle;

	return domain >= domains->all && domain < domains->all + DOMAINS_MAX ? domain : NULL;
}

static struct domain *find(struct domains *domains, const char *name)
{
	uint32_t count = atomic_load_explicit(&domains->count, memory_order_acquire), i;

	for (i = 0; i < count; i++) {
		if (strcmp(domains->all[i].name, name) == 0)
			return &domains->all[i];
	}
	return NULL;
}

struct domain *domains_get(struct domains *domains, const char *name,
			   uint8_t (*pool_of)(const char *name))
{
	struct domain *domain;
	char cut[DOMAIN_NAME];
	uint32_t count;

	if (name == NULL)
		return NULL;
	strncpy(cut, name, sizeof(cut) - 1);
	cut[sizeof(cut) - 1] = '\0';
	/* torch_npu asks at every allocation and free; this loop over a handful of names is what it costs. */
	domain = find(domains, cut);
	if (domain != NULL)
		return domain;
	if (!lock_take(&domains->lock))
		return NULL;
	domain = find(domains, cut);
	count = atomic_load(&domains->count);
	if (domain == NULL && count < DOMAINS_MAX) {
		domain = &domains->all[count];
		memcpy(domain->name, cut, sizeof(cut));
		if (pool_of != NULL)
			domain->pool = pool_of(cut);
		atomic_store_explicit(&domains->count, count + 1, memory_order_release);
	}
	lock_release(&domains->lock);
	return domain;
}

uint32_t range_new(void)
{
	static _Atomic uint32_t next = 1;
	uint32_t range = atomic_fetch_add(&next, 1);

	return range != 0 ? range : atomic_fetch_add(&next, 1);
}
