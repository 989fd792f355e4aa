#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# From a fresh clone to a result: builds the tool, traces an example that leaks on the simulated NPU, shows what is there.
set -eu
cd "$(dirname "$0")/.."

tools/install-packages.sh build
make --no-print-directory dist

rm -rf build/demo
set -- build/dist/bin/msmemscope -o build/demo --call-stack=c -- build/dist/examples/leaky_npu
printf '\n$ %s\n' "$*"
# On a machine without Ascend software the example finds the simulated NPU here.
LD_LIBRARY_PATH=$PWD/build/dist/simnpu/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$@"

printf '\nFiles:\n'
find build/demo -type f -printf '%10s bytes  %p\n' | sort -k 3
dump=$(find build/demo -name 'memscope_dump_*.csv' | sort | head -n 1)
if [ -z "$dump" ]; then
	echo "demo: no memscope_dump csv was written" >&2
	exit 1
fi
printf '\nFirst rows of %s:\n' "$dump"
head -n 4 "$dump"
