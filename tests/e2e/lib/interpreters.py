# SPDX-License-Identifier: Apache-2.0
"""The Pythons of this machine. What one says about itself is kept in build/ until its file changes: starting all of them takes longer
than collecting all tests."""
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

KEPT = Path(__file__).resolve().parents[3] / "build" / "interpreters.json"
ASK = "import sys, ctypes, json; print(json.dumps([*sys.version_info[:3], sys.executable]))"


def _ask(path):
    try:
        said = subprocess.run([path, "-c", ASK], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return None
    return json.loads(said.stdout) if said.returncode == 0 else None


def interpreters(oldest):
    """{"3.11.2": path} of every Python that has ctypes, from the version `oldest` on; the one that runs the tests comes first."""
    candidates = [sys.executable, "/usr/bin/python3"]
    candidates += [shutil.which(f"python3.{minor}") for minor in range(9, 16)]
    candidates += sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/3.*/bin/python3"))
    try:
        kept = json.loads(KEPT.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        kept = {}
    said = {}
    for path in filter(None, candidates):
        file = Path(path).resolve()
        if file.exists():
            key = f"{path} {file} {file.stat().st_mtime_ns}"
            said[key] = kept[key] if key in kept else _ask(path)
    if said.keys() - kept.keys():
        KEPT.parent.mkdir(exist_ok=True)
        own = KEPT.with_suffix(f".{os.getpid()}")
        own.write_text(json.dumps({**kept, **said}), encoding="utf-8")
        own.replace(KEPT)
    found = {}
    for answer in filter(None, said.values()):
        *version, executable = answer
        if tuple(version[:2]) >= oldest:
            found.setdefault(".".join(map(str, version)), executable)
    return found
