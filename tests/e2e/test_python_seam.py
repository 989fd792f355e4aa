# SPDX-License-Identifier: Apache-2.0
"""What the Python package knows of the collector is what the collector is: functions, types, settings. The module _api.py is made
by the build; here its source is read again, by other means."""
import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = "/usr/bin/python3"
SIZES = {"int32_t": 4, "uint32_t": 4, "int64_t": 8, "uint64_t": 8}  # everything else is a pointer

LOADED = """
import ctypes, json
from msmemscope import _native
from msmemscope._api import FUNCTIONS
def size(of):
    return None if of is None else ctypes.sizeof(of)
print(json.dumps({
    name: [[library for library in ("collector", "waiting") if name in vars(getattr(_native, library))],
           size(function.restype), [size(of) for of in function.argtypes]]
    for name in FUNCTIONS
    for function in [vars(_native.waiting if name in vars(_native.waiting) else _native.collector)[name]]}))
"""


def table():
    """{name: [libraries, size of the result, sizes of the parameters]} as api.def has it."""
    text = (ROOT / "src/collector/api.def").read_text(encoding="utf-8")
    sizes = {name: SIZES.get(of, 8) for name, of in re.findall(r"^#define (\w+)\(name\)\s+API_TYPE\(([^,]+), ", text, re.M)}
    found = {}
    for name, result, parameters, how in re.findall(r"^API\((\w+), (\w+)(?:\(\))?, \((.*?)\), (QUICK|WAITS|UNTYPED), ", text, re.M):
        types = re.findall(r"(\w+)\(\w+\)", parameters) if how != "UNTYPED" else []
        found[name] = [["waiting" if how == "WAITS" else "collector"], sizes.get(result), [sizes[of] for of in types]]
    assert len(found) == len(re.findall(r"^API\(", text, re.M)) > 20
    return found


def test_python_knows_every_function_of_the_collector_with_its_types(msmemscope, out):
    script = out / "script.py"
    script.write_text(LOADED, encoding="utf-8")
    run = msmemscope("--", PYTHON, script).check()
    assert json.loads(run.stdout) == table()


def test_the_numbers_that_python_uses_are_those_of_the_headers(dist):
    made = {}
    exec((dist / "python" / "msmemscope" / "_api.py").read_text(encoding="utf-8"), made)
    headers = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.h")))
    wanted = re.findall(r"^NUMBER\((\w+)\)", (ROOT / "src/collector/api.def").read_text(encoding="utf-8"), re.M)
    assert len(wanted) > 10
    # VENDOR(number, symbol, name, suffix, owner, sampled, c10, word)
    rows = re.findall(r"^VENDOR\((.*)\)$", (ROOT / "src/base/vendors.def").read_text(encoding="utf-8"), re.M)
    headers += "".join(f"\nC10_{row.split(', ')[1]} = {row.split(', ')[6]}" for row in rows)
    for name in wanted:
        assert made[name] == int(re.search(rf"\b{name} =\s*(\d+)", headers)[1]), name


SETTINGS = """
import ctypes, json
from msmemscope import _native
from msmemscope._options import SETTINGS
room = (ctypes.c_uint32 * (len(SETTINGS) + 4))(*[0xdeadbeef] * (len(SETTINGS) + 4))
_native.collector.mscope_settings(room)
assert set(room[len(SETTINGS):]) == {0xdeadbeef}, "the collector has more settings"
print(json.dumps({setting.name: number for setting, number in zip(SETTINGS, room)}))
"""


def test_settings_have_the_same_order_on_both_sides(msmemscope, out):
    script = out / "script.py"
    script.write_text(SETTINGS, encoding="utf-8")
    run = msmemscope("--events=launch,traceback", "--level=kernel", "--analysis=oom:7", "--device=npu:3,gpu:1,cuda:3,cpu",
                     "--call-stack=c:5,python:6",
                     "--inefficient=late_deallocation,temporary_idleness,mem_size:4096,idle_threshold:9", "--", PYTHON, script).check()
    assert json.loads(run.stdout) == {"events": 7, "level": 2, "analysis": 8, "host": 1, "traceback": 1, "all_devices": 0,
                                      "oom_top": 7, "devices": 8, "c_depth": 5, "python_depth": 6, "optimizer_steps": 1,
                                      "waste_kinds": 6, "waste_bytes": 4096, "waste_idle": 9, "launch_unnamed": 0, "gpus_otherwise": 2}
