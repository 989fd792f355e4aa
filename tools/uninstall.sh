#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Takes away what tools/install.sh put below a prefix, and nothing else: tools/uninstall.sh PREFIX. $DESTDIR goes before it.
set -eu

there=${DESTDIR:-}$(realpath -ms -- "$1")
list=$there/lib/msmemscope/installed.txt
if [ ! -f "$list" ]; then
	echo "uninstall: no $list: nothing was installed there by make install" >&2
	exit 1
fi
names=$(cat "$list")
rm -rf "$there/lib/msmemscope"
# Files first, then the folders that came with them, the deepest first; a folder in which others have put something stays.
printf '%s\n' "$names" | LC_ALL=C sort -r | while read -r name; do
	case $name in
	*/) ;;
	*) rm -f "$there/$name" ;;
	esac
done
printf '%s\n' "$names" | LC_ALL=C sort -r | while read -r name; do
	case $name in
	*/) [ ! -d "$there/$name" ] || rmdir --ignore-fail-on-non-empty "$there/$name" ;;
	esac
done
