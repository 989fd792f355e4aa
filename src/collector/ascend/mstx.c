/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mstx, the instrumentation interface: marks, ranges, domains, and through domains the memory pools of the frameworks.
 *
 * Each shared object that uses mstx has a table of function slots of its own and calls InitInjectionMstx() to have it filled.
 * Objects may do so at the same time, with older or newer tables: only slots that a table has are filled. The result is always
 * success, since mstx calls of an object do nothing after a failure.
 */
#include "collector/ascend/ascend.h"

#include <string.h>

#include "collector/api.h"
#include "collector/process/process.h"
#include "collector/record/domains.h"
#include "collector/torch/torch.h"

#define TOOL_ID UINT64_C(0x1003)

static struct domains domains;

/*
 * Streams stay unknown: the Python module passes the address of any object that it was given, and the runtime would read it as a
 * stream.
 */
static void event_mark(enum mark_kind kind, const struct domain *domain, const char *message,
		       uint64_t range)
{
	struct event_mark event = {.kind = kind, .range = range, .stream = STREAM_NONE};
	uint32_t context, device;
	struct writer *w;

	if (recording_is_off())
		return;
	device = ascend_current_device();
	w = writer_enter_on();
	if (w == NULL)
		return;
	context = ascend_context(w, device);
	event.text = writer_text(w, message);
	event.domain = domain == NULL ? 0 : writer_text(w, domain->name);
	WRITER_PUT(w, mark, context, &event);
	writer_leave(w);
}

/* ---- core ---- */

/* What Python registered for marks of operators that torch_npu's sanitizer does not see by itself; 0 if none. */
static _Atomic uint64_t sanitizer;

MSCOPE_EXPORT void mscope_sanitizer(uint64_t listener)
{
	atomic_store_explicit(&sanitizer, listener, memory_order_release);
}

static void tell_sanitizer(const char *message, uint64_t stream)
{
	static const char prefix[] = "sanitizer-op:";
	uint64_t listener = atomic_load_explicit(&sanitizer, memory_order_acquire);

	if (listener != 0 && message != NULL && strncmp(message, prefix, sizeof(prefix) - 1) == 0)
		((void (*)(const char *, uint64_t))(uintptr_t)listener)(message, stream);
}

static void mark(const char *message, void *stream)
{
	tell_sanitizer(message, (uint64_t)(uintptr_t)stream);
	if (recording_is_off() ||
	    aten_mark_take(message, VENDOR_ASCEND, __builtin_return_address(0)))
		return;
	event_mark(MARK_AT, NULL, message, 0);
}

/* What Python registered for ranges that mark steps, 0 if nothing; and the latest of these ranges. */
static _Atomic uint64_t step_listener, step_range;

MSCOPE_EXPORT void mscope_step_listener(uint64_t listener)
{
	atomic_store_explicit(&step_listener, listener, memory_order_release);
}

static void tell_step(uint32_t ended)
{
	uint64_t listener = atomic_load_explicit(&step_listener, memory_order_acquire);

	if (listener != 0)
		((void (*)(uint32_t))(uintptr_t)listener)(ended);
}

static uint64_t range_start_in(const struct domain *domain, const char *message)
{
	uint32_t range = range_new();

	event_mark(MARK_RANGE_START, domain, message, range);
	if (message != NULL && strcmp(message, STEP_MESSAGE) == 0) {
		atomic_store(&step_range, range);
		tell_step(0);
	}
	return range;
}

static uint64_t range_start(const char *message, void *stream)
{
	(void)stream;
	return range_start_in(NULL, message);
}

static void range_end_in(const struct domain *domain, uint64_t range)
{
	event_mark(MARK_RANGE_END, domain, NULL, range);
	if (range != 0 && range == atomic_load(&step_range))
		tell_step(1);
}

static void range_end(uint64_t range)
{
	range_end_in(NULL, range);
}

static void get_tool_id(uint64_t *id)
{
	if (id != NULL)
		*id = TOOL_ID;
}

/* ---- domains ---- */

static const struct domain *domain_of(const void *handle)
{
	return domains_of(&domains, handle);
}

static void *domain_create(const char *name)
{
	return domains_get(&domains, name, pool_of_domain);
}

static void domain_destroy(void *domain)
{
	(void)domain; /* the name may be asked for again, and must then give the same handle */
}

static void domain_mark(void *domain, const char *message, void *stream)
{
	(void)stream;
	event_mark(MARK_AT, domain_of(domain), message, 0);
}

static uint64_t domain_range_start(void *domain, const char *message, void *stream)
{
	(void)stream;
	return range_start_in(domain_of(domain), message);
}

static void domain_range_end(void *domain, uint64_t range)
{
	range_end_in(domain_of(domain), range);
}

/* ---- memory ---- */

static uint8_t pool_of(const void *handle)
{
	const struct domain *domain = domain_of(handle);

	return domain == NULL ? POOL_UNKNOWN : domain->pool;
}

static void *heap_register(void *domain, const struct mstx_heap_desc *desc)
{
	return pool_of(domain) == POOL_UNKNOWN ? NULL : pool_heap_register(pool_of(domain), desc);
}

static void heap_unregister(void *domain, void *heap)
{
	if (pool_of(domain) != POOL_UNKNOWN)
		pool_heap_unregister(pool_of(domain), heap);
}

static void regions_register(void *domain, const struct mstx_register_batch *batch)
{
	if (pool_of(domain) != POOL_UNKNOWN)
		pool_regions_register(pool_of(domain), batch, __builtin_return_address(0));
}

static void regions_unregister(void *domain, const struct mstx_unregister_batch *batch)
{
	if (pool_of(domain) != POOL_UNKNOWN)
		pool_regions_unregister(pool_of(domain), batch, __builtin_return_address(0));
}

/* ---- the protocol ---- */

typedef void function(void);

/* Functions by module and index; index 0 does not exist. */
static function *const modules[][6] = {
	[1] = {NULL, (function *)mark, (function *)range_start, (function *)range_end,
	       (function *)get_tool_id},
	[2] = {NULL, (function *)domain_create, (function *)domain_destroy, (function *)domain_mark,
	       (function *)domain_range_start, (function *)domain_range_end},
	[3] = {NULL, (function *)heap_register, (function *)heap_unregister,
	       (function *)regions_register, (function *)regions_unregister},
};

MSCOPE_EXPORT int InitInjectionMstx(mstx_get_table *get_table)
{
	hook_InitInjectionMstx *active;
	int module;

	if (session_is_disabled())
		return 1;
	if (lookup_is_passive_quiet()) {
		active = HOOK_ORIGINAL(InitInjectionMstx);
		return active == NULL ? 1 : active(get_table);
	}
	for (module = 1; module <= 3; module++) {
		void (***table)(void) = NULL;
		unsigned int size = 0, i;

		if (get_table(module, &table, &size) != 0 || table == NULL)
			continue;
		/* Slot 0 and the one behind the last are the client's; an older table is shorter than ours. */
		for (i = 1; i < size && i < MSCOPE_COUNT(modules[0]); i++) {
			if (modules[module][i] != NULL && table[i] != NULL)
				*table[i] = modules[module][i];
		}
	}
	return 0;
}
