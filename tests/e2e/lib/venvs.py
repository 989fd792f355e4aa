# SPDX-License-Identifier: Apache-2.0
"""Virtual environments and wheels of ours, for tests of what pip installs. Nothing here reaches a network."""
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PYTHON = "/usr/bin/python3"
FOREIGN = ("PYTHON", "PIP_", "LD_", "MSMEMSCOPE", "ASCEND", "VIRTUAL_ENV")


def environment(**changes):
    """The tests' environment without what points at another installation; pip asks no index, and writes no cache."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)}
    env.update(PIP_NO_INDEX="1", PIP_NO_CACHE_DIR="1", PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_ROOT_USER_ACTION="ignore")
    for key, value in changes.items():
        if value is None:
            env.pop(key, None)
        else:
            env[key] = str(value)
    return env


def run(*words, check=True, **options):
    options.setdefault("env", environment())
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=600, check=False, **options)
    assert done.returncode == 0 or not check, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


class Environment:
    """A virtual environment. `pip` is that of another one where this has none: it takes two seconds to put it in."""

    def __init__(self, place, pip=None):
        self.place = place
        run(PYTHON, "-m", "venv", *(["--without-pip"] if pip else []), place)
        self.python = place / "bin" / "python"
        self.command = place / "bin" / "msmemscope"
        self.packages = next(place.glob("lib/python3*/site-packages"))
        self.home = self.packages / "msmemscope" / "_home"
        self._pip = [pip.python, "-m", "pip", "--python", self.python] if pip else [self.python, "-m", "pip"]

    def pip(self, *words, **options):
        return run(*self._pip, *words, **options)

    def files(self):
        """What is in it, but for what running Python leaves, and folders: pip leaves empty ones."""
        return {str(path.relative_to(self.place)) for path in self.place.rglob("*") if path.is_file() and "__pycache__" not in path.parts}


def build_wheel(folder, *words):
    """Path of a wheel that tools/build_wheel.py makes."""
    return Path(run(sys.executable, ROOT / "tools" / "build_wheel.py", *words, folder).stdout.splitlines()[-1])
