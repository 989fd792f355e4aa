#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the release build below a prefix: tools/install.sh PREFIX. $DESTDIR goes before it, as packagers want it.
#
# The tool has a directory of its own, so that nothing of it lies among files of others:
#
#   PREFIX/lib/msmemscope/...      the tree as it is staged: bin, lib64, python, simnpu, examples, set_env.sh
#   PREFIX/bin/msmemscope          a link to the command in it; msleaks is its second name
#   PREFIX/share/...               manual page, completions, licences
set -eu

prefix=$(realpath -ms -- "$1")
cd "$(dirname "$0")/.."
cmake --install build/release --component home --prefix "$prefix/lib/msmemscope"
cmake --install build/release --component shared --prefix "$prefix"
mkdir -p "${DESTDIR:-}$prefix/bin"
ln -sfn ../lib/msmemscope/bin/msmemscope "${DESTDIR:-}$prefix/bin/msmemscope"
ln -sfn msmemscope "${DESTDIR:-}$prefix/bin/msleaks"
