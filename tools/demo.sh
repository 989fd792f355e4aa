#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# From a fresh clone to a result: builds the tool, traces an example that leaks on the simulated NPU, shows what is there.
# With the word npu: the example is a training in PyTorch with device="npu", and torch_npu comes from PyPI.
set -eu
cd "$(dirname "$0")/.."

tools/install-packages.sh build

# One line that counts; all that the compilers say is in the log, and on the screen if they fail.
build() {
	if [ ! -t 1 ]; then
		echo 'Building msmemscope; the log is build/demo.log'
		make --no-print-directory dist > build/demo.log 2>&1
		return
	fi
	{
		make --no-print-directory dist 2>&1 || echo 'demo: the build failed'
	} | tee build/demo.log | while IFS= read -r line; do
		case $line in
		\[*/*\]*) printf '\r\033[KBuilding msmemscope %s' "${line%%]*}]" ;;
		esac
	done
	printf '\r\033[K'
	! grep -q '^demo: the build failed$' build/demo.log
}

mkdir -p build
build || {
	cat build/demo.log >&2
	exit 1
}

if [ "${1:-}" = npu ]; then
	tests/realclients/environment.sh
	rm -rf build/demo-npu
	exec bash -c '. build/dist/simnpu/set_env.sh
		exec build/dist/bin/msmemscope -o build/demo-npu --call-stack=python -- build/venv-npu/bin/python tests/realclients/programs/leak.py'
fi

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
page=$(find "$PWD/build/demo" -name report.html | head -n 1)
printf '\nEvery block, zoomed into as far as you like:\n  build/dist/bin/msmemscope view build/demo\n'
printf '\nThe page of this run, with the leak on top; open it in a browser:\n  file://%s\n' "$page"
