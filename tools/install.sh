#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the release build below a prefix: tools/install.sh PREFIX. $DESTDIR goes before it, as packagers want it.
#
# The tool has a directory of its own, so that nothing of it lies among files of others:
#
#   PREFIX/lib/msmemscope/...      the tree as it is staged: bin, lib64, python, simnpu, simcuda, examples, set_env.sh
#   PREFIX/bin/msmemscope          a link to the command in it; msleaks is its second name
#   PREFIX/share/...               manual page, completions, licences
#
# PREFIX/lib/msmemscope/installed.txt lists what lies outside of it, and folders that were not there before, for tools/uninstall.sh. An
# installation that is there is taken away first.
set -eu

prefix=$(realpath -ms -- "$1")
cd "$(dirname "$0")/.."
there=${DESTDIR:-}$prefix
[ ! -f "$there/lib/msmemscope/installed.txt" ] || tools/uninstall.sh "$prefix"

listed=$(mktemp -d)
trap 'rm -rf "$listed"' EXIT
DESTDIR='' cmake --install build/release --component shared --prefix "$listed/tree" >"$listed/said"
(cd "$listed/tree" && find share -type d -printf '%p/\n' -o -printf '%p\n') >"$listed/names"
printf 'lib/\nbin/\nbin/msmemscope\nbin/msleaks\n' >>"$listed/names"
while read -r name; do
	case $name in
	*/) [ -d "$there/$name" ] || printf '%s\n' "$name" ;;
	*) printf '%s\n' "$name" ;;
	esac
done <"$listed/names" >"$listed/installed.txt"

cmake --install build/release --component home --prefix "$prefix/lib/msmemscope"
cmake --install build/release --component shared --prefix "$prefix"
cp "$listed/installed.txt" "$there/lib/msmemscope/installed.txt"
mkdir -p "${DESTDIR:-}$prefix/bin"
ln -sfn ../lib/msmemscope/bin/msmemscope "${DESTDIR:-}$prefix/bin/msmemscope"
ln -sfn msmemscope "${DESTDIR:-}$prefix/bin/msleaks"
