/* SPDX-License-Identifier: Apache-2.0 */
#include "findings/say.h"

#include <string.h>

#include "base/vendors.h"
#include "findings/findings.h"
#include "replay/replay.h"

void say_number(struct strbuf *out, uint64_t number)
{
	if (number >= 1000) {
		say_number(out, number / 1000);
		strbuf_addf(out, ",%03u", (unsigned int)(number % 1000));
	} else {
		strbuf_add_u64(out, number);
	}
}

void say_count(struct strbuf *out, uint64_t count, const char *noun)
{
	say_number(out, count);
	strbuf_addf(out, " %s%s", noun, count == 1 ? "" : "s");
}

void say_about(struct strbuf *out, uint64_t number)
{
	uint64_t scale = 1;

	while (number / scale >= 1000)
		scale *= 10;
	say_number(out,
		   (number / scale + (number % scale >= (scale + 1) / 2 && scale > 1)) * scale);
}

void say_duration(struct strbuf *out, double seconds)
{
	if (seconds < 120)
		strbuf_addf(out, "%.0f s", seconds);
	else if (seconds < 2 * 3600)
		strbuf_addf(out, "%.0f min", seconds / 60);
	else if (seconds < 72 * 3600)
		strbuf_addf(out, "%.0f h", seconds / 3600);
	else
		strbuf_addf(out, "%.0f days", seconds / 86400);
}

void say_seconds(struct strbuf *out, double seconds)
{
	if (seconds < 0.0995)
		strbuf_addf(out, seconds < 0.00095 ? "%.1f ms" : "%.0f ms", seconds * 1000);
	else if (seconds < 600)
		strbuf_addf(out, "%.1f s", seconds);
	else
		say_duration(out, seconds);
}

void say_size(struct strbuf *out, double bytes)
{
	unsigned unit = size_unit(bytes);

	bytes /= (double)(UINT64_C(1) << 10 * unit);
	strbuf_addf(out, bytes >= 100 ? "%.0f %s" : "%.1f %s", bytes, size_units[unit]);
}

static double in_unit(uint64_t bytes, size_t unit)
{
	return (double)bytes / (double)(UINT64_C(1) << 10 * unit);
}

/* From `whole` on without a decimal. */
static void add_in(struct strbuf *out, uint64_t bytes, size_t unit, double whole)
{
	double value = in_unit(bytes, unit);

	strbuf_addf(out, value >= whole || unit == 0 || bytes == 0 ? "%.0f" : "%.1f", value);
}

void say_apart(struct strbuf *out, uint64_t bytes, uint64_t other)
{
	struct strbuf one = {0}, two = {0};
	unsigned unit = size_unit((double)bytes);

	strbuf_add_size(&one, bytes);
	strbuf_add_size(&two, other);
	if (bytes != other && unit > 0 && strcmp(strbuf_str(&one), strbuf_str(&two)) == 0) {
		say_number(out, (bytes + (UINT64_C(1) << 10 * (unit - 1)) / 2) >> 10 * (unit - 1));
		strbuf_addf(out, " %s", size_units[unit - 1]);
	} else {
		strbuf_add_str(out, strbuf_str(&one));
	}
	strbuf_fini(&one);
	strbuf_fini(&two);
}

void say_part(struct strbuf *out, uint64_t part, uint64_t whole)
{
	size_t unit = size_unit((double)whole);

	bool alike = size_unit((double)part) < unit && in_unit(part, unit) >= 0.95 &&
		     in_unit(whole, unit) < 1.05;

	if ((part != 0 && in_unit(part, unit) < 0.1) || alike) {
		strbuf_add_size(out, part);
		strbuf_add_str(out, " of ");
		strbuf_add_size(out, whole);
		return;
	}
	add_in(out, part, unit, 100);
	strbuf_add_str(out, " of ");
	strbuf_add_size(out, whole);
}

void say_change(struct strbuf *out, uint64_t from, uint64_t to)
{
	struct strbuf first = {0}, second = {0};
	unsigned unit = size_unit((double)from);

	strbuf_add_size(&first, from);
	strbuf_add_size(&second, to);
	if (from == to) {
		strbuf_add_str(out, strbuf_str(&first));
	} else if (strcmp(strbuf_str(&first), strbuf_str(&second)) == 0) {
		strbuf_addf(out, "%s (%c", strbuf_str(&second), to > from ? '+' : '-');
		strbuf_add_size(out, to > from ? to - from : from - to);
		strbuf_add_char(out, ')');
	} else if (unit == size_unit((double)to)) {
		add_in(out, from, unit, 100);
		strbuf_addf(out, " -> %s", strbuf_str(&second));
	} else {
		strbuf_addf(out, "%s -> %s", strbuf_str(&first), strbuf_str(&second));
	}
	strbuf_fini(&first);
	strbuf_fini(&second);
}

static void end_unit(struct say_sum *sum)
{
	if (sum->pending)
		strbuf_addf(sum->out, " %s", sum->unit);
	sum->pending = false;
}

void say_sum_add(struct say_sum *sum, const char *name, uint64_t bytes)
{
	const char *unit = size_units[size_unit((double)bytes)];
	bool same = sum->unit == unit;

	if (bytes == 0)
		return;
	if (!same)
		end_unit(sum);
	strbuf_addf(sum->out, "%s%s ", sum->unit == NULL ? "" : " + ", name);
	add_in(sum->out, bytes, size_unit((double)bytes), 10);
	if (!same)
		strbuf_addf(sum->out, " %s", unit);
	sum->unit = unit;
	sum->pending = same;
}

void say_sum_also(struct say_sum *sum, const char *before, uint64_t bytes, const char *after)
{
	end_unit(sum);
	strbuf_add_str(sum->out, before);
	if (size_units[size_unit((double)bytes)] == sum->unit)
		add_in(sum->out, bytes, size_unit((double)bytes), 10);
	else
		strbuf_add_size(sum->out, bytes);
	strbuf_add_str(sum->out, after);
}

void say_sum_end(struct say_sum *sum)
{
	end_unit(sum);
}

void say_device(struct strbuf *out, uint8_t vendor, uint32_t device)
{
	char text[16];

	if (device == DEVICE_HOST) {
		strbuf_add_str(out, "the CPU");
	} else if (device == DEVICE_UNKNOWN) {
		strbuf_add_str(out, "an unknown device");
	} else {
		device_text(device, text);
		strbuf_addf(out, "%s %s",
			    vendor == VENDOR_CUDA     ? "GPU"
			    : vendor == VENDOR_ASCEND ? "NPU"
						      : "device",
			    text);
	}
}

const char *say_pool(uint8_t vendor, uint8_t pool)
{
	bool cuda = vendor == VENDOR_CUDA;

	switch (pool) {
	case POOL_hal:
		return cuda ? "CUDA driver" : "driver (HAL)";
	case POOL_host_pinned:
		return "pinned host memory";
	case POOL_pta:
		return cuda ? "PyTorch pool" : "PyTorch pool (PTA)";
	case POOL_pta_workspace:
		return "PyTorch workspace pool";
	case POOL_atb:
		return "ATB pool";
	case POOL_mindspore:
		return "MindSpore pool";
	case POOL_host:
		return "CPU tensors";
	default:
		return pool_event_type(pool);
	}
}

void say_the_pool(struct strbuf *out, uint8_t vendor, uint8_t pool)
{
	strbuf_addf(out, "%s%s", pool == POOL_host || pool == POOL_host_pinned ? "" : "the ",
		    say_pool(vendor, pool));
}

const char *pool_long_name(uint8_t pool)
{
	switch (pool) {
	case POOL_pta:
		return "Pytorch Caching memory pool";
	case POOL_atb:
		return "ATB memory pool";
	case POOL_mindspore:
		return "Mindspore memory pool";
	case POOL_host:
		return "CPU tensor memory";
	default:
		return NULL;
	}
}

const char *say_class(uint32_t owner_class)
{
	switch (owner_class) {
	case CLASS_temporary:
		return "temporary tensors";
	case CLASS_activation:
		return "activations";
	case CLASS_input:
		return "inputs";
	case CLASS_state_dict:
		return "state dict";
	case CLASS_gradient:
		return "gradients";
	case CLASS_optimizer_state:
		return "optimizer state";
	case CLASS_attribute:
		return "attributes";
	case CLASS_buffer:
		return "buffers";
	case CLASS_kv_cache:
		return "KV cache";
	case CLASS_weight:
		return "weights";
	default:
		return NULL;
	}
}

const char *say_class_key(uint32_t owner_class)
{
#define CLASS_other		   CLASS_none
#define FIELD(type, name, meaning) [CLASS_##name] = #name,
	static const char *const keys[OWNER_CLASSES] = {FINDING_CLASSES};
#undef FIELD
#undef CLASS_other

	return keys[owner_class < OWNER_CLASSES ? owner_class : CLASS_none];
}

void say_classes(struct json *json, const char *key)
{
	uint32_t kind;

	json_object(json, key);
	for (kind = CLASS_none + 1; kind < OWNER_CLASSES; kind++) {
		if (say_class(kind) != NULL)
			json_string(json, owners_class_text((enum owner_class)kind),
				    say_class(kind));
	}
	json_end(json);
}
