# SPDX-License-Identifier: Apache-2.0
"""`msmemscope view` of a run that goes on: at every pause of the program the page knows exactly what the program knows, it grows by itself,
nothing that is looked at moves, and it says when the run has ended."""
import json
import random

import pytest

from viewed import Viewed, answers


def held(viewed, process=0):
    """What each device holds by the page: the last value of its line, its peak, and the blocks that live."""
    found = {}
    summary = viewed.ask("summary", process=process)
    for pool in summary["pools"]:
        moment = viewed.ask("moment", process=process, pool=pool["index"], at=summary["to_ns"])
        table = viewed.ask("table", process=process, pool=pool["index"], at=summary["to_ns"], count=1)
        found[pool["device"]] = {"used": moment["used"], "peak": pool["peak_bytes"], "blocks": table["found"], "bytes": table["bytes"]}
    return summary, found


def wanted(truth):
    return {device: {"used": one["used"], "peak": one["peak"], "blocks": one["blocks"], "bytes": one["used"]} for device, one in truth.items()}


@pytest.mark.parametrize("mode", ["command", "start"])
def test_the_page_knows_what_the_program_knows(msmemscope, steered, mode):
    chance = random.Random(mode)
    program = steered(mode=mode)
    program.do(["alloc", 1000, 0])
    while not (projects := list(program.results.glob("msmemscope_*"))):
        pass  # the engine makes it with the first row
    [project] = projects
    viewed = Viewed(msmemscope, project if mode == "command" else program.results)
    for turn in range(4):
        truth = program.do(["churn", chance.randrange(10, 3000), turn], ["threads", 2, chance.randrange(10, 2000), turn], ["step"])
        summary, found = held(viewed)
        assert found == wanted(truth) and summary["live"] and not summary["complete"]
    for _ in range(14):
        program.do(["step"], ["alloc", 1 << 20, 0])
    # What leaks is told while the program runs.
    while not summary["leaks"]:
        summary = viewed.ask("summary", now=1)
    assert "steered.py:13 alloc" in summary["leaks"][0]["place"]
    truth = program.do(["alloc", 77, 1])
    assert held(viewed)[1] == wanted(truth)
    program.end()
    while not summary["complete"]:
        summary = viewed.ask("summary")
    assert summary["live"] and summary["judged"]
    # It is the run that the trace has.
    [project] = program.results.glob("msmemscope_*")
    after = Viewed(msmemscope, project)
    whole = after.ask("summary")
    assert not whole["live"] and whole["complete"]
    for key in ("pools", "steps", "to_ns"):
        assert [{name: value for name, value in pool.items() if name != "figures"} for pool in whole[key]] == \
            [{name: value for name, value in pool.items() if name != "figures"} for pool in summary[key]] if key == "pools" else whole[key] == summary[key]
    assert [leak["place"] for leak in whole["leaks"]] == [leak["place"] for leak in summary["leaks"]]


def test_a_report_of_a_run_that_goes_on_is_what_there_is(msmemscope, steered, out):
    program = steered()
    truth = program.do(["churn", 500, 1])
    msmemscope("report", program.results, "-o", out / "report.html", output=False).check()
    summaries = [answer for key, answer in answers(out / "report.html").items() if key.startswith("summary/")]
    assert {pool["device"]: pool["peak_bytes"] for pool in summaries[0]["pools"]} == {device: one["peak"] for device, one in truth.items()}
    program.end()


def test_the_page_grows_says_that_it_is_live_and_moves_nothing(msmemscope, steered, browser):
    program = steered()
    program.do(["step"], ["alloc", 1 << 20])
    for _ in range(5):
        program.do(["step"], ["alloc", 1 << 20], ["alloc", 1 << 20], ["free", -1])
    viewed, page = Viewed(msmemscope, program.results), browser()
    page.open(viewed.address)
    chips = "(document.getElementById('chips')?.textContent ?? '')"
    page.wait(f"{chips}.startsWith('live') && {chips}.includes('peak 7.00 MiB')")
    page.wait("document.getElementById('note').textContent.startsWith('Live: ')")
    program.do(["alloc", 16 << 20])
    page.wait(f"{chips}.includes('peak 22.0 MiB')")
    # A moment and a part of the run are looked at; the run goes on behind them.
    page.click(700, 500)
    page.wait("location.hash.includes('at=')")
    page.wheel(700, 500, -200)
    page.wait("location.hash.includes('from=')")
    before = page.run("location.hash")
    program.do(["alloc", 32 << 20])
    page.wait(f"{chips}.includes('peak 54.0 MiB')")
    assert page.run("location.hash") == before
    program.end()
    page.wait(f"{chips}.includes('ended') && document.getElementById('note').textContent.startsWith('The program has ended')")
    assert page.run("location.hash") == before and page.errors == []


def test_several_processes_are_each_there(msmemscope, scripts, steered, out):
    """Two programs record into one directory; both are followed."""
    one, two = steered(name="one.py"), steered(name="two.py")
    truths = {one.pid: one.do(["alloc", 1 << 20]), two.pid: two.do(["alloc", 2 << 20, 1])}
    viewed = Viewed(msmemscope, scripts.results)
    names = [entry["name"] for entry in viewed.ask("processes")["processes"]]
    assert sorted(names) == sorted(f"process {pid}" for pid in truths)
    for number, name in enumerate(names):
        assert held(viewed, number)[1] == wanted(truths[int(name.split()[1])])
    one.end()
    two.end()


def test_a_device_that_will_be_full_is_told_with_the_sentence_of_top(msmemscope, steered, browser, out):
    """While the program runs, and as long as that was so at its end; the steps are those of `top` and of findings.json."""
    (out / "share").mkdir()
    program = steered(env={"SIMNPU_HBM": "512M", "SIMNPU_SHARE": str(out / "share")})
    program.do(["alloc", 64 << 20])
    viewed, page = Viewed(msmemscope, program.results), browser()
    for _ in range(9):
        program.do(["step"], ["alloc", 4 << 20])
    assert viewed.ask("summary", now=1).get("forecasts", []) == []
    for _ in range(12):
        program.do(["step"], ["alloc", 4 << 20])
    summary = {}
    while not summary.get("forecasts"):
        summary = viewed.ask("summary", now=1)
    [top] = json.loads(msmemscope("top", program.results, "--once", "--json", output=False).check().stdout)["processes"]
    [told], [shown] = summary["forecasts"], top["forecasts"]
    assert (told["sentence"], told["full_step_low"], told["full_step_high"]) == (shown["sentence"], shown["full_step_low"], shown["full_step_high"])
    assert told["sentence"].startswith(f"{told['title']} at step {told['steps']}") and told["title"] == "NPU 0 will be full"
    page.open(viewed.address)
    page.wait(f"document.getElementById('chips')?.textContent.includes('FULL at step {told['steps']}')")
    page.wait(f"document.getElementById('findings')?.textContent.includes({json.dumps(told['sentence'])})")
    program.end()
    while not summary["complete"]:
        summary = viewed.ask("summary")
    [project] = program.results.glob("msmemscope_*")
    [kept] = json.loads((project / "findings.json").read_text())["processes"][0]["forecasts"]
    assert summary["forecasts"][0]["sentence"] == kept["sentence"]
    assert f"at step {summary['forecasts'][0]['steps']}." in (project / "report.txt").read_text()
    assert page.errors == []
