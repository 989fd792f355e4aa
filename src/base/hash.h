/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FNV-1a, 64 bits: the hash of texts and other short byte strings, in tables of the engine and of the collector. It mixes well for
 * names and paths and needs no state but the hash itself: begin with HASH_BEGIN and add bytes. Pure functions, any thread.
 */
#ifndef MSCOPE_BASE_HASH_H
#define MSCOPE_BASE_HASH_H

#include "base/compiler.h"

#define HASH_BEGIN UINT64_C(0xcbf29ce484222325)

static inline uint64_t hash_add_byte(uint64_t hash, uint8_t byte)
{
	return (hash ^ byte) * UINT64_C(0x100000001b3);
}

static inline uint64_t hash_add(uint64_t hash, const void *data, size_t bytes)
{
	const uint8_t *at = data;
	size_t i;

	for (i = 0; i < bytes; i++)
		hash = hash_add_byte(hash, at[i]);
	return hash;
}

/* The hash of a text, without its NUL. */
static inline uint64_t hash_text(const char *text)
{
	uint64_t hash = HASH_BEGIN;

	for (; *text != '\0'; text++)
		hash = hash_add_byte(hash, (uint8_t)*text);
	return hash;
}

#endif
