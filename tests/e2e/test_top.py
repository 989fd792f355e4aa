# SPDX-License-Identifier: Apache-2.0
"""`msmemscope top`: what it shows of a program that waits is what the program itself knows, in every form; it reads beside the engine, so
nothing of the run changes; it leaves a terminal as it was."""
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import exposition
import harness
from terminal import Terminal


@pytest.fixture
def terminal(msmemscope):
    opened = []

    def start(*words, **size):
        opened.append(Terminal([msmemscope.path, "top", *words], harness.environment(msmemscope.dist), **size))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def frame_of(msmemscope, word):
    """The processes of the launch as `top --json` tells them."""
    run = msmemscope("top", word, "--json", output=False).check()
    return json.loads(run.stdout)


def held(process):
    return {pool["device"]: {"used": pool["used_bytes"], "peak": pool["peak_bytes"], "blocks": pool["blocks"], "allocs": pool["allocations"],
                             "frees": pool["frees"]} for pool in process["pools"]}


def random_actions(chance, live):
    """Some allocations and frees; `live` counts what is held."""
    actions = []
    for _ in range(chance.randrange(1, 40)):
        if live[0] > 0 and chance.random() < 0.4:
            actions.append(["free", chance.randrange(live[0])])
            live[0] -= 1
        else:
            actions.append(["alloc", chance.randrange(1, 1 << 22), chance.randrange(3)])
            live[0] += 1
    return actions


@pytest.mark.parametrize("mode", ["command", "start"])
def test_the_figures_are_those_of_the_program(msmemscope, steered, mode):
    chance, live = random.Random(mode), [0]
    program = steered(mode=mode)
    for _ in range(4):
        truth = program.do(*random_actions(chance, live))
        for word in (program.results, program.pid):
            [process] = frame_of(msmemscope, word)["processes"]
            assert held(process) == truth and process["state"] == "runs" and process["lost"] == 0
    program.end()


def test_what_is_packed_and_recycled_meanwhile_is_not_missed(msmemscope, steered):
    """Some forty chunks of several threads go through the engine while a reader stands beside it."""
    program = steered()
    server = Served(msmemscope, program.results)
    for turn in range(4):
        truth = program.do(["threads", 4, 25000, turn], ["churn", 20000, turn])
        assert server.held() == truth
        assert held(frame_of(msmemscope, program.pid)["processes"][0]) == truth
    program.do(["free_all"])
    assert all(one["used"] == 0 for one in server.held().values())
    program.end()
    server.started.finish()


def test_a_trace_that_loses_its_begin_is_followed(msmemscope, steered):
    """With --max-disk the engine drops old chunks and leaves a checkpoint: readers begin there."""
    program = steered(["--max-trace=1M"])
    server = Served(msmemscope, program.results)
    for turn in range(6):
        truth = program.do(["threads", 3, 30000, turn])
        assert server.held() == truth
        assert held(frame_of(msmemscope, program.pid)["processes"][0]) == truth
    program.end()
    server.started.finish()
    [project] = harness.Run([], 0, "", "", program.results).projects()
    assert "Dropped to stay within --max-disk" in msmemscope("info", project.path, output=False).stdout, "nothing was dropped: more events are needed"


def until(msmemscope, program, asked):
    """What is asked of the only process, once it is there: the engine's own figures come to readers beside it every 2 s."""
    for _ in range(200):
        found = asked(frame_of(msmemscope, program.results)["processes"][0])
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not come")


def test_growth_and_the_leak_are_told_by_the_line_that_makes_them(msmemscope, steered):
    program = steered()
    program.do(["alloc", 64 << 20])
    for _ in range(15):
        program.do(["step"], ["alloc", 1 << 20], ["alloc", 3 << 20], ["free", -1])
    document = frame_of(msmemscope, program.results)
    [process] = document["processes"]
    [pool] = process["pools"]
    assert pool["growth_bytes_per_step"] == 1 << 20 and process["steps"] == 16  # the one in progress counts
    assert process["leaks"] == 1 and process["suspects"] == 0
    [leak] = [place for place in process["places"] if place["verdict"] == "leak"]
    assert "steered.py:13 alloc" in leak["place"] and round(leak["growth_bytes_per_step"]) == 1 << 20
    assert sum(place["bytes"] for place in process["places"]) == pool["used_bytes"]
    assert 1 << 20 < until(msmemscope, program, lambda process: process.get("resident_bytes")) < 4 << 30
    text = msmemscope("top", program.results, "--once", output=False).check().stdout.splitlines()
    assert text[0].startswith(f"steered.py (pid {program.process.pid}), ") and ", step 16, " in text[0] and text[0].endswith(" live")
    assert text[1] == "LEAK: 1 call site grows, +1.0 MiB per step"
    assert [line.split()[-1] for line in text if " HAL " in line] == ["MiB"] and "+1.0 MiB" in next(line for line in text if " HAL " in line)
    assert any(line.startswith("LEAK  ") and "steered.py:13 alloc" in line for line in text)
    assert all(len(line) <= 80 for line in text)
    program.end()


def test_when_a_device_will_be_full_is_a_range_everywhere(msmemscope, steered):
    """100 of 512 MiB are held, and 1 MiB more in each step: the device is full about 400 steps later."""
    program = steered(env={"SIMNPU_HBM": "512M"})
    server = Served(msmemscope, program.results)
    program.do(["alloc", 100 << 20])
    for step in range(1, 25):
        program.do(["step"], ["alloc", 1 << 20])
        if step == 8:
            assert frame_of(msmemscope, program.results)["processes"][0]["forecasts"] == []
    # The driver may not have said yet how large the device is.
    [forecast] = until(msmemscope, program, lambda process: process["forecasts"])
    low, high = forecast["full_step_low"], forecast["full_step_high"]
    assert forecast["device"] == "0" and low <= forecast["full_step"] <= high and low <= 413 <= high and high - low < 200
    text = msmemscope("top", program.results, "--once", output=False).check().stdout.splitlines()
    assert text[2].startswith(f"NPU 0 will be full at step {low:,} to {high:,}") and forecast["sentence"].startswith(text[2][:60])
    while True:
        samples = {(name, dict(labels).get("device")): value for (name, labels), value in server.samples().items()}
        if ("msmemscope_full_step", "0") in samples and samples["msmemscope_full_step_low", "0"] == low:
            break
    assert samples["msmemscope_full_step", "0"] == forecast["full_step"] and samples["msmemscope_full_step_high", "0"] == high
    assert samples["msmemscope_seconds_until_full", "0"] >= 0
    program.end()
    server.started.finish()
    assert f", at step {low:,} to {high:,}." in msmemscope("info", program.results, output=False).check().stdout


def test_nothing_of_the_run_changes(msmemscope, steered):
    """Rows of a run that was looked at all the time are those that the program made, and its trace has no gap."""
    program = steered()
    server = Served(msmemscope, program.results)
    for turn in range(3):
        program.do(["threads", 3, 4000, turn], ["step"])
        server.get("/metrics")
        frame_of(msmemscope, program.pid)
    truth = program.do(["churn", 100, 9])
    program.end()
    server.started.finish()
    [project] = harness.Run([], 0, "", "", program.results).projects()
    events = msmemscope.info(project)["pools"]
    assert {pool["device"]: pool["allocations"] for pool in events} == {device: one["allocs"] for device, one in truth.items()}
    run = msmemscope("info", project.path, output=False)
    assert run.returncode == 0 and "lost" not in run.stdout and "damage" not in run.stdout
    # Of the token alone something is left beside the results.
    assert sorted(entry.name for entry in program.results.iterdir()) == sorted([project.path.name, "prometheus_token"])


def test_a_launch_that_has_recorded_nothing_says_so_until_it_has(msmemscope, steered):
    program = steered()

    def text():
        return msmemscope("top", program.results, "--once", output=False).check().stdout

    assert "No process has recorded anything yet." in text()
    program.do(["alloc", 4096, 0])
    assert "No process has recorded anything yet." not in text()
    program.end()


def test_a_launch_that_waits_for_start_says_so(msmemscope, steered):
    chance, live = random.Random(3), [0]
    program = steered(["--collect-mode=deferred"])
    truth = program.do(*random_actions(chance, live))
    assert "nothing now: the program has not called start()" in msmemscope("top", program.pid, output=False).check().stdout
    # What it holds is known all the same, in windows and outside of them.
    for word, state in ((None, "waits"), ("start", "runs"), ("stop", "waits"), ("start", "runs")):
        program.do(*([[word]] if word else []))
        for _ in range(2):
            [process] = frame_of(msmemscope, program.pid)["processes"]
            assert process["state"] == state
            assert {pool["device"]: (pool["used_bytes"], pool["peak_bytes"]) for pool in process["pools"]} == \
                {device: (one["used"], one["peak"]) for device, one in truth.items()}
            assert sum(place["bytes"] for place in process["places"]) == sum(one["used"] for one in truth.values())
            truth = program.do(*random_actions(chance, live))
    program.end()


def test_launches_are_found_and_listed(msmemscope, steered, out):
    one, two = steered(name="first.py"), steered(mode="start", name="second.py")
    for program in (one, two):
        program.do(["alloc", 4096])
    run = msmemscope("top", output=False).check()
    # Others may run beside ours.
    for program, name in ((one, "first.py"), (two, "second.py")):
        pid = program.process.pid
        [line] = [line for line in run.stdout.splitlines() if line.split()[0] == str(pid)]
        assert line.split()[1:] == [name, str(program.results)]
    assert "choose one: msmemscope top PID" in run.stderr
    one.end()
    two.end()
    while engines_of(two.results):  # the engine of start() outlives its process a little
        pass
    for word in (one.results, one.pid, "999999999", out / "missing", __file__):
        run = msmemscope("top", word, output=False)
        assert run.returncode in (1, 2) and len(run.stderr.splitlines()) == 1 and run.stdout == ""
    assert "no running launch has its results in" in msmemscope("top", one.results, output=False).stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees what others run")
def test_launches_of_others_are_not_taken_for_ours(msmemscope, program, dist):
    """Root sees the launch of nobody, whose session only its owner opens; `top` without a word is about root's own."""
    place = Path("/var/tmp") / f"msmemscope-top-{os.getpid()}"
    place.mkdir(mode=0o755)
    try:
        shutil.copytree(dist, place / "dist", symlinks=True)
        shutil.copy(program("two_acts")[-1], place)
        (place / "out").mkdir()
        (place / "out").chmod(0o777)
        env = harness.environment(place / "dist", {"TRUTH": place / "out" / "truth", "SIMNPU_SHARE": place / "out"})
        script = """cd "$1"; mkfifo in said
setpriv --reuid 65534 --regid 65534 --clear-groups dist/bin/msmemscope -o out/results -- ./two_acts 10 10 < in > said 2> /dev/null &
exec 3> in; read ready < said
dist/bin/msmemscope top; status=$?
exec 3>&-; wait; exit $status"""
        # A name space of its own has no other launches.
        run = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", script, "sh", place], env=env, stdin=subprocess.DEVNULL,
                             capture_output=True, text=True, timeout=harness.TIMEOUT_S, check=False)
        assert (run.returncode, run.stdout) == (1, ""), run
        assert run.stderr == "msmemscope: no launch of this user is running; other users run 1\n"
    finally:
        shutil.rmtree(place)


def test_a_killed_launch_is_told_from_one_that_runs(msmemscope, steered):
    program = steered()
    program.do(["alloc", 4096])
    os.killpg(program.process.pid, signal.SIGKILL)
    os.kill(program.pid, signal.SIGKILL) if os.path.exists(f"/proc/{program.pid}") else None
    program.process.wait()
    while any(os.path.exists(f"/proc/{pid}") for pid in engines_of(program.results)):
        pass
    run = msmemscope("top", program.results, output=False)
    assert run.returncode == 1 and ("recover" in run.stderr or "no running launch" in run.stderr)


def engines_of(results):
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if any(os.readlink(f"/proc/{entry}/fd/{fd}").startswith(f"{results}/.msmemscope_") for fd in os.listdir(f"/proc/{entry}/fd")):
                found.append(entry)
        except OSError:
            continue
    return found


# ---- on a terminal ----

def test_a_frame_fits_the_terminal_and_q_leaves_it_as_it_was(steered, terminal):
    program = steered(env={"RANK": 3})
    for _ in range(12):
        program.do(["step"], ["alloc", 1 << 20, 0], ["alloc", 1 << 16, 1])
    screen = terminal(program.results)
    screen.until(lambda lines: lines[1].startswith("LEAK: ") and lines[-1].startswith("q quits"))
    assert screen.alternate and not screen.cursor
    for rows, columns in ((10, 40), (24, 80), (6, 60), (50, 160), (3, 200)):
        screen.resize(rows, columns)
        lines = screen.until(lambda lines: lines[0].startswith("steered.py (") and lines[0].endswith(" live") and
                             len(lines[0]) == max(columns, 40) and (rows < 6 or lines[-1].startswith("q quits")))
        assert len(lines) == rows and all(len(line) <= max(columns, 40) for line in lines) and screen.scrolled == 0
        if rows >= 24:
            [rank] = [line for line in lines if re.match(r"3 +0 +HAL", line)]
            assert rank.split()[3:7] == ["12.0", "MiB", "12.0", "MiB"] and "+1.0 MiB" in rank
    truth = program.do(["alloc", 100 << 20, 0])
    screen.resize(24, 80)
    screen.until(lambda lines: any(re.match(rf"3 +0 +HAL +{truth['0']['used'] >> 20} MiB", line) for line in lines))
    screen.write("q")
    assert screen.end() == 0
    program.end()


@pytest.mark.parametrize("how", ["\x03", signal.SIGTERM, signal.SIGHUP])
def test_every_way_out_gives_the_terminal_back(steered, terminal, how):
    program = steered()
    program.do(["alloc", 4096])
    screen = terminal(program.pid)
    screen.until(lambda lines: any("HAL" in line for line in lines))
    screen.write(how) if isinstance(how, str) else screen.process.send_signal(how)
    assert screen.end() == 0
    program.end()


def test_the_end_of_the_launch_is_shown_and_ends_the_view(steered, terminal):
    program = steered()
    truth = program.do(["alloc", 5 << 20])
    screen = terminal(program.pid)
    screen.until(lambda lines: any("HAL" in line for line in lines))
    program.end()
    assert screen.end() == 0
    left = "\n".join(screen.lines)
    assert " ended" in screen.lines[0] and "HAL" in left and truth["0"]["peak"] == 5 << 20 and "5.0 MiB" in left


# ---- for Prometheus ----

class Served:
    """A running `msmemscope top --prometheus`."""

    def __init__(self, msmemscope, *words):
        self.started = msmemscope.start("top", "--prometheus=0", *words, output=False)
        line = self.started.process.stderr.readline().decode()
        found = re.fullmatch(r"msmemscope: serving (http://127\.0\.0\.1:\d+)/metrics; the token is in (\S+) \(Ctrl-C stops\)\n", line)
        self.base, self.path = found[1], found[2]
        with open(self.path, encoding="ascii") as file:
            self.token = file.read()

    def get(self, path, method="GET", **headers):
        headers = {"Authorization": f"Bearer {self.token}", **headers}
        request = urllib.request.Request(f"{self.base}{path}", method=method,
                                         headers={name.replace("_", "-"): value for name, value in headers.items() if value is not None})
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.headers, reply.read().decode()

    def refused(self, path="/metrics", **options):
        with pytest.raises(urllib.error.HTTPError) as refusal:
            self.get(path, **options)
        assert "msmemscope_used" not in refusal.value.read().decode()
        return refusal.value.code

    def samples(self):
        headers, text = self.get("/metrics")
        assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return exposition.parse(text)[0]

    def held(self):
        """What each device holds, by the names of the program's own truth."""
        words = {"used_bytes": "used", "peak_bytes": "peak", "blocks": "blocks", "allocations_total": "allocs", "frees_total": "frees"}
        found = {}
        for (name, labels), value in self.samples().items():
            word = words.get(name.removeprefix("msmemscope_"))
            if word:
                found.setdefault(dict(labels)["device"], {})[word] = int(value)
        return found


def test_prometheus_gets_the_programs_own_figures(msmemscope, steered):
    chance, live = random.Random(7), [0]
    program = steered(env={"RANK": 5}, name='na"me\\o\nf.py')
    server = Served(msmemscope, program.results)
    for _ in range(4):
        truth = program.do(*random_actions(chance, live))
        assert server.held() == truth
    program.do(["free_all"])
    for _ in range(14):
        program.do(["step"], ["alloc", 1 << 20])
    while True:
        samples = server.samples()
        leaks = [value for (name, _), value in samples.items() if name == "msmemscope_leak_places"]
        if leaks == [1]:
            break
    by_name = {}
    for (name, labels), value in samples.items():
        by_name.setdefault(name, []).append((dict(labels), value))
    [(labels, growth)] = [one for one in by_name["msmemscope_growth_bytes_per_step"] if one[0]["device"] == "0"]
    assert growth == 1 << 20
    assert labels == {"launch": str(program.process.pid), "pid": str(program.pid), "rank": "5", "program": 'na"me\\o\nf.py', "device": "0", "pool": "HAL"}
    [(_, steps)] = by_name["msmemscope_steps_total"]
    [(_, lost)] = by_name["msmemscope_lost_events_total"]
    [(_, suspects)] = by_name["msmemscope_suspect_places"]
    [(_, events)] = by_name["msmemscope_events_total"]
    assert (steps, lost, suspects) == (15, 0, 0) and events > 14
    # With the launch that was named, it ends too.
    program.end()
    assert server.started.finish().returncode == 0


def test_prometheus_serves_all_launches_as_they_come_and_go(msmemscope, steered, out):
    server = Served(msmemscope, "-o", out / "tokens")
    program = steered(mode="start")
    truth = program.do(["alloc", 12345, 1])

    def mine():
        return {dict(labels)["device"]: value for (name, labels), value in server.samples().items()
                if name == "msmemscope_used_bytes" and dict(labels)["pid"] == str(program.pid)}

    while not mine():
        pass
    assert mine() == {"1": truth["1"]["used"]}
    program.end()
    while mine():
        pass
    server.started.process.send_signal(signal.SIGINT)
    assert server.started.finish().returncode == 0


def test_only_who_has_the_token_and_asks_the_loopback_gets_figures(msmemscope, steered):
    program = steered()
    program.do(["alloc", 4096])
    server = Served(msmemscope, program.results)
    assert os.stat(server.path).st_mode & 0o777 == 0o600 and os.path.dirname(server.path) == str(program.results)
    wrong = "0" * 32 if server.token != "0" * 32 else "1" * 32
    for authorization in (None, f"Bearer {wrong}", f"Basic {server.token}", server.token, "Bearer ", f"Bearer {server.token}x"):
        assert server.refused(Authorization=authorization) == 403
    assert server.refused(f"/metrics?token={wrong}", Authorization=None) == 403
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost:80@evil", ""):
        assert server.refused(Host=host) == 403
    for origin in ("http://evil.example", "null", "https://localhost.evil.example"):
        assert server.refused(Origin=origin) == 403
    for method in ("POST", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"):
        assert server.refused(method=method) == 405
    for path in ("/", "/api/summary", "/metrics/", "/metrics/../api/summary", "/%2e%2e/metrics"):
        assert server.refused(path) == 404
    for good in ({}, {"Host": "localhost:1234"}, {"Origin": "http://127.0.0.1:9090"}):
        assert "msmemscope_used_bytes{" in server.get("/metrics", **good)[1]
    assert "msmemscope_used_bytes{" in server.get(f"/metrics?token={server.token}", Authorization=None)[1]
    # The next one has the same token; one that others could have read or made is not used again.
    again = Served(msmemscope, program.results)
    assert again.token == server.token
    os.chmod(server.path, 0o644)
    other = Served(msmemscope, program.results)
    assert other.token != server.token and os.stat(server.path).st_mode & 0o777 == 0o600
    program.end()
    for one in (server, again, other):
        one.started.finish()
