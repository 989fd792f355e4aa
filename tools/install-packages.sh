#!/bin/sh
# Installs the packages of the named groups (tools/packages.txt) that are missing: Debian's, and those of the groups pip, wheel,
# engines and spark into virtual environments of their own: build/venv, build/venv-wheel, build/venv-engines, build/venv-spark.
# Usage: tools/install-packages.sh build [test] [cross] [java] [pip] [wheel] [engines] [spark]
# Does nothing, and needs no rights and no network, when all are there.
set -eu

list=$(dirname "$0")/packages.txt

# pip_packages GROUP VENV: a venv that was made for another list is made anew; the stamp comes last.
pip_packages() {
	venv=$(dirname "$0")/../build/$2
	wanted=$(awk -v g="$1" '$1 == g { print $2 }' "$list")
	[ "$(cat "$venv/packages" 2>/dev/null)" != "$wanted" ] || return 0
	echo "install-packages: installing into build/$2:" $wanted >&2
	rm -rf "$venv"
	/usr/bin/python3 -m venv "$venv"
	# shellcheck disable=SC2086  # the list is words on purpose
	"$venv/bin/pip" --quiet --disable-pip-version-check install $wanted >&2
	printf '%s\n' "$wanted" >"$venv/packages"
}

venvs() {
	for group in $pip_groups; do
		case $group in
		pip) pip_packages pip venv ;;
		*) pip_packages "$group" "venv-$group" ;;
		esac
	done
}

pip_groups=""
groups=""
for group in "$@"; do
	case $group in
	pip | wheel | engines | spark) pip_groups="$pip_groups $group" ;;
	*) groups="$groups $group" ;;
	esac
done

if ! command -v apt-get >/dev/null 2>&1; then
	echo "install-packages: no apt-get here; install by hand what $list names" >&2
	exit 0
fi

wanted=""
foreign=no
for group in $groups; do
	for package in $(awk -v g="$group" '$1 == g { print $2 }' "$list"); do
		wanted="$wanted $package"
		case $package in *:arm64) foreign=yes ;; esac
	done
done

native=$(dpkg --print-architecture)
missing=""
for package in $wanted; do
	case $package in
	*:*) arch=${package#*:} ;;
	*) arch=$native ;;
	esac
	# A package may be there for several architectures; one line each, ours or "all" counts.
	dpkg-query -W -f '${Architecture} ${db:Status-Status}\n' "${package%:*}" 2>/dev/null |
		grep -Eqx "($arch|all) installed" || missing="$missing $package"
done
if [ -z "$missing" ]; then
	venvs
	exit 0
fi

as_root=""
if [ "$(id -u)" -ne 0 ]; then
	if ! command -v sudo >/dev/null 2>&1; then
		echo "install-packages: missing:$missing (not root, no sudo)" >&2
		exit 1
	fi
	as_root=sudo
fi

echo "install-packages: installing$missing" >&2
if [ $foreign = yes ]; then
	$as_root dpkg --add-architecture arm64
fi
$as_root apt-get update -qq
# shellcheck disable=SC2086  # the list is words on purpose
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o Dpkg::Use-Pty=0 \
	--no-install-recommends $missing >&2
venvs
