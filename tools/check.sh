#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What `make check` proves in under 3 minutes, before each commit: the build, lint, unit tests, and the end-to-end tests of
# tests/check.list, which tools/covered.py chooses. Installs nothing.
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

rm -rf "$results"
mkdir -p "$results"
trap 'finish $?' EXIT

step "lint: source" "$python" tests/lint/run.py --junit "$results/lint-source.xml" source
step "release: build and stage in build/dist" make --no-print-directory all
# shellcheck disable=SC2086  # a list of words
step "release: build unit tests" cmake --build build/release --target $unit_targets -- --quiet
step "release: unit tests" unit release
step "end to end: a sample" pair check --listed=tests/check.list tests/e2e
