/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Growable arrays of any element type, as three plain fields in the owner's struct:
 *
 *     struct frame *frames;  size_t frame_count, frame_room;
 *     r = ARRAY_RESERVE(x->frames, x->frame_room, x->frame_count + 1);
 *
 * The owner frees the pointer with free(). Not thread-safe.
 */
#ifndef MSCOPE_BASE_ARRAY_H
#define MSCOPE_BASE_ARRAY_H

#include "base/compiler.h"

/* Makes room for `wanted` elements; `pointer` is the address of the typed pointer. 0 or -ENOMEM, nothing lost on failure. */
int array_reserve(void *pointer, size_t *room, size_t wanted, size_t element_bytes);

#define ARRAY_RESERVE(all, room, wanted) array_reserve(&(all), &(room), (wanted), sizeof(*(all)))

#endif
