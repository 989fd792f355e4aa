// SPDX-License-Identifier: Apache-2.0
#include "mstx_object.c"
