/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of Rust: the newer form has a grammar of its own (RFC 2603, "v0"), the older one is that of C++ with characters spelled
 * out and a hash at the end. Names are not trusted; time and output are bounded. No state; any thread.
 */
#ifndef MSCOPE_SYMBOLS_RUST_H
#define MSCOPE_SYMBOLS_RUST_H

#include <stdbool.h>

#include "base/compiler.h"

struct strbuf;

/*
 * Appends the name behind "_R", as far as `limit` bytes, "..." behind what was cut. False, and nothing is appended, when it is
 * not well formed.
 */
bool rust_demangle(const char *name, size_t limit, struct strbuf *out);

/* Tidies the demangled name that begins at `at` if it is one of Rust: core::ptr::drop_in_place$LT$T$GT$::h0123456789abcdef. */
void rust_tidy(struct strbuf *name, size_t at);

#endif
