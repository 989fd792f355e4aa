# SPDX-License-Identifier: Apache-2.0
"""Programs about which forms of one run once disagreed, each compared in every form (same.py), with the truth that the program knows."""
import pytest

import same

KEPT = """
import npu
kept = []
"""

# ---- what is freed after the last stop() ----

FREED_AFTER_STOP = KEPT + """
npu.start()
for _ in range(12):
    kept.append(npu.alloc(5000))
    npu.step()
npu.stop()
for block in kept:
    npu.free(block)
"""


@pytest.mark.parametrize("way", ["command", "deferred", "preloaded"])
@pytest.mark.parametrize("form", ["csv", "db"])
def test_what_is_freed_after_the_last_stop_leaks_in_every_form(scripts, msmemscope, way, form):
    if way == "preloaded":
        text = FREED_AFTER_STOP.replace("npu.start()", f"import msmemscope, os\nmsmemscope.config(data_format={form!r}, output=os.environ['OUT'])\n"
                                                       "npu.start()")
        run = scripts.preloaded(text)
    else:
        run = scripts.command(FREED_AFTER_STOP, f"--format={form}", "--fail-on=leak",
                              *(["--collect-mode=deferred"] if way == "deferred" else []))
        assert run.returncode == 4, str(run)
    [place] = [place for place in msmemscope.info(run.project())["places"] if place["verdict"] == "leak"]
    assert (place["blocks"], place["bytes"], place["bytes_per_step"]) == (12, 60000, 5000)
    same.check(run, msmemscope)


# ---- labels ----

LABELLED = KEPT + """
import msmemscope.describe as describe
for _ in range(12):
    with describe.describer(owner={label!r}):
        kept.append(npu.alloc(1 << 20))
    npu.step()
"""


@pytest.mark.parametrize("label", ["my_optimizer_state_log", "weight_cache", "cache"])
def test_a_label_does_not_hide_a_leak(scripts, msmemscope, label):
    run = scripts.command(LABELLED.format(label=label), "--fail-on=leak", "--analysis=leaks,decompose")
    assert run.returncode == 4, str(run)
    same.check(run, msmemscope)
