#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The screens that README.md and README.zh.md show are those of real runs.

    readme_screens.py [--write]      DIST, build/dist if not said, is $MSMEMSCOPE_DIST

A screen is a block of code after a line `<!-- screen: NAME -->`. It starts with the command and ends with `[...]` where it is cut. Without
--write, says where it differs from the screen of today; numbers that change from run to run (pids, times, addresses) do not count.
"""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "README.zh.md")
# name: (command as shown, environment, lines that are shown)
SCREENS = {
    "leak": ("msmemscope -- python leaky_train.py", {}, 20),
    "oom": ("msmemscope --call-stack=c -- ./leaky_npu 800", {"SIMNPU_HBM": "201326592"}, 12),
}
BLOCK = re.compile(r"(<!-- screen: (\w+) -->\n```\n)(.*?)(^```$)", re.M | re.S)


def same(text):
    """The text without what changes from run to run.

    >>> same("a.py (pid 17): 257 events in 0.004 s at 0x12005800 in msmemscope_17_20261116170542_cpu")
    'a.py (pid N): N events in N at N in msmemscope_N_cpu'
    >>> same("+1.0 MiB per step, full in about 40,600 steps (about 93 min)")
    '+1.0 MiB per step, full in about 40,600 steps (about N)'
    """
    text = re.sub(r"msmemscope_\d+_\d+", "msmemscope_N", text)
    text = re.sub(r"\bpid \d+", "pid N", text)
    text = re.sub(r"\d+ events?", "N events", text)
    text = re.sub(r"\b\d+(\.\d+)? (ns|us|ms|s|min|h|days?)\b", "N", text)
    text = re.sub(r"on the CPU \([\d.]+ \w+\)", "on the CPU (N)", text)
    return re.sub(r"0x[0-9a-f]+", "N", text)


def screen(name, dist, python):
    """What a person sees: the command, and the tool's own lines up to the given number."""
    command, env, lines = SCREENS[name]
    with tempfile.TemporaryDirectory(prefix="readme-", dir=ROOT / "build") as folder:
        for example in ("examples/leaky_train.py",):
            (Path(folder) / Path(example).name).write_text((ROOT / example).read_text(encoding="utf-8"), encoding="utf-8")
        (Path(folder) / "leaky_npu").symlink_to(dist / "examples" / "leaky_npu")
        npu = {"LD_LIBRARY_PATH": str(dist / "simnpu" / "lib64"), "ASCEND_HOME_PATH": str(dist / "simnpu")} if "npu" in command else {}
        bare = {key: value for key, value in os.environ.items() if key not in ("LD_LIBRARY_PATH", "ASCEND_HOME_PATH", "LD_PRELOAD")}
        path = f"{dist / 'bin'}:{Path(python).parent}:{bare.get('PATH', '/usr/bin:/bin')}"
        run = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=False,
                             env={**bare, **npu, **env, "PATH": path, "PYTHONWARNINGS": "ignore", "COLUMNS": "100"})
        said = run.stderr.replace(f"{os.path.realpath(folder)}/", "").replace(f"{folder}/", "").split("\n")
    start = next((number for number, line in enumerate(said) if "(pid " in line), None)
    if start is None:
        raise SystemExit(f"{command}: no screen:\n{run.stderr}")
    said = said[start:]
    while said and not said[-1]:
        said.pop()
    shown = said[:lines] + (["[...]"] if len(said) > lines else [])
    variables = "".join(f"{key}={value} " for key, value in env.items())
    return f"$ {variables}{command}\n" + "\n".join(shown) + "\n"


def differences(dist, python, write=False):
    """One line for each screen of a page that is not as it is today; with `write` the page is mended."""
    made, found = {}, []
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        names = [match[2] for match in BLOCK.finditer(text)]
        found += [f"{page}: has no screen {name}" for name in SCREENS if name not in names]
        for name in names:
            if name not in made:
                made[name] = screen(name, dist, python)
        old = {match[2]: match[3] for match in BLOCK.finditer(text)}
        changed = [name for name in names if same(old[name]) != same(made[name])]
        found += [f"{page}: the screen {name} is another now; run tools/readme_screens.py --write" for name in changed]
        if write and changed:
            text = BLOCK.sub(lambda match: match[1] + (made[match[2]] if match[2] in changed else match[3]) + match[4], text)
            (ROOT / page).write_text(text, encoding="utf-8")
    return found


def main():
    dist = Path(os.environ.get("MSMEMSCOPE_DIST") or ROOT / "build" / "dist")
    python = ROOT / "build" / "venv" / "bin" / "python"
    write = sys.argv[1:] == ["--write"]
    found = differences(dist, python, write)
    print("\n".join(found) or "as they are today")
    sys.exit(0 if write or not found else 1)


if __name__ == "__main__":
    main()
