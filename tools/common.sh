# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# What test.sh and soak.sh share; they source it from the root of the tree, with `set -eu`.

python=/usr/bin/python3 # Debian's, which has Debian's pytest, whatever else comes first in PATH
results=$PWD/build/results
current="nothing"
second_try=no # whether a few tests that fail get one
unit_targets="tests/unit/all tests/judge/all tests/twin/all" # what has tests for ctest

began=$(date +%s)

# cpu: CPU seconds of all that this shell has waited for so far, in $cpu. `times` in a substitution would be that of another shell.
cpu() {
	mkdir -p "$results"
	times >"$results/times"
	cpu=$(awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, "m"); s += t[1] * 60 + t[2] } printf "%d", s }' "$results/times")
}

# step "what it proves" command...: a heading, the command, the time it took and its CPU time. A failure ends the script.
step() {
	current=$1
	shift
	printf '\n== %s\n' "$current"
	step_began=$(date +%s)
	cpu
	step_cpu=$cpu
	"$@"
	cpu
	printf -- '-- %s: %d s, CPU %d s\n' "$current" $(($(date +%s) - step_began)) $((cpu - step_cpu))
}

# To be called when the script ends, with its status: what failed, what it all took, then the counts of all runners as the last line.
finish() {
	printf '\n'
	[ "$1" -eq 0 ] || printf 'FAILED: %s\n' "$current"
	cpu
	finish_took=$(($(date +%s) - began))
	printf 'took %d min %d s, CPU %d min %d s; the slowest tests are in build/results/slowest\n' $((finish_took / 60)) $((finish_took % 60)) \
		$((cpu / 60)) $((cpu % 60))
	if [ -s "$results/unstable" ]; then
		printf 'UNSTABLE, passed only when run again:\n'
		sed 's/^/  /' "$results/unstable"
	fi
	"$python" tools/count-tests.py "$results"
	exit "$1"
}

# configure PRESET [options of cmake]: what is installed may have changed since the last time.
configure() {
	mkdir -p build
	cmake --preset "$@" >"build/$1.log" 2>&1 || {
		cat "build/$1.log"
		return 1
	}
}

# build PRESET [TARGET...]: configures and builds; all, unless targets are named.
build() {
	build_preset=$1
	shift
	configure "$build_preset"
	cmake --build "build/$build_preset" ${1:+--target "$@"} -- --quiet
}

# compile PRESET: every object file and what it includes, for the compiler's word on it; nothing is linked.
compile() {
	configure "$1"
	ninja -C "build/$1" -t targets all | sed -n 's/: C[X]*_COMPILER__.*//p' >"build/$1.objects"
	xargs ninja -C "build/$1" --quiet <"build/$1.objects"
}

# unit PRESET [ctest options]: the unit tests of a build; none at all is a failure.
unit() {
	unit_preset=$1
	shift
	ctest --test-dir "build/$unit_preset" --output-on-failure --no-tests=error -j "$(nproc)" \
		--output-junit "$results/unit-$unit_preset.xml" "$@"
}

# run_pytest NAME [pytest options and paths]
run_pytest() {
	pytest_name=$1
	shift
	"$python" tools/again.py -q -ra -p no:cacheprovider --junitxml "$results/$pytest_name.xml" "$@"
}

# suite NAME [pytest options and paths]
suite() {
	suite_name=$1
	shift
	mkdir -p "$results"
	MSMEMSCOPE_FAILED=$results/$suite_name.failed run_pytest "$suite_name" "$@" || again "$suite_name" "$@"
}

# pair NAME [pytest options and paths]: the same by two processes at a time, which share the files (tests/e2e/lib/fixtures.py): most tests
# keep one core busy.
pair() {
	pair_name=$1
	shift
	pair_status=0
	rm -rf build/queue
	mkdir -p build/queue "$results"
	(
		export MSMEMSCOPE_FAILED="$results/$pair_name.failed"
		MSMEMSCOPE_QUEUE=$PWD/build/queue:last run_pytest "$pair_name-2" "$@" >"build/$pair_name-2.log" 2>&1 &
		pair_other=$!
		MSMEMSCOPE_QUEUE=$PWD/build/queue:first run_pytest "$pair_name" "$@" || pair_status=1
		wait $pair_other || pair_status=1
		exit $pair_status
	) || pair_status=1
	cat "build/$pair_name-2.log"
	[ $pair_status -eq 0 ] || again "$pair_name" "$@"
}

# again NAME [pytest options and paths]: with second_try=yes, if at most three tests of a suite failed, they run once more, alone. Those that pass now are
# unstable: a defect of the test or of what it tests, which is listed at the end of the run and has to be mended, but fails nothing.
again() {
	again_name=$1
	shift
	again_failed=$results/$again_name.failed
	[ "$second_try" = yes ] || return 1
	[ -s "$again_failed" ] || return 1 # pytest itself failed
	sort -u -o "$again_failed" "$again_failed"
	[ "$(wc -l <"$again_failed")" -le 3 ] || return 1
	printf '\nOnce more, alone:\n'
	# The results are not among those that are counted: the first ones are.
	(results=build/again && mkdir -p build/again && MSMEMSCOPE_AGAIN=$again_failed run_pytest "$again_name" "$@") || return 1
	cat "$again_failed" >>"$results/unstable"
}

# fuzz_in_lanes LANES SECONDS [libFuzzer options]: as many fuzzers at a time as there are lanes; one that fails fails all.
fuzz_in_lanes() {
	fuzz_lanes=$1
	shift
	lanes_status=0
	lanes=
	for lane in $(seq "$fuzz_lanes"); do
		FUZZ_SHARE=$lane/$fuzz_lanes fuzz "$@" &
		lanes="$lanes $!"
	done
	for lane in $lanes; do
		wait "$lane" || lanes_status=1
	done
	return $lanes_status
}

# fuzz SECONDS [libFuzzer options]: every fuzzer (with FUZZ_SHARE=K/N every N-th, from the K-th on), from the inputs kept in tests/fuzz/corpus/<name> and those the build made
# (seeds_<name> beside the fuzzer); new ones stay in build/. Temporary files live in memory, in a directory that goes at the
# end; a fuzzer that leaves one there has failed.
fuzz() {
	fuzz_place=$(mktemp -d /dev/shm/mscope-fuzz-XXXXXX)
	fuzz_status=0
	(export TMPDIR="$fuzz_place" && fuzz_all "$@") || fuzz_status=1
	rm -rf "$fuzz_place"
	return $fuzz_status
}

fuzz_all() {
	fuzz_seconds=$1
	shift
	fuzz_count=0
	fuzz_number=0
	fuzz_share=${FUZZ_SHARE:-1/1}
	for fuzzer in build/fuzz/tests/fuzz/fuzz_*; do
		if [ ! -f "$fuzzer" ] || [ ! -x "$fuzzer" ]; then
			continue
		fi
		fuzz_number=$((fuzz_number + 1))
		[ $((fuzz_number % ${fuzz_share#*/})) -eq $((${fuzz_share%/*} % ${fuzz_share#*/})) ] || continue
		fuzz_name=${fuzzer##*/fuzz_}
		found=build/fuzz/corpus/$fuzz_name
		mkdir -p "$found"
		given=
		for folder in "tests/fuzz/corpus/$fuzz_name" "${fuzzer%/*}/seeds_$fuzz_name"; do
			[ ! -d "$folder" ] || given="$given $folder"
		done
		printf 'fuzz_%s: %s s\n' "$fuzz_name" "$fuzz_seconds"
		# shellcheck disable=SC2086  # a list of words, possibly empty
		"$fuzzer" -max_total_time="$fuzz_seconds" -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 \
			-artifact_prefix="build/fuzz/$fuzz_name-" "$@" "$found" $given \
			>"build/fuzz/$fuzz_name.log" 2>&1 || {
			tail -n 60 "build/fuzz/$fuzz_name.log"
			fuzz_counts $((fuzz_count + 1)) 1
			return 1
		}
		if [ -n "$(ls -A "$TMPDIR")" ]; then
			echo "fuzz_$fuzz_name leaves files behind: $(ls -A "$TMPDIR")"
			fuzz_counts $((fuzz_count + 1)) 1
			return 1
		fi
		sed -n 's/^stat::number_of_executed_units: */  inputs tried: /p' "build/fuzz/$fuzz_name.log"
		fuzz_count=$((fuzz_count + 1))
	done
	if [ $fuzz_count -eq 0 ]; then
		echo "no fuzzer in build/fuzz/tests/fuzz"
		return 1
	fi
	fuzz_counts $fuzz_count 0
}

# fuzz_counts TESTS FAILURES
fuzz_counts() {
	printf '<testsuite name="fuzz" tests="%d" failures="%d" skipped="0"/>\n' "$1" "$2" >"$results/fuzz-${fuzz_share%/*}.xml"
}
