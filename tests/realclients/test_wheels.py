# SPDX-License-Identifier: Apache-2.0
"""Other versions of torch_npu: what their libraries want of the Ascend software is all there, every symbol that the loader resolves and
every operator that they look up by name. soak_wheels.py runs some of them.

Downloads hundreds of megabytes, so it is part of `make soak`, not of `make test`.
"""
import re
import subprocess
import zipfile

import pytest

VERSIONS = ("2.1.0.post17", "2.6.0.post5", "2.9.0", "2.13.0", "2.14.0")
LIBRARIES = re.compile(r"torch_npu/(lib/lib(torch_npu|npu_profiler|tensorpipe)|_C[^/]*)\.so")
OURS = re.compile(r"(acl|rt[A-Z]|Msprof|Hccl|hal[A-Z]|dcmi_|_ZNK?2ge)")
# Strings that the compiler has put one into the other.
NO_OPERATORS = {"aclnnUniqueConseaclnnUniqueDim"}


def symbols(option, path):
    done = subprocess.run(["nm", "-D", option, path], check=True, stdout=subprocess.PIPE, text=True)
    return {line.split()[-1].split("@")[0] for line in done.stdout.splitlines()}


@pytest.mark.parametrize("version", VERSIONS)
def test_everything_that_a_wheel_wants_is_there(client, version):
    folder = client.work / f"wheel-{version}"
    pip = client.python.parent / "pip"
    subprocess.run([pip, "--disable-pip-version-check", "--quiet", "download", "--no-deps", "--dest", folder, f"torch_npu=={version}"],
                   check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if LIBRARIES.fullmatch(name)]
        archive.extractall(folder, names)
    have = set().union(*(symbols("--defined-only", path) for path in (client.simnpu / "lib64").glob("*.so")))
    want = {name for library in names for name in symbols("--undefined-only", folder / library) if OURS.match(name)}
    assert len(want) > 50
    assert want <= have
    text = (folder / "torch_npu" / "lib" / "libtorch_npu.so").read_bytes()
    operators = {name.decode() for name in re.findall(rb"(aclnn\w+)GetWorkspaceSize\0", text)} - NO_OPERATORS
    assert len(operators) > 500
    assert operators <= have
