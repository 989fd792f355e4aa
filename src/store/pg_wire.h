/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the command and msmemscope-pg say to one another, over a socket: frames of a kind, a length and that many bytes, in the
 * machine's own order of bytes.
 *
 *     to the helper     PG_OPEN url    PG_QUERY parameters, sql    PG_COPY sql, PG_DATA rows..., PG_END
 *     from it           PG_ROW values ...    then PG_DONE or PG_FAILED state, sentence
 *
 * Each PG_OPEN, PG_QUERY and PG_COPY..PG_END is answered once. A value is a kind (PG_NULL, ...), a length and its text.
 */
#ifndef MSCOPE_STORE_PG_WIRE_H
#define MSCOPE_STORE_PG_WIRE_H

#include <stdint.h>

enum pg_frame {
	PG_OPEN = 'O',
	PG_QUERY = 'Q',
	PG_COPY = 'C',
	PG_DATA = 'D',
	PG_END = 'E',
	PG_ROW = 'R',
	PG_DONE = 'Z',
	PG_FAILED = 'X',
};

enum pg_value { PG_NULL = 'n', PG_INT = 'i', PG_REAL = 'r', PG_TEXT = 't' };

/* What one answer may have. The largest that we ask for, a run of thousands of ranks, has a tenth of it. */
#define PG_ROW_BYTES_MAX    (64u << 20)
#define PG_ANSWER_ROWS_MAX  (UINT64_C(1) << 24)
#define PG_ANSWER_BYTES_MAX (UINT64_C(1) << 30)
#define PG_COLUMNS_MAX	    64

#define PG_STATE_BYTES 5       /* SQLSTATE; "08000" where there is none: no connection */
#define PG_NO_LIBRARY  "58000" /* the state of a missing libpq: an error of the system */
#define PG_TOO_MUCH    "54000" /* the state of an answer beyond the limits above */

struct pg_head {
	uint32_t kind;
	uint32_t bytes;
};

#endif
