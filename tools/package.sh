#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Packs the release build: tools/package.sh tarball|deb. What it made is in build/packages, its path is printed.
#   tarball   build/dist, to be unpacked anywhere
#   deb       what `make install PREFIX=/usr` lays out; Python scripts find the package when the collector is preloaded
set -eu
cd "$(dirname "$0")/.."

version=$(sed -n 's/^project(msmemscope VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
machine=$(uname -m)
out=build/packages
mkdir -p "$out"

tarball() {
	file=$out/msmemscope-$version-linux-$machine.tar.gz
	tar -czf "$file" --sort=name --owner=0 --group=0 --numeric-owner --exclude=__pycache__ \
		--transform "s,^dist,msmemscope-$version," -C build dist
	echo "$file"
}

deb() {
	stage=$(mktemp -d)
	trap 'rm -rf "$stage"' EXIT
	DESTDIR=$stage/root tools/install.sh /usr >"$stage/said"
	rm "$stage/root/usr/lib/msmemscope/installed.txt" # dpkg keeps its own list
	mkdir "$stage/root/DEBIAN"
	cat >"$stage/root/DEBIAN/control" <<-CONTROL
		Package: msmemscope
		Version: $version
		Architecture: $(dpkg --print-architecture)
		Maintainer: the msmemscope developers <msmemscope@localhost>
		Depends: libc6 (>= 2.17)
		Section: devel
		Priority: optional
		Description: memory analysis for AI accelerators
		 Records each allocation and free of device memory, with where it came from, and finds leaks, peaks and waste.
	CONTROL
	chmod -R u=rwX,go=rX "$stage/root"
	file=$out/msmemscope_${version}_$(dpkg --print-architecture).deb
	dpkg-deb --root-owner-group --build "$stage/root" "$file" >"$stage/said"
	echo "$file"
}

case ${1-} in
tarball | deb) "$1" ;;
*)
	echo "package.sh: tarball or deb" >&2
	exit 2
	;;
esac
