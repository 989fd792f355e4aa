# SPDX-License-Identifier: Apache-2.0
"""python -m msmemscope ...: the command, with the same words. It takes the place of the interpreter, under the same pid. By its older
name, msleaks, it is the command of that name."""
import os
import signal
import sys

from . import _command


def _environment():
    """What the interpreter was started with: it changes the locale for its children, where that is C."""
    try:
        with open("/proc/self/environ", "rb") as file:
            pairs = [pair.split(b"=", 1) for pair in file.read().split(b"\0") if b"=" in pair]
    except OSError:
        return os.environb
    return {name: value for name, value in pairs} or os.environb


def main():
    try:
        command = _command.find()
    except FileNotFoundError as error:
        sys.exit(f"msmemscope: {error}")
    # The interpreter ignores these, and what it becomes would do so, too.
    for name in ("SIGPIPE", "SIGXFSZ"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    os.execve(command, [__spec__.parent, *sys.argv[1:]], _environment())


if __name__ == "__main__":
    main()
