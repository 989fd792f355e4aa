#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes build/venv-npu: torch_npu beside the PyTorch of build/venv, which it shares. Its own environment, because where torch_npu
# is installed a plain `import torch` fails without the Ascend libraries.
# Usage: tests/realclients/environment.sh [VENV [VERSION]]
# With a version of torch_npu: that one, beside the PyTorch of the same version from PyPI. On x86-64 that is one for CUDA, which runs
# without a GPU; with its libraries it takes up to 8 GB.
# Exit code 3 when PyPI has no torch_npu for this Python or machine; the last line says so.
set -eu
cd "$(dirname "$0")/../.."

venv=${1:-build/venv-npu}
version=${2-}
beside=
if [ -n "$version" ]; then
	wanted=torch_npu==$version
	beside="torch==${version%.post*} numpy<2 pyyaml" # the oldest know no numpy 2
else
	wanted=$(awk '$1 == "npu" { print $2 }' tools/packages.txt)
fi
[ "$(cat "$venv/packages" 2>/dev/null)" != "$wanted" ] || exit 0
# Two that share the tests ask at the same time: the second finds what the first has made.
if [ -z "${MSMEMSCOPE_LOCKED-}" ]; then
	mkdir -p "$(dirname "$venv")"
	exec env MSMEMSCOPE_LOCKED=yes flock "$venv.lock" tests/realclients/environment.sh "$@"
fi

[ -n "$version" ] || tools/install-packages.sh pip
rm -rf "$venv"
/usr/bin/python3 -m venv "$venv"
install() {
	"$venv/bin/pip" --quiet --disable-pip-version-check install --only-binary :all: "$@" >&2
}
# shellcheck disable=SC2086  # lists are words on purpose
if ! install --no-deps $wanted || { [ -n "$beside" ] && ! install --no-cache-dir $beside; }; then
	rm -rf "$venv"
	echo "realclients: PyPI has no torch_npu${version:+ $version} for this Python ($(/usr/bin/python3 -V 2>&1)) or machine ($(uname -m))" >&2
	exit 3
fi
# The PyTorch of the other environment: behind our own packages, so that only what is not here comes from there.
[ -n "$version" ] || /usr/bin/python3 - "$venv" <<'PYTHON'
import pathlib
import sys
import sysconfig
venv = pathlib.Path(sys.argv[1]).resolve()
site = pathlib.PurePath("lib", "python" + sysconfig.get_python_version(), "site-packages")
(venv / site / "torch.pth").write_text(f"{venv.parent / 'venv' / site}\n", encoding="utf-8")
PYTHON
printf '%s\n' "$wanted" >"$venv/packages"
