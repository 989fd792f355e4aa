# SPDX-License-Identifier: Apache-2.0
"""The clients of mstx (tests/targets/client_*.c) do what they say. A tool that writes down every call (mstx_recorder.c) stands
where the collector would be; what a pool must have after each call is computed here again, from the calls alone. Then the same
clients run under the tool itself, and its rows are what they said."""
import json
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass

import pytest

POOLS = {"ptaCaching": "PTA", "msleaks": "PTA", "ptaWorkspace": "PTA_WORKSPACE", "mindsporeMemPool": "MINDSPORE", "atb": "ATB"}
ROUNDS = 300


@dataclass
class Said:
    run: object
    lines: list
    calls: list

    def events(self, *ops):
        return [event for line in self.lines for event in line["events"] if event[0] in ops]

    def named(self, *names):
        return [call for call in self.calls if call["call"] in names]


def read_lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


@pytest.fixture
def recorder(targets):
    return targets / "recorder" / "libascend_kernel_hook.so"


@pytest.fixture
def client(msmemscope, program, dist, recorder, tmp_path):
    """client(name, options..., env): runs it on the simulated NPU with the recorder preloaded; `preload=None` for none."""
    def run(name, *options, preload=recorder, env=None, command=None, status=0):
        truth, record = tmp_path / "truth", tmp_path / "record"
        truth.unlink(missing_ok=True)
        record.unlink(missing_ok=True)
        changes = {"TRUTH": truth, "RECORD": record, "PYTHONPATH": dist / "simnpu" / "python",
                   "LD_PRELOAD": preload, **(env or {})}
        result = msmemscope.bare(*(command or program(name, *options)), env=changes)
        assert result.returncode == status, str(result)
        return Said(result, read_lines(truth), read_lines(record))

    return run


def replay_calls(calls):
    """(tid, op, pool, address, size, used, total) for each region that came or went, by device, from the calls alone."""
    used, total, live, steps = Counter(), Counter(), {}, defaultdict(list)
    heaps = {}
    for call in calls:
        pool = POOLS.get(call["domain"])
        if pool is None:
            continue
        if call["call"] == "heap_register":
            [[device, address, size]] = call["ranges"]
            heaps[address] = device, size
            total[device] = total[device] + size if pool == "ATB" else size
            if pool == "MINDSPORE" and steps[device] and steps[device][-1][1] == "register":
                # Told behind the region, and it was so before.
                steps[device][-1] = (*steps[device][-1][:-1], size)
        elif call["call"] == "heap_unregister":
            device, size = heaps.pop(call["heap"])
            total[device] -= size
        elif call["call"] == "regions_register":
            handles = call["handles"] or [address for _, address, _ in call["ranges"]]
            for (device, address, size), handle in zip(call["ranges"], handles):
                live[handle] = device, address, size
                used[device] = size if pool == "PTA_WORKSPACE" else used[device] + size
                steps[device].append((call["tid"], "register", pool, address, size, used[device], total[device]))
        elif call["call"] == "regions_unregister":
            for kind, handle in call["references"]:
                assert kind == (1 if pool == "ATB" else 0)
                if handle not in live:
                    continue
                device, address, size = live.pop(handle)
                used[device] -= size
                steps[device].append((call["tid"], "unregister", pool, address, size, used[device], total[device]))
    return steps


def replay_truth(lines):
    """The same from what the client said, in the order it gave."""
    regions, steps = {}, defaultdict(list)
    events = [(event, line["tid"]) for line in lines for event in line["events"] if event[0] in ("register", "unregister")]
    for (op, ident, *rest), tid in sorted(events, key=lambda pair: pair[0][-1]):
        if op == "register":
            pool, address, size, device, used, total, _ = rest
            regions[ident] = pool, address, size, device
        elif ident not in regions:
            continue
        else:
            used, total, _ = rest
            pool, address, size, device = regions.pop(ident)
        steps[device].append((tid, op, pool, address, size, used, total))
    return steps


def check_layout(lines):
    """For one thread: what a pool hands out lies in memory that it has, and nowhere twice. The main thread's log is the first
    line, but it acts last."""
    segments, regions = {}, {}
    for op, ident, *rest in [event for line in reversed(lines) for event in line["events"]]:
        if op == "malloc":
            segments[ident] = rest[0], rest[1]
        elif op == "free":
            start, size = segments.pop(ident)
            assert not any(start <= address < start + size for address, _ in regions.values()), "freed under a block"
        elif op == "register":
            _, address, size, *_ = rest
            assert any(start <= address and address + size <= start + length for start, length in segments.values())
            assert all(address + size <= start or start + length <= address for start, length in regions.values())
            regions[ident] = address, size
        elif op == "unregister":
            regions.pop(ident)


def check(said, pool):
    assert all(line["reports"] for line in said.lines)
    steps = replay_truth(said.lines)
    assert steps == replay_calls(said.calls)
    flat = [step for device in steps.values() for step in device]
    assert {step[2] for step in flat} == {pool}
    assert {step[1] for step in flat} == {"register", "unregister"}
    return flat


@pytest.mark.parametrize("options", [
    ["--threads=1"], ["--threads=4", "--devices=3"], ["--domain=msleaks"], ["--threads=2", "--old-loader"],
])
def test_caching_allocator_says_what_it_does(client, options):
    said = client("client_pta", f"--rounds={ROUNDS}", *options)
    check(said, "PTA")
    assert said.events("free"), "empty_cache() gave nothing back"
    name = "msleaks" if "--domain=msleaks" in options else "ptaCaching"
    assert {call["name"] for call in said.named("domain_create")} == {name}
    assert len(said.named("domain_create")) == len(said.calls) / 2, "a domain for each call"
    assert not said.named("heap_unregister")
    heaps = said.named("heap_register")
    assert len(heaps) == len(said.named("regions_register", "regions_unregister"))
    assert {(call["usage"], call["type"]) for call in heaps} == {(-1515870811, -1515870811)}, "the garbage"


def test_blocks_of_the_caching_allocator_lie_in_its_segments(client):
    check_layout(client("client_pta", f"--rounds={ROUNDS * 3}").lines)


def test_expandable_segments_are_created_memory(client, program, msmemscope):
    if msmemscope.bare(*program("client_pta", "--expandable", "--rounds=1")).returncode == 77:
        pytest.skip("the driver cannot reserve addresses")
    said = client("client_pta", "--expandable", "--threads=3", f"--rounds={ROUNDS}")
    check(said, "PTA")
    assert {event[5] for event in said.events("malloc")} == {"create"}
    assert said.events("free")


@pytest.mark.parametrize("options", [["--threads=1"], ["--threads=3", "--streams=4"], ["--nested"], ["--old-loader"]])
def test_workspace_allocator_says_what_it_does(client, options):
    said = client("client_workspace", *options)
    steps = check(said, "PTA_WORKSPACE")
    addresses = [step[3] for step in steps if step[1] == "register"]
    assert len(addresses) > 3 * len(set(addresses)), "the same address again and again"
    if "--nested" in options:
        assert len(said.named("regions_unregister")) > len([step for step in steps if step[1] == "unregister"])


@pytest.mark.parametrize("options", [["--threads=1"], ["--threads=4", "--devices=2"]])
def test_mindspore_tells_the_heap_after_the_region(client, options):
    said = client("client_mindspore", f"--rounds={ROUNDS}", *options)
    steps = check(said, "MINDSPORE")
    assert len(said.named("domain_create")) == 1, "the handle is kept"
    assert all(step[-1] > 0 for step in steps), "what is said of the heap behind a region was so before"
    if options == ["--threads=1"]:
        check_layout(said.lines)
        assert [call["call"] for call in said.calls[1:5]][:2] == ["regions_register", "heap_register"]


@pytest.mark.parametrize("options", [["--threads=1"], ["--threads=4", "--devices=2"]])
def test_atb_registers_batches_and_frees_by_handle(client, options):
    said = client("client_atb", *options)
    check(said, "ATB")
    assert {len(call["ranges"]) for call in said.named("regions_register")} >= {1, 2, 5}
    assert len(said.named("heap_register")) == len(said.named("heap_unregister"))
    assert {(call["usage"], call["type"]) for call in said.named("heap_register")} == {(0, 0)}


def test_atb_stops_for_good_when_a_heap_gets_no_handle(client):
    said = client("client_atb", "--threads=3", env={"RECORD_REFUSE": 1})
    assert len(said.named("heap_register")) == 3
    assert Counter(call["call"] for call in said.calls) == {"domain_create": 1, "heap_register": 3}
    assert not any(line["reports"] for line in said.lines)


def test_atb_without_a_device_has_heaps_only(client):
    said = client("client_atb", "--no-device", "--rounds=5")
    assert {call["ranges"][0][0] for call in said.named("heap_register")} == {0xffffffff}
    assert not said.named("regions_register", "regions_unregister")


@pytest.mark.parametrize("name", ["client_pta", "client_workspace", "client_mindspore", "client_atb"])
def test_visible_devices_are_logical_for_the_tool_and_physical_in_the_truth(client, name):
    wide = "--threads=2" if name == "client_workspace" else "--devices=2"
    said = client(name, "--threads=2", wide, env={"ASCEND_RT_VISIBLE_DEVICES": "5,3"})
    assert {event[4] for event in said.events("malloc")} == {3, 5}
    assert {event[5] for event in said.events("register")} == {3, 5}
    assert {entry[0] for call in said.named("regions_register") for entry in call["ranges"]} == {0, 1}


@pytest.mark.parametrize("name", ["client_pta", "client_workspace", "client_mindspore", "client_atb", "client_mstx"])
def test_without_a_tool_clients_work_and_report_nothing(client, name):
    said = client(name, preload=None)
    assert not said.events("register", "unregister")
    assert not any(line["reports"] for line in said.lines)
    assert bool(said.events("malloc")) == (name != "client_mstx")


@pytest.mark.parametrize("name", ["client_pta", "client_workspace", "client_mindspore"])
def test_gate_asks_for_the_real_name_of_the_preload(client, recorder, tmp_path, name):
    other, alias = tmp_path / "other.so", tmp_path / "libascend_kernel_hook.so"
    other.write_bytes(recorder.read_bytes())
    alias.symlink_to(other)
    said = client(name, preload=alias)
    assert not said.calls and not any(line["reports"] for line in said.lines)
    link = tmp_path / "any.so"
    link.symlink_to(recorder)
    said = client(name, preload=link)
    assert said.calls and all(line["reports"] for line in said.lines)


@pytest.mark.parametrize("name", ["client_pta", "client_workspace", "client_mindspore"])
def test_frameworks_want_the_library_of_the_installation(client, tmp_path, name):
    said = client(name, env={"ASCEND_HOME_PATH": tmp_path})
    assert not said.calls and not any(line["reports"] for line in said.lines)


@pytest.mark.parametrize("threads", [1, 4])
def test_marks_and_ranges_arrive_as_they_were_sent(client, threads):
    said = client("client_mstx", f"--threads={threads}", "--memory")
    assert len(said.named("domain_create", "domain_destroy")) == 2
    for line in said.lines:
        sent = [("mark", event[3], 0) if event[0] == "mark" else
                ("range_start", event[3], event[1]) if event[0] == "range_start" else
                ("range_end", None, event[1]) for event in line["events"] if event[0] not in ("malloc", "free")]
        arrived = [(call["call"], call.get("message"), call.get("id", 0)) for call in said.calls
                   if call["tid"] == line["tid"] and call["call"] in ("mark", "range_start", "range_end")]
        assert sent == arrived
    started = {event[1] for event in said.events("range_start")}
    assert started == {event[1] for event in said.events("range_end")} and 0 not in started
    messages = {event[3] for event in said.events("mark")}
    assert {None, "", "训练第一步", "two\nlines", "=1+1", "@at"} <= messages


def expected_rows(lines):
    """What each thread's rows must be, in their order, by thread; numbers of pools included."""
    blocks, rows = {}, defaultdict(list)
    for line in lines:
        for op, ident, *rest in line["events"]:
            if op == "malloc":
                blocks[ident] = "HAL", rest[0], rest[1], str(rest[2])
            elif op == "register":
                blocks[ident] = rest[0], rest[1], rest[2], str(rest[3])
    for line in lines:
        for op, ident, *rest in line["events"]:
            if op in ("malloc", "free"):
                row = "MALLOC" if op == "malloc" else "FREE", *blocks[ident]
            elif op in ("register", "unregister"):
                row = "MALLOC" if op == "register" else "FREE", *blocks[ident], *rest[-3:-1]
            elif op == "range_end":
                row = "MSTX", "Range_end", f"Range end from id {ident}"
            else:
                row = "MSTX", "Mark" if op == "mark" else "Range_start", plain(rest[1])
            rows[line["tid"]].append(row)
    return {tid: found for tid, found in rows.items() if found}


def plain(name):
    """A name as far as it is promised: no message reads N/A, and what a spreadsheet would take for a formula may be left out."""
    return None if name in (None, "N/A") else "" if name[:1] in tuple("=+-@") else name


def seen_row(row):
    if row.event == "MSTX":
        return row.event, row.type, plain(row.name)
    pool = (row.attr["used"], row.attr["total"]) if row.type not in ("HAL", "HOST_PINNED") else ()
    return row.event, row.type, row.ptr, row.attr["size"], row.device, *pool


@pytest.mark.parametrize("name, options", [
    ("client_pta", ["--threads=1"]), ("client_pta", ["--threads=4", "--devices=3"]), ("client_pta", ["--domain=msleaks"]),
    ("client_pta", ["--old-loader", "--threads=2"]), ("client_pta", ["--expandable", "--threads=2"]),
    ("client_workspace", ["--threads=3", "--streams=4"]), ("client_mindspore", ["--threads=4", "--devices=2"]),
    ("client_atb", ["--threads=4", "--devices=2"]), ("client_mstx", ["--threads=4", "--memory"]), ("client_mstx", []),
])
@pytest.mark.parametrize("visible", [None, "5,3,7"])
def test_rows_are_what_the_client_did(msmemscope, program, tmp_path, name, options, visible):
    truth = tmp_path / "truth"
    run = msmemscope("--", *program(name, *options), env={"TRUTH": truth, "ASCEND_RT_VISIBLE_DEVICES": visible}).check()
    lines = read_lines(truth)
    assert all(line["reports"] for line in lines)
    found = defaultdict(list)
    for row in run.project().rows():
        found[row.tid].append(seen_row(row))
    wanted = expected_rows(lines)
    assert {tid: len(rows) for tid, rows in found.items()} == {tid: len(rows) for tid, rows in wanted.items()}
    assert found == wanted


def test_rows_of_a_python_program_have_its_steps(msmemscope, targets, dist, tmp_path):
    env = {"TRUTH": tmp_path / "truth", "PYTHONPATH": dist / "simnpu" / "python"}
    run = msmemscope("--", sys.executable, targets / "steps.py", env=env).check()
    [(tid, wanted)] = expected_rows(read_lines(tmp_path / "truth")).items()
    assert [seen_row(row) for row in run.project().rows() if row.tid == tid] == wanted
    assert wanted.count(("MSTX", "Range_start", "step start")) == 15


def test_rows_of_a_pool_are_in_the_order_of_its_calls(msmemscope, program, tmp_path):
    truth = tmp_path / "truth"
    run = msmemscope("--", *program("client_atb", "--threads=4"), env={"TRUTH": truth}).check()
    steps = [(row.tid, {"MALLOC": "register", "FREE": "unregister"}[row.event], row.type, row.ptr, row.attr["size"],
              row.attr["used"], row.attr["total"]) for row in run.project().rows() if row.type == "ATB"]
    assert steps == replay_truth(read_lines(truth))[0]


def python(said_by, *lines, **options):
    return said_by(None, command=[sys.executable, "-c", "import mstx\n" + "\n".join(lines)], **options)


def test_python_marks_15_steps(client, targets):
    said = client(None, command=[sys.executable, str(targets / "steps.py")])
    starts = said.named("range_start")
    assert [call["message"] for call in starts] == ["step start"] * 15
    assert [call["id"] for call in starts] == [call["id"] for call in said.named("range_end")] == list(range(1, 16))
    assert [event[1] for event in said.events("range_start")] == list(range(1, 16))
    assert len(said.events("malloc")) - len(said.events("free")) == 5


def test_python_module_works_without_a_tool_and_beside_its_library(client, dist):
    lines = ["mstx.mark('m')", "assert mstx.range_start('r') == 0", "mstx.range_end(0)", "assert mstx.get_tool_id() == 0"]
    python(client, *lines, preload=None)
    python(client, *lines, preload=None, env={"ASCEND_HOME_PATH": None, "LD_LIBRARY_PATH": None})


def test_python_ids_are_cut_to_32_bits(client):
    said = python(client, "a = mstx.range_start('a')", "assert a == 6, a", "mstx.range_end(a)", "mstx.range_end((7 << 32) + 6)",
                  "assert mstx.get_tool_id() == 0x100001003", env={"RECORD_FIRST": 0x700000005})
    assert [call["id"] for call in said.calls] == [0x700000006, 6, 6]


def test_python_streams_are_addresses_of_objects(client):
    said = python(client, "s = object()", "mstx.mark('m', s)", "mstx.mark(message='m', stream=None)",
                  "mstx.range_start('r', stream=s)", "print(id(s))")
    address = int(said.run.stdout)
    assert [call["stream"] for call in said.calls] == [address, 0, address]


def test_python_messages_are_optional_text(client):
    said = python(client, "mstx.mark()", "mstx.mark(None)", "mstx.mark('训练')", "mstx.range_start()",
                  "for bad, error in ((lambda: mstx.mark(5), TypeError), (lambda: mstx.mark('a\\0b'), ValueError),",
                  "                   (lambda: mstx.range_end('1'), TypeError), (lambda: mstx.range_end(1.5), TypeError)):",
                  "    try: bad()",
                  "    except error: continue",
                  "    raise SystemExit('no ' + error.__name__)")
    assert [call["message"] for call in said.calls] == [None, None, "训练", None]


def test_python_threads_run_while_the_tool_works(client):
    python(client, "import threading, time", "thread = threading.Thread(target=mstx.mark, args=('slow',))", "thread.start()",
           "time.sleep(0.1)", "assert thread.is_alive(), 'the interpreter was held'", "thread.join()", env={"RECORD_SLEEP": 2000})


def test_python_import_without_the_library_is_an_import_error(client, dist, tmp_path):
    package = tmp_path / "python" / "mstx"
    package.mkdir(parents=True)
    (package / "__init__.py").write_bytes((dist / "simnpu" / "python" / "mstx" / "__init__.py").read_bytes())
    said = client(None, command=[sys.executable, "-c", "import mstx"], preload=None, status=1,
                  env={"PYTHONPATH": package.parent, "ASCEND_HOME_PATH": None, "LD_LIBRARY_PATH": None})
    assert "ImportError: mstx: " in said.run.stderr
