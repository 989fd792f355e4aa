/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers, sizes, times, devices and pools as people read them: thousands with commas, one decimal at most, the platform's own names.
 * Files and JSON have the plain values.
 */
#ifndef MSCOPE_FINDINGS_SAY_H
#define MSCOPE_FINDINGS_SAY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "base/strbuf.h"

/* "40,600". */
void say_number(struct strbuf *out, uint64_t number);

/* "1 block", "1,234 blocks". */
void say_count(struct strbuf *out, uint64_t count, const char *noun);

/* A forecast to three digits: "40,600" of 40,573. */
void say_about(struct strbuf *out, uint64_t number);

/* How long something will take: "93 min", "14 h". */
void say_duration(struct strbuf *out, double seconds);

/* How long something took, or when it was: "5.5 s", "12 ms", "12 min". */
void say_seconds(struct strbuf *out, double seconds);

/* "1.9 MiB", "4.0 B": a size that need not be whole. */
void say_size(struct strbuf *out, double bytes);

/* "1.0 GiB"; a unit finer, "1,024 MiB", where another size would read the same and is not. */
void say_apart(struct strbuf *out, uint64_t bytes, uint64_t other);

/* "0.4 of 140 GiB"; a part that is too small for the unit of the whole, or would read as if it were the whole, has its own. */
void say_part(struct strbuf *out, uint64_t part, uint64_t whole);

/* "4.0 -> 5.2 MiB"; "900 KiB -> 1.2 MiB"; "4.0 MiB (+512 B)" where both read the same. */
void say_change(struct strbuf *out, uint64_t from, uint64_t to);

/*
 * Several sizes in one line: "PyTorch pool 340 MiB + cuBLAS 130 + context 539 MiB + other processes 2.0 GiB". Of sizes with the same unit
 * the first and the last say it.
 */
struct say_sum {
	struct strbuf *out;
	const char *unit; /* of the size before; NULL: there is none */
	bool pending;	  /* it has not been said */
};

void say_sum_add(struct say_sum *sum, const char *name, uint64_t bytes);

/* Another figure of the last one: " in use, 137 reserved". */
void say_sum_also(struct say_sum *sum, const char *before, uint64_t bytes, const char *after);
void say_sum_end(struct say_sum *sum);

/* "GPU 0", "NPU 0", "the CPU"; "device 0" if the vendor is not known. */
void say_device(struct strbuf *out, uint8_t vendor, uint32_t device);

/* "PyTorch pool" on CUDA, "PyTorch pool (PTA)" on Ascend; "CPU tensors". */
const char *say_pool(uint8_t vendor, uint8_t pool);

/* The same with its article: "the PyTorch pool", "CPU tensors". */
void say_the_pool(struct strbuf *out, uint8_t vendor, uint8_t pool);

/* The name that the original has for it, "Pytorch Caching memory pool"; NULL if the pool is not a framework's. */
const char *pool_long_name(uint8_t pool);

/* "optimizer state", of enum owner_class; NULL if it is none of a model's memory. */
const char *say_class(uint32_t owner_class);

/* Its key in JSON: "optimizer_state"; "other" if it is none. */
const char *say_class_key(uint32_t owner_class);

/* What owners start with, and what people call it: {"model@weight": "weights", ...}. */
void say_classes(struct json *json, const char *key);

#endif
