/* SPDX-License-Identifier: Apache-2.0 */
/* Prototypes of api.def. */
#ifndef MSCOPE_COLLECTOR_API_H
#define MSCOPE_COLLECTOR_API_H

#include "base/compiler.h"

#define API(name, return_type, parameters, meaning) return_type name parameters;
#include "collector/api.def"
#undef API

#endif
