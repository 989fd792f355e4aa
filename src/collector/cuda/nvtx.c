/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVTX, NVIDIA's interface for marks and ranges. A client is header files alone: at its first call it opens the library that
 * NVTX_INJECTION64_PATH names and calls InitializeInjectionNvtx2(), which fills the client's tables of function slots. Clients may be
 * older or newer than we are: only slots that a table has are filled.
 *
 * Ranges that are pushed and popped have numbers of their own; the thread's writer has those that are open.
 */
#include "collector/cuda/cuda.h"

#include <string.h>
#include <sys/mman.h>
#include <wchar.h>

#include "collector/lock.h"
#include "collector/process/process.h"
#include "collector/record/domains.h"

#define TABLE_CALLBACKS	 1u
#define MODULE_CORE	 1u
#define MODULE_DOMAINS	 5u
#define MESSAGE_TEXT	 1
#define MESSAGE_WIDE	 2
#define MESSAGE_HANDLE	 3
#define LEVEL_NONE	 (-2) /* what push and pop return without a tool */
#define WIDE_MAX	 256u
#define STRINGS_BYTES	 (1u << 20)
#define ATTRIBUTES_BYTES 48u /* up to and with the message */

struct attributes {
	uint16_t version;
	uint16_t bytes;
	uint32_t category;
	int32_t color_type;
	uint32_t color;
	int32_t payload_type;
	int32_t reserved;
	uint64_t payload;
	int32_t message_type;
	const void *message;
};

_Static_assert(sizeof(struct attributes) == ATTRIBUTES_BYTES, "NVTX's layout");

static struct domains domains;
static struct lock lock; /* held by a thread that adds a string */

/* Registered strings, one behind the other; the address of one is its handle. */
static _Atomic(char *) strings;
static uint32_t strings_used;

static struct lookup_function context_device = {.name = "cuCtxGetDevice"};

/* ---- texts ---- */

static size_t put_utf8(char *out, uint32_t code)
{
	if (code < 0x80) {
		out[0] = (char)code;
		return 1;
	}
	if (code < 0x800) {
		out[0] = (char)(0xc0 | code >> 6);
		out[1] = (char)(0x80 | (code & 0x3f));
		return 2;
	}
	if (code < 0x10000) {
		out[0] = (char)(0xe0 | code >> 12);
		out[1] = (char)(0x80 | (code >> 6 & 0x3f));
		out[2] = (char)(0x80 | (code & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | code >> 18);
	out[1] = (char)(0x80 | (code >> 12 & 0x3f));
	out[2] = (char)(0x80 | (code >> 6 & 0x3f));
	out[3] = (char)(0x80 | (code & 0x3f));
	return 4;
}

/* Room for a wide text as UTF-8; longer ones are cut. */
struct narrow {
	char text[WIDE_MAX * 4];
};

static const char *narrow(struct narrow *out, const wchar_t *text)
{
	size_t length = 0, i;

	if (text == NULL)
		return NULL;
	for (i = 0; i + 1 < WIDE_MAX && text[i] != L'\0'; i++)
		length += put_utf8(out->text + length,
				   (uint32_t)text[i] < 0x110000 ? (uint32_t)text[i] : '?');
	out->text[length] = '\0';
	return out->text;
}

static const char *registered(const void *handle)
{
	const char *first = atomic_load_explicit(&strings, memory_order_acquire);

	return first != NULL && (const char *)handle >= first &&
			       (const char *)handle < first + STRINGS_BYTES
		       ? handle
		       : NULL;
}

static const char *message_of(const struct attributes *attributes, struct narrow *room)
{
	if (attributes == NULL || attributes->bytes < ATTRIBUTES_BYTES)
		return NULL;
	switch (attributes->message_type) {
	case MESSAGE_TEXT:
		return attributes->message;
	case MESSAGE_WIDE:
		return narrow(room, attributes->message);
	case MESSAGE_HANDLE:
		return registered(attributes->message);
	default:
		return NULL;
	}
}

/* ---- records ---- */

static const struct domain *domain_of(const void *handle)
{
	return domains_of(&domains, handle);
}

static uint32_t current_device(void)
{
	int (*ask)(int *) = (int (*)(int *))lookup_function(&context_device);
	int device = -1;

	return ask != NULL && ask(&device) == 0 && device >= 0
		       ? cuda_physical_device((uint32_t)device)
		       : DEVICE_UNKNOWN;
}

static void put_mark(struct writer *w, enum mark_kind kind, uint32_t device,
		     const struct domain *domain, const char *message, uint32_t range)
{
	struct event_mark event = {.kind = kind, .range = range, .stream = STREAM_NONE};
	uint32_t context;

	if (recording_now() != RECORDING_ON)
		return;
	context = writer_device(w, device_key(VENDOR_CUDA, device));
	event.text = message == NULL ? 0 : writer_text(w, message);
	event.domain = domain == NULL ? 0 : writer_text(w, domain->name);
	WRITER_PUT(w, mark, context, &event);
}

static void event_mark(enum mark_kind kind, const struct domain *domain, const char *message,
		       uint32_t range)
{
	struct writer *w;
	uint32_t device;

	if (recording_is_off())
		return;
	device = current_device();
	w = writer_enter();
	if (w == NULL)
		return;
	put_mark(w, kind, device, domain, message, range);
	writer_leave(w);
}

static uint64_t start_range(const struct domain *domain, const char *message)
{
	uint32_t range = range_new();

	event_mark(MARK_RANGE_START, domain, message, range);
	return range;
}

/* What a domain is in the list of open ranges. */
static uint32_t domain_number(const struct domain *domain)
{
	return domain == NULL ? 0 : (uint32_t)(domain - domains.all) + 1;
}

static int push(const struct domain *domain, const char *message)
{
	uint32_t range, device;
	struct writer *w;

	if (recording_is_off())
		return LEVEL_NONE;
	device = current_device();
	w = writer_enter();
	if (w == NULL)
		return LEVEL_NONE;
	range = range_new();
	/* Deeper ones have a beginning and no end. */
	if (w->range_count < WRITER_RANGES)
		w->ranges[w->range_count] =
			(struct open_range){.range = range, .domain = domain_number(domain)};
	w->range_count++;
	put_mark(w, MARK_RANGE_START, device, domain, message, range);
	writer_leave(w);
	return LEVEL_NONE;
}

static int pop(const struct domain *domain)
{
	uint32_t device, at, range;
	struct writer *w;

	if (recording_is_off())
		return LEVEL_NONE;
	device = current_device();
	w = writer_enter();
	if (w == NULL)
		return LEVEL_NONE;
	at = w->range_count;
	if (at > WRITER_RANGES) {
		w->range_count--;
		at = 0;
	}
	while (at != 0 && w->ranges[at - 1].domain != domain_number(domain))
		at--;
	if (at != 0) {
		range = w->ranges[at - 1].range;
		w->range_count--;
		memmove(&w->ranges[at - 1], &w->ranges[at],
			(w->range_count - (at - 1)) * sizeof(w->ranges[0]));
		put_mark(w, MARK_RANGE_END, device, domain, NULL, range);
	}
	writer_leave(w);
	return LEVEL_NONE;
}

/* ---- without domains ---- */

static void mark_ex(const struct attributes *attributes)
{
	struct narrow room;

	event_mark(MARK_AT, NULL, message_of(attributes, &room), 0);
}

static void mark_a(const char *message)
{
	event_mark(MARK_AT, NULL, message, 0);
}

static void mark_w(const wchar_t *message)
{
	struct narrow room;

	event_mark(MARK_AT, NULL, narrow(&room, message), 0);
}

static uint64_t range_start_ex(const struct attributes *attributes)
{
	struct narrow room;

	return start_range(NULL, message_of(attributes, &room));
}

static uint64_t range_start_a(const char *message)
{
	return start_range(NULL, message);
}

static uint64_t range_start_w(const wchar_t *message)
{
	struct narrow room;

	return start_range(NULL, narrow(&room, message));
}

static void range_end(uint64_t range)
{
	event_mark(MARK_RANGE_END, NULL, NULL, (uint32_t)range);
}

static int range_push_ex(const struct attributes *attributes)
{
	struct narrow room;

	return push(NULL, message_of(attributes, &room));
}

static int range_push_a(const char *message)
{
	return push(NULL, message);
}

static int range_push_w(const wchar_t *message)
{
	struct narrow room;

	return push(NULL, narrow(&room, message));
}

static int range_pop(void)
{
	return pop(NULL);
}

/* ---- with domains ---- */

static void domain_mark_ex(void *domain, const struct attributes *attributes)
{
	struct narrow room;

	event_mark(MARK_AT, domain_of(domain), message_of(attributes, &room), 0);
}

static uint64_t domain_range_start_ex(void *domain, const struct attributes *attributes)
{
	struct narrow room;

	return start_range(domain_of(domain), message_of(attributes, &room));
}

static void domain_range_end(void *domain, uint64_t range)
{
	event_mark(MARK_RANGE_END, domain_of(domain), NULL, (uint32_t)range);
}

static int domain_range_push_ex(void *domain, const struct attributes *attributes)
{
	struct narrow room;

	return push(domain_of(domain), message_of(attributes, &room));
}

static int domain_range_pop(void *domain)
{
	return pop(domain_of(domain));
}

static void *domain_create_a(const char *name)
{
	return domains_get(&domains, name, NULL);
}

static void *domain_create_w(const wchar_t *name)
{
	struct narrow room;

	return domain_create_a(narrow(&room, name));
}

static void domain_destroy(void *domain)
{
	(void)domain; /* the name may be asked for again */
}

static void *register_string_a(void *domain, const char *text)
{
	char *first, *found = NULL;
	size_t bytes;

	(void)domain;
	if (text == NULL || !lock_take(&lock))
		return NULL;
	first = atomic_load(&strings);
	if (first == NULL) {
		void *room = mmap(NULL, STRINGS_BYTES, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		first = room == MAP_FAILED ? NULL : room;
		atomic_store_explicit(&strings, first, memory_order_release);
	}
	bytes = strlen(text) + 1;
	if (first != NULL && bytes <= STRINGS_BYTES - strings_used) {
		found = first + strings_used;
		memcpy(found, text, bytes);
		strings_used += (uint32_t)bytes;
	}
	lock_release(&lock);
	return found;
}

static void *register_string_w(void *domain, const wchar_t *text)
{
	struct narrow room;

	return register_string_a(domain, narrow(&room, text));
}

/* ---- the protocol ---- */

typedef void function(void);

/* Functions by their numbers; 0 does not exist. */
static function *const core[] = {
	[1] = (function *)mark_ex,	 [2] = (function *)mark_a,
	[3] = (function *)mark_w,	 [4] = (function *)range_start_ex,
	[5] = (function *)range_start_a, [6] = (function *)range_start_w,
	[7] = (function *)range_end,	 [8] = (function *)range_push_ex,
	[9] = (function *)range_push_a,	 [10] = (function *)range_push_w,
	[11] = (function *)range_pop,
};

static function *const with_domains[] = {
	[1] = (function *)domain_mark_ex,     [2] = (function *)domain_range_start_ex,
	[3] = (function *)domain_range_end,   [4] = (function *)domain_range_push_ex,
	[5] = (function *)domain_range_pop,   [10] = (function *)register_string_a,
	[11] = (function *)register_string_w, [12] = (function *)domain_create_a,
	[13] = (function *)domain_create_w,   [14] = (function *)domain_destroy,
};

/* NvtxExportTableCallbacks. */
struct callback_tables {
	size_t bytes;
	int (*get)(uint32_t module, function ****out_table, unsigned int *out_size);
};

static void fill(const struct callback_tables *tables, uint32_t module, function *const *ours,
		 uint32_t count)
{
	function ***table = NULL;
	unsigned int size = 0, i;

	if (tables->get(module, &table, &size) == 0 || table == NULL)
		return;
	for (i = 1; i < size && i < count; i++) {
		if (ours[i] != NULL && table[i] != NULL)
			*table[i] = ours[i];
	}
}

/* 0 leaves the client's calls without effect, as without a tool. */
MSCOPE_EXPORT int InitializeInjectionNvtx2(nvtx_get_export_table *get_export_table)
{
	const struct callback_tables *tables;
	hook_InitializeInjectionNvtx2 *active;

	if (session_is_disabled())
		return 0;
	if (lookup_is_passive_quiet()) {
		active = HOOK_ORIGINAL(InitializeInjectionNvtx2);
		return active == NULL ? 0 : active(get_export_table);
	}
	if (get_export_table == NULL || !cuda_is_wanted())
		return 0;
	tables = get_export_table(TABLE_CALLBACKS);
	if (tables == NULL || tables->bytes < sizeof(*tables) || tables->get == NULL)
		return 0;
	fill(tables, MODULE_CORE, core, MSCOPE_COUNT(core));
	fill(tables, MODULE_DOMAINS, with_domains, MSCOPE_COUNT(with_domains));
	return 1;
}
