/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libms_tools_ext.so: the functions of the header, for those who look them up at run time or do not want to carry them. It
 * is one object with a context of its own like every other that includes the header.
 */
#define MSTX_SIM_LIBRARY

#include "mstx/ms_tools_ext.h"
