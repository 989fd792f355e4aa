#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Everything that `make test` proves, cheapest first; stops at the first failure. The last line counts all tests of all
# runners. Files of a failed end-to-end test stay in build/tmp-e2e, counts in build/results.
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

second_try=yes
cross=yes
emulator=qemu-aarch64
if [ "$(uname -m)" = aarch64 ]; then
	cross=no # the native build is the aarch64 build
fi

# What users get, and with it all that is built from the same objects: unit tests, benchmarks, examples.
release() {
	rm -rf build/dist
	configure release -DMSCOPE_WERROR=ON
	cmake --build build/release -- --quiet
	make --no-print-directory all
}

# Tests labelled tsan are those with threads of their own; nothing else is built for them.
threads() {
	threads_tests=$(ctest --test-dir build/release -N -L '^tsan$' | sed -n 's/.*Test *#[0-9]*: unit_/test_/p')
	if [ -z "$threads_tests" ]; then
		echo "no unit test is labelled tsan"
		return 0
	fi
	# shellcheck disable=SC2086  # a list of words
	build tsan $threads_tests
	unit tsan -L '^tsan$'
}

cross_build() {
	build aarch64
	rm -rf build/dist-aarch64
	cmake --install build/aarch64 --prefix build/dist-aarch64 >build/aarch64.install.log
	"$python" tests/lint/run.py --junit "$results/lint-aarch64.xml" built build/dist-aarch64
	unit aarch64
}

cross_run() {
	MSMEMSCOPE_DIST=$PWD/build/dist-aarch64 MSMEMSCOPE_TARGETS=$PWD/build/aarch64/tests/targets \
		MSMEMSCOPE_RUNNER=$emulator pair e2e-aarch64 -m qemu tests/e2e
}

packages() {
	if [ $cross = yes ]; then
		tools/install-packages.sh build test cross pip wheel engines
	else
		tools/install-packages.sh build test pip wheel engines
	fi
}

step "packages" packages
rm -rf "$results"
mkdir -p "$results"
trap 'finish $?' EXIT

step "lint: source" "$python" tests/lint/run.py --junit "$results/lint-source.xml" source
step "release: build with gcc, warnings are errors, and stage in build/dist" release
step "lint: what was built" "$python" tests/lint/run.py --junit "$results/lint-built.xml" built build/dist
step "release: unit tests" unit release
step "clang: compile, warnings are errors" compile clang
# shellcheck disable=SC2086  # a list of words
step "sanitizers: build" build asan $unit_targets
step "sanitizers: unit tests" unit asan
step "thread sanitizer: unit tests with threads" threads
step "end to end and kills" pair e2e tests/e2e tests/crash
step "the real torch_npu" pair realclients tests/realclients --ignore=tests/realclients/test_wheels.py
if [ $cross = yes ]; then
	step "aarch64: build, checks, unit tests under qemu-user" cross_build
	step "aarch64: end to end under qemu-user" cross_run
fi
step "fuzz: build" build fuzz tests/fuzz/all
step "fuzz: 2 s each" fuzz_in_lanes "$(nproc)" 2 -seed=1
