# SPDX-License-Identifier: Apache-2.0
"""msmemscope.describe: labels of the program's own in the owner of its blocks. The script says which label each block must have."""
import json
import sys

import pytest

from fixtures import LIB

PRELUDE = """
import asyncio, json, threading
import msmemscope.describe as describe
import npu
said = {}
def take(label):
    said[npu.alloc(4096)] = label
"""
END = "\nprint(json.dumps(said))\n"
SCRIPTS = {
    "decorator": """
@describe.describer(owner="test1")
def train():
    take("test1")
train(); take(""); train()
""",
    "with": """
with describe.describer(owner="test2"):
    take("test2")
take("")
""",
    "by hand, on two objects": """
describe.describer(owner="test3").__enter__()
take("test3")
describe.describer(owner="test3").__exit__()
take("")
""",
    "of an address": """
take("")
block = npu.alloc(1 << 20)
describe.describer(block, owner="test4")
said[block] = "test4"
inside = npu.alloc(1 << 20)
describe.describer(inside + 4096, owner="inside")
said[inside] = "inside"
""",
    "nested": """
with describe.describer(owner="a"), describe.describer(owner="b"):
    take("a@b")
    with describe.describer(owner="a"):
        take("a@b")
    take("a@b")
    with describe.describer(owner="c"), describe.describer(owner="d"):
        take("a@b@c@d")
    take("a@b")
take("")
""",
    "raising": """
try:
    with describe.describer(owner="falls"):
        take("falls")
        raise ValueError
except ValueError:
    take("")
""",
    "threads and tasks": """
def work(name):
    with describe.describer(owner=name):
        take(name)
    take("")
threads = [threading.Thread(target=work, args=(f"thread {i}",)) for i in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
@describe.describer(owner="task")
async def task():
    take("task")
asyncio.run(task())
take("")
""",
    "tasks in turn": """
@describe.describer(owner="first")
async def first():
    take("first")
    await asyncio.sleep(0)
    take("first")
async def second():
    take("")
    await asyncio.sleep(0)
    take("")
async def both():
    await asyncio.gather(first(), second(), first())
asyncio.run(both())
""",
    "generators": """
@describe.describer(owner="made")
def made(count):
    \"\"\"Its text.\"\"\"
    try:
        for i in range(count):
            take("made")
            got = yield i
            if got:
                take("made")
    except KeyError:
        take("made")
        yield "caught"
    finally:
        take("made")
    return "result"
assert made.__doc__ == "Its text."
for i in made(3):
    take("")
one = made(2)
assert next(one) == 0 and one.send("more") == 1
take("")
assert one.throw(KeyError()) == "caught"
take("")
one.close()
take("")
def outer():
    assert (yield from made(1)) == "result"
assert list(outer()) == [0]
@describe.describer(owner="nest")
def nest():
    for i in made_inside():
        take("nest")
        yield i
def made_inside():
    take("nest")
    yield 1
assert list(nest()) == [1]
take("")
""",
    "async generators": """
@describe.describer(owner="stream")
async def stream(count):
    for i in range(count):
        take("stream")
        await asyncio.sleep(0)
        take("stream")
        yield i
async def read():
    seen = []
    async for i in stream(3):
        take("")
        seen.append(i)
    assert seen == [0, 1, 2]
    one = stream(2)
    assert await one.__anext__() == 0
    await one.aclose()
async def both():
    await asyncio.gather(read(), read())
asyncio.run(both())
take("")
""",
    "any text": """
for text in ("a,b", 'a"b', "显存", "= + - @", "two\\nlines"):
    with describe.describer(owner=text):
        take(text.replace("\\n", "\\\\n"))
with describe.describer():
    take("")
""",
}


@pytest.fixture
def script(msmemscope, tmp_path):
    def run(text, *options):
        (tmp_path / "script.py").write_text(PRELUDE + text + END, encoding="utf-8")
        return msmemscope(*options, "--", sys.executable, tmp_path / "script.py",
                          env={"PYTHONPATH": LIB, "TRUTH": "/dev/null"}).check()

    return run


def test_an_address_of_host_memory(msmemscope, python, out):
    """Of a CPU tensor, also of its middle; the process is still one without a device."""
    path = out / "script.py"
    path.write_text("""
import json, torch
import msmemscope.describe as describe
first, inside, tensor = (torch.zeros(1000) for _ in range(3))
describe.describer(first.data_ptr(), owner="first")
describe.describer(inside.data_ptr() + 400, owner="inside")
describe.describer(tensor, owner="tensor")
print(json.dumps({hex(each.data_ptr()): name for each, name in ((first, "first"), (inside, "inside"), (tensor, "tensor"))}))
""", encoding="utf-8")
    run = msmemscope("--device=cpu", "--", *python, path, env={"PYTHONPATH": msmemscope.dist / "python"}).check()
    said = {int(address, 16): name for address, name in json.loads(run.stdout.splitlines()[-1]).items()}
    found = {int(row.ptr, 16) if isinstance(row.ptr, str) else row.ptr: row.attr.get("owner", "")
             for row in run.rows() if row.event == "MALLOC"}
    assert {address: found[address].split("@")[-1] for address in said} == said
    assert run.project().path.name.endswith("_cpu")


@pytest.mark.parametrize("name", SCRIPTS)
def test_blocks_have_the_labels_that_the_script_says(script, name):
    run = script(SCRIPTS[name], "--analysis=decompose")
    wanted = {int(address): "@".join(filter(None, ("CANN@SLOG", label))) for address, label in json.loads(run.stdout).items()}
    assert {row.ptr: row.attr["owner"] for row in run.rows() if row.event == "MALLOC"} == wanted
    assert all(label in run.stderr for label in wanted.values()), "and the report has the bytes of each"


@pytest.mark.parametrize("name", SCRIPTS)
def test_labels_are_written_without_decompose_too(script, name):
    run = script(SCRIPTS[name])
    wanted = {int(address): f"CANN@SLOG@{label}" if label else None for address, label in json.loads(run.stdout).items()}
    assert {row.ptr: row.attr.get("owner") for row in run.rows() if row.event == "MALLOC"} == wanted
    assert "by class" not in run.stderr


def test_wrong_arguments_raise_with_a_collector_and_without(msmemscope, dist, tmp_path):
    (tmp_path / "script.py").write_text("""
import msmemscope.describe as describe
for arguments, error in (((None, 5), TypeError), ((None, "x" * 129), ValueError), (([], "x"), NotImplementedError),
                         ((-1, "x"), ValueError), ((True, "x"), NotImplementedError)):
    try:
        describe.describer(*arguments)
    except error as raised:
        assert "describer()" in str(raised)
    else:
        raise AssertionError(arguments)
describe.describer(1 << 40, owner="x" * 128)  # nobody's memory: nothing happens
""")
    words = [sys.executable, tmp_path / "script.py"]
    msmemscope("--analysis=decompose", "--", *words).check()
    assert msmemscope.bare(*words, env={"PYTHONPATH": str(dist / "python")}).returncode == 0
