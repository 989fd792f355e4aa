#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The full numbers of which `make test` takes a sample. Takes hours; everything it says is also in build/soak.log.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/common.sh

# All of these can be set from outside.
kills=${KILLS:-1000}
rounds=${ROUNDS:-20}
forks=${FORKS:-2000}
fuzz_for=${FUZZ_SECONDS:-600}

soak() {
	trap 'finish $?' EXIT
	date -u +'%Y-%m-%d %H:%M:%S UTC'
	uname -srm
	git -c safe.directory='*' describe --always --dirty 2>/dev/null || true
	step "packages" tools/install-packages.sh build test pip
	step "release: build and stage in build/dist" make --no-print-directory all
	step "kills: $kills times" suite crash tests/crash --kills="$kills"
	for round in $(seq "$rounds"); do
		step "end to end: round $round of $rounds" suite "e2e-$round" tests/e2e
	done
	step "forks: $forks of each kind" suite forks tests/e2e/test_fork_walks.py --forks="$forks"
	step "fuzz: build" build fuzz
	step "fuzz: $fuzz_for s each" fuzz "$fuzz_for"
}

mkdir -p build
rm -rf "$results"
mkdir -p "$results"
soak 2>&1 | tee build/soak.log
