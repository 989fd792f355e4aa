# SPDX-License-Identifier: Apache-2.0
"""Places: which functions and lines hold memory at its peak, as programs know it themselves, whatever their symbols are."""
import json
import re
import shutil
import subprocess
import time

import pytest

MIB = 1 << 20


def peaks_of(msmemscope, trace):
    """Peaks as `info --json` tells them, by device and pool."""
    document = json.loads(msmemscope("info", "--json", trace, output=False).check().stdout)
    [process] = document.get("processes", [document])
    return {(peak["device"], peak["event_type"]): peak for peak in process["peaks"]}


def told_by(msmemscope, run):
    """What `info` says about the run, in words."""
    return msmemscope("info", "--all", run.project().path / "trace.msc", output=False).check().stdout


def users(place):
    return [frame for frame in place["frames"] if frame["user"]]


def name(frame):
    """The name of a function without parameters and template arguments; good enough for those of the targets."""
    return re.sub(r"(?<!operator)\(.*|<.*?>", "", frame["function"])


def truth_of(run):
    return [json.loads(line) for line in run.stdout.splitlines()]


@pytest.fixture
def built(targets, out):
    """Copies the C++ program, and changes its symbols."""
    def make(kind):
        program = out / "places"
        shutil.copy(targets / "places", program)
        debug = out / ".debug" / "places.debug"
        if kind == "separate":
            debug.parent.mkdir()
            subprocess.run(["objcopy", "--only-keep-debug", program, debug], check=True)
            subprocess.run(["strip", "--strip-debug", program], check=True)
            subprocess.run(["objcopy", f"--add-gnu-debuglink={debug}", program], check=True)
        elif kind == "no_debug":
            subprocess.run(["strip", "--strip-debug", program], check=True)
        elif kind == "stripped":
            subprocess.run(["strip", "--strip-all", program], check=True)
        return program

    return make


def test_a_constructor_is_named_by_the_function_that_makes_the_object(msmemscope, program):
    """Not by the constructor of the class around it, through which every object comes."""
    run = msmemscope("--call-stack=c", "--", *program("sessions")).check()
    [truth] = truth_of(run)
    assert re.search(rf"^ +16\.0 MiB +100 %  open_session \(sessions\.cpp:{truth['line']}\) -> kv::Buffer<\.\.\.>::Buffer \(sessions\.cpp:\d+\)$",
                     run.stderr, re.M), run


@pytest.mark.parametrize("kind", ["whole", "separate"])
def test_functions_files_and_lines_are_those_of_the_compiler(msmemscope, built, out, kind):
    """Templates, functions that are inlined, called by the standard library or lie in a static library, and a loop that is unrolled."""
    program = built(kind)
    run = msmemscope("--call-stack=c", "--", program).check()
    trace = run.project().path / "trace.msc"
    [peak] = peaks_of(msmemscope, trace).values()
    truth = truth_of(run)
    # AscendCL takes 32 bytes more for each block.
    expected = {(entry["function"], entry["file"], entry["line"]): (entry["bytes"] + 32 * entry["blocks"], entry["blocks"])
                for entry in truth}
    found = {}
    for place in peak["places"]:
        inner, outer = users(place)[:2]
        assert name(inner) == "take" and inner["file"].endswith("/places.h")
        found[name(outer), outer["file"], outer["line"]] = (place["bytes"], place["blocks"])
    assert found == expected
    assert peak["bytes"] == peak["highest_bytes"] == sum(size for size, _ in expected.values())
    # A name starts at the user's own code, nothing is mangled, and template arguments are three dots.
    said = told_by(msmemscope, run)
    assert "  shop::Table<...>::grow (places.cpp:" in said
    for entry in truth:
        line = (f"block{'s' * (entry['blocks'] > 1)}  {entry['function']} ({entry['file'].rsplit('/', 1)[-1]}:{entry['line']})"
                f" -> take (places.h:{inner['line']})\n")
        assert line in said.replace("<...>", "")
    assert "main (" in said and not re.search(r"\b_start\b|__libc_start", said), "frames outside of main() say nothing"


def test_lines_are_in_the_trace(msmemscope, built, out):
    """What is read at the end of a run is told where neither the program nor its debug information is."""
    program = built("whole")
    run = msmemscope("--call-stack=c", "--", program).check()
    trace = run.project().path / "trace.msc"
    before = msmemscope("info", "--all", trace, output=False).check().stdout
    assert "shop::Table<...>::grow (places.cpp:" in before and "no debug information" not in before
    program.unlink()
    assert msmemscope("info", "--all", trace, output=False).check().stdout == before


def test_a_program_without_debug_information_has_its_functions(msmemscope, built):
    told = told_by(msmemscope, msmemscope("--call-stack=c", "--", built("no_debug")).check())
    assert "  main (places) -> Arena::keep (places)\n" in told, told
    assert "  main (places) -> shop::unrolled (places)\n" in told
    assert re.search(r"^Note: no debug information for /.*/places; build it with -g to see lines\.$", told, re.M)


def test_a_stripped_program_has_its_instructions(msmemscope, built):
    run = msmemscope("--call-stack=c", "--", built("stripped")).check()
    [peak] = peaks_of(msmemscope, run.project().path / "trace.msc").values()
    assert re.search(r"  places\+0x[0-9a-f]+ -> places\+0x[0-9a-f]+$", told_by(msmemscope, run), re.M)
    assert "Note: no debug information for " in told_by(msmemscope, run)
    # Each call is a place of its own: there is nothing that would tell which are one line.
    assert len(peak["places"]) >= 4 and all(users(place) for place in peak["places"])


def test_the_columns_of_files_stay_as_they_were(msmemscope, built):
    """Call stacks of rows are texts of glibc's backtrace_symbols(), mangled."""
    run = msmemscope("--call-stack=c", "--", built("whole")).check()
    frames = [frame for row in run.rows() if row.event == "MALLOC" for frame in row.c_stack]
    assert any(re.search(r"/places\(_ZN5Arena4keepEm\+0x[0-9a-f]+\) \[0x[0-9a-f]+\]$", frame) for frame in frames)


@pytest.mark.parametrize("seed, options, threads", [(1, (), 1), (2, (), 3), (3, ("--max-trace=1M",), 2)])
def test_the_peak_is_what_each_line_held(msmemscope, program, seed, options, threads):
    """Random programs that keep book; one whose trace lost its oldest part on the way."""
    # The engine gives up chunks while it follows the program, so that has to take a while.
    size = (1000000, threads, 200) if options else (20000, threads)
    run = msmemscope("--call-stack=c", *options, "--", *program("peaks", seed, *size)).check()
    peaks = peaks_of(msmemscope, run.project().path / "trace.msc")
    for truth in truth_of(run):
        peak = peaks[str(truth["device"]), "HAL"]
        assert peak["bytes"] == peak["highest_bytes"] == truth["peak"]
        found = sorted([users(place)[0]["line"], place["bytes"], place["blocks"]] for place in peak["places"])
        assert found == sorted(truth["lines"])
    if options:
        assert "Dropped to stay within --max-disk" in (run.project().path / "report.txt").read_text()


def test_a_run_that_goes_on_has_lines(msmemscope, program, out):
    """info reads the raw trace of a program that lives, and debug information by itself."""
    started = msmemscope.start("--call-stack=c", "--", *program("peaks", 7, 100000, 1, 60000))
    end = time.monotonic() + 20
    while not list(out.glob("msmemscope_*/device_0/dump/*.csv")) and time.monotonic() < end:
        time.sleep(0.01)
    [raw] = out.glob(".msmemscope_*/[0-9]*.raw")
    done = msmemscope("info", raw, output=False)
    assert re.search(r"  one_event \(peaks\.c:\d+\) -> take \(peaks\.c:\d+\)$", done.stdout, re.M), str(done)
    started.kill()
    started.finish()


MODEL = """
import inspect, torch

class Net(torch.nn.Module):
    def forward(self, x):
        global line
        line = inspect.currentframe().f_lineno + 1
        return torch.nn.functional.relu(x)

def main():
    global called, kept
    net = Net()
    x = torch.ones(1 << 20)
    called = inspect.currentframe().f_lineno + 1
    kept = net(x)

main()
print('{"line": %d, "called": %d}' % (line, called))
"""


def test_a_script_is_told_by_its_own_line(msmemscope, python, out):
    script = out / "model.py"
    script.write_text(MODEL)
    run = msmemscope("--device=cpu", "--", *python, script).check()
    [truth] = truth_of(run)
    expected = f"model.py:{truth['called']} main -> model.py:{truth['line']} Net.forward -> torch.nn.functional.relu"
    assert expected in told_by(msmemscope, run)


SPAWNED = """
import multiprocessing, torch
def work():
    kept = [torch.ones(1 << 20) for _ in range(1)]
if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=work)
    process.start()
    process.join()
"""


def test_a_process_that_multiprocessing_spawned_is_told_by_the_users_line(msmemscope, python, out):
    """Not by the `python -c` that starts it; a comprehension is a part of the function that it is written in."""
    script = out / "spawned.py"
    script.write_text(SPAWNED)
    run = msmemscope("--device=cpu", "--", *python, script).check()
    assert re.search(r"^ +4\.0 MiB +100 %  spawned\.py:4 work$", run.stderr, re.M), run
    assert re.search(r"^spawned\.py \(pid \d+\): ", run.stderr, re.M), run
