# SPDX-License-Identifier: Apache-2.0
"""Our headers against those that the wheel of torch_npu carries: a compiler reads the real ones, then our prototypes, which must not
conflict, then a comparison of each constant that both have.
"""
import re
import subprocess

import pytest

from clients import ROOT

OURS = ROOT / "simnpu" / "include"
HEADERS = {
    "acl/acl.h": ("acl/acl_base.h", "acl/acl_rt.h", "acl/acl_op.h", "acl/acl_op_compiler.h", "acl/acl.h"),
    "third_party/hccl/inc/hccl/hccl.h": ("hccl/hccl_types.h", "hccl/hccl.h"),
}
# The real structure is longer; ours has its beginning. The real union has no name in C.
IGNORED = {"HCCL_ROOT_INFO_BYTES", "COMM_NAME_MAX_LENGTH", "HCCL_COMM_CONFIG_INFO_BYTES"}


def without_comments(text):
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


def prototypes(text):
    return re.findall(r"#pragma GCC visibility push\(default\)(.*?)#pragma GCC visibility pop", text, re.S)


def constants(text):
    """Names with a value of their own in enums, and macros."""
    found = re.findall(r"^\s*([A-Z]\w+) = (-?\w+),", text, re.M) + re.findall(r"^#define\s+([A-Z]\w+)\s+(0x\w+|\d+)U?L*\s*$", text, re.M)
    return [(name, value) for name, value in found if name not in IGNORED]


@pytest.mark.parametrize("real", HEADERS)
def test_prototypes_and_values_are_those_of_the_real_headers(client, real):
    include = client.python.parent.parent
    (include,) = include.glob("lib/python*/site-packages/torch_npu/include")
    texts = [without_comments((OURS / name).read_text(encoding="utf-8")) for name in HEADERS[real]]
    theirs = "".join(path.read_text(encoding="utf-8") for folder in ("third_party/acl/inc", "third_party/hccl/inc")
                     for path in (include / folder).rglob("*.h"))
    known = set(re.findall(r"\w+", theirs))
    both = [(name, value) for text in texts for name, value in constants(text) if name in known]
    assert len(both) > 10
    # torch_npu's own headers take this one in; the compiler option of ours is in a header that the main one leaves out.
    lines = ["#include <acl/acl.h>", "#include <acl/acl_op_compiler.h>", f"#include <{real}>", 'extern "C" {']
    lines += [part for text in texts for part in prototypes(text)] + ["}"]
    lines += [f'static_assert((long long)({name}) == (long long)({value}), "{name}");' for name, value in both]
    source = client.work / "interface.cpp"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = subprocess.run(["g++", "-std=gnu++17", "-fsyntax-only", "-Wno-deprecated-declarations", "-I", include / "third_party/acl/inc",
                           "-I", include, source], check=False, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr[:4000]
