/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel that makes checksums of watched memory, as text that every driver since CUDA 9 compiles for every GPU since Maxwell. A
 * thread has a chunk: out[thread] is checksum_add(0, chunk) of bytes [thread * chunk, thread * chunk + chunk) of the data, the last
 * one shorter; checksum_join() makes one of them. A block of 256 threads first makes the tables of checksum.c, eight of them, in
 * shared memory. The chunk is a multiple of 8, so all threads begin with as many single bytes, until the address is one of a word.
 */
#ifndef MSCOPE_COLLECTOR_CUDA_SUMS_KERNEL_H
#define MSCOPE_COLLECTOR_CUDA_SUMS_KERNEL_H

#define SUMS_KERNEL_NAME "mscope_watch_sums"

/* Byte `from` (in bits) of the word in %d10 by the table at `table`, into the state. */
#define SUMS_BYTE(from, table)                                                                     \
	"	bfe.u64 %d11, %d10, " from ", 8;\n"                                                \
	"	shl.b64 %d11, %d11, 3;\n"                                                                \
	"	add.u64 %d11, %d11, %d1;\n"                                                              \
	"	ld.shared.u64 %d11, [%d11+" table "];\n"                                           \
	"	xor.b64 %d9, %d9, %d11;\n"

/* The single byte at %d7 into the state. */
#define SUMS_SINGLE                                                                                \
	"	ld.global.u8 %r6, [%d7];\n"                                                              \
	"	cvt.u64.u32 %d10, %r6;\n"                                                                \
	"	xor.b64 %d10, %d10, %d9;\n"                                                              \
	"	shr.u64 %d9, %d9, 8;\n" SUMS_BYTE("0", "0") "	add.u64 %d7, %d7, 1;\n"              \
							    "	sub.u64 %d8, %d8, 1;\n"

static const char sums_kernel[] =
	".version 6.0\n"
	".target sm_50\n"
	".address_size 64\n"
	".visible .entry " SUMS_KERNEL_NAME "(\n"
	"	.param .u64 param_data,\n"
	"	.param .u64 param_bytes,\n"
	"	.param .u64 param_chunk,\n"
	"	.param .u64 param_out)\n"
	"{\n"
	"	.reg .pred %p<3>;\n"
	"	.reg .b32 %r<8>;\n"
	"	.reg .b64 %d<16>;\n"
	"	.shared .align 8 .b8 table[16384];\n"
	"	mov.u32 %r1, %tid.x;\n"
	"	mov.u64 %d1, table;\n"
	/* Entry %r1 of the first table. */
	"	cvt.u64.u32 %d2, %r1;\n"
	"	mov.u32 %r2, 8;\n"
	"BIT:\n"
	"	and.b64 %d3, %d2, 1;\n"
	"	setp.ne.u64 %p1, %d3, 0;\n"
	"	shr.u64 %d2, %d2, 1;\n"
	"	@%p1 xor.b64 %d2, %d2, 0x42f0e1eba9ea3693;\n"
	"	sub.u32 %r2, %r2, 1;\n"
	"	setp.ne.u32 %p1, %r2, 0;\n"
	"	@%p1 bra BIT;\n"
	"	mul.wide.u32 %d4, %r1, 8;\n"
	"	add.u64 %d4, %d4, %d1;\n"
	"	st.shared.u64 [%d4], %d2;\n"
	"	bar.sync 0;\n"
	/* And of the seven others, each from the one before. */
	"	mov.u32 %r2, 7;\n"
	"SLICE:\n"
	"	and.b64 %d3, %d2, 255;\n"
	"	shl.b64 %d3, %d3, 3;\n"
	"	add.u64 %d3, %d3, %d1;\n"
	"	ld.shared.u64 %d3, [%d3];\n"
	"	shr.u64 %d2, %d2, 8;\n"
	"	xor.b64 %d2, %d2, %d3;\n"
	"	add.u64 %d4, %d4, 2048;\n"
	"	st.shared.u64 [%d4], %d2;\n"
	"	sub.u32 %r2, %r2, 1;\n"
	"	setp.ne.u32 %p1, %r2, 0;\n"
	"	@%p1 bra SLICE;\n"
	"	bar.sync 0;\n"
	/* Where the chunk begins (%d7), and how long it is (%d8). */
	"	mov.u32 %r3, %ctaid.x;\n"
	"	mov.u32 %r4, %ntid.x;\n"
	"	mad.lo.u32 %r5, %r3, %r4, %r1;\n"
	"	cvt.u64.u32 %d5, %r5;\n"
	"	ld.param.u64 %d6, [param_chunk];\n"
	"	mul.lo.u64 %d7, %d5, %d6;\n"
	"	ld.param.u64 %d8, [param_bytes];\n"
	"	setp.ge.u64 %p1, %d7, %d8;\n"
	"	@%p1 bra DONE;\n"
	"	sub.u64 %d8, %d8, %d7;\n"
	"	min.u64 %d8, %d8, %d6;\n"
	"	ld.param.u64 %d12, [param_data];\n"
	"	cvta.to.global.u64 %d12, %d12;\n"
	"	add.u64 %d7, %d7, %d12;\n"
	"	mov.u64 %d9, 0;\n"
	"HEAD:\n"
	"	and.b64 %d13, %d7, 7;\n"
	"	setp.eq.u64 %p1, %d13, 0;\n"
	"	setp.eq.u64 %p2, %d8, 0;\n"
	"	or.pred %p1, %p1, %p2;\n"
	"	@%p1 bra WORDS;\n" SUMS_SINGLE "	bra HEAD;\n"
	"WORDS:\n"
	"	setp.lt.u64 %p1, %d8, 8;\n"
	"	@%p1 bra TAIL;\n"
	"	ld.global.u64 %d10, [%d7];\n"
	"	xor.b64 %d10, %d10, %d9;\n"
	"	mov.u64 %d9, 0;\n" SUMS_BYTE("0", "14336") SUMS_BYTE("8", "12288")
		SUMS_BYTE("16", "10240") SUMS_BYTE("24", "8192") SUMS_BYTE("32", "6144")
			SUMS_BYTE("40", "4096") SUMS_BYTE("48", "2048")
				SUMS_BYTE("56", "0") "	add.u64 %d7, %d7, 8;\n"
						     "	sub.u64 %d8, %d8, 8;\n"
						     "	bra WORDS;\n"
						     "TAIL:\n"
						     "	setp.eq.u64 %p1, %d8, 0;\n"
						     "	@%p1 bra STORE;\n" SUMS_SINGLE
						     "	bra TAIL;\n"
						     "STORE:\n"
						     "	ld.param.u64 %d14, [param_out];\n"
						     "	cvta.to.global.u64 %d14, %d14;\n"
						     "	shl.b64 %d15, %d5, 3;\n"
						     "	add.u64 %d14, %d14, %d15;\n"
						     "	st.global.u64 [%d14], %d9;\n"
						     "DONE:\n"
						     "	ret;\n"
						     "}\n";

#endif
