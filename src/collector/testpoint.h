/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TESTPOINT(name) marks the moment after a store that a reader can observe. In the build that the crash tests use
 * (MSCOPE_TESTPOINTS), the environment variable MSMEMSCOPE_TESTPOINT=name:n kills the process at the n-th passage; elsewhere
 * it is nothing.
 */
#ifndef MSCOPE_COLLECTOR_TESTPOINT_H
#define MSCOPE_COLLECTOR_TESTPOINT_H

#ifdef MSCOPE_TESTPOINTS
void testpoint_hit(const char *name);
#define TESTPOINT(name) testpoint_hit(#name)
#else
#define TESTPOINT(name) ((void)0)
#endif

#endif
