#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# threads.sh DIST PROGRAMS [PLACE] [THREADS...]: CPU time of an event by threads and pace, as one table. Needs no compiler: DIST is
# what `make` stages (build/dist), PROGRAMS where bench/threads and bench/bare lie (build/release/bench), PLACE a directory for
# traces. The columns behind the figure in nanoseconds: its ratio to one thread at the same pace, the same ratio of the plain function
# (how much slower the cores themselves became), the kernel's part of it, page faults per 1,000 events, the longest batch of 256 events
# in microseconds, events that the launch did not record.
set -eu
dist=$1 programs=$2 place=${3:-/var/tmp}
[ $# -gt 3 ] && shift 3 || set -- 1 2 4 8 16
export LD_LIBRARY_PATH="$programs/bare"
out=$(mktemp -d "$place/msmemscope-threads-XXXXXX")
trap 'rm -rf "$out"' EXIT
printf '%10s %7s %8s %6s %6s %8s %8s %10s %s\n' pace threads cpu_ns ratio plain sys_ns faults longest_us lost
for pace in 1000000 10000000 0; do
	case $pace in 1000000) events=5000000 ;; *) events=8000000 ;; esac
	one=
	for threads in "$@"; do
		# The report is written by the engine afterwards; the measured program prints before.
		TMPDIR=$place "$dist/bin/msmemscope" --output="$out/o" --log-level=error \
			"$programs/threads" "$threads" "$pace" "$events" >"$out/line" 2>"$out/talk" || cat "$out/talk" >&2
		field() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p" "$out/line"; }
		cpu=$(field cpu_ns)
		plain=$(field plain_ns)
		[ -n "$one" ] || one=$cpu one_plain=$plain
		lost=$(grep -c -i 'not recorded\|lost' "$out/talk" || true)
		printf '%10s %7s %8s %6s %6s %8s %8s %10s %s\n' "$pace" "$threads" "$cpu" \
			"$(awk "BEGIN { printf \"%.2f\", $cpu / $one }")" \
			"$(awk "BEGIN { printf \"%.2f\", $plain / $one_plain }")" "$(field system_ns)" "$(field faults_per_1000)" \
			"$(field longest_batch_us)" "$lost"
		rm -rf "$out/o"
	done
done
