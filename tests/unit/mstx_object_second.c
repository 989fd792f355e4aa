/* SPDX-License-Identifier: Apache-2.0 */
#define OBJECT_SECOND
#include "mstx_object.c"
