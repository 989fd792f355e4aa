# SPDX-License-Identifier: Apache-2.0
"""Runs several programs, each in a process of its own, with one import of torch_npu for all: a fork each, before a device is used. Arguments
are words of a program with blanks between them; a line of JSON has the pid of each. Their own assertions are left out, as with -O, which would
compile all of torch again."""
import json
import os
import sys

import torch._dynamo  # the first optimizer brings it, and it takes as long as the rest
import torch_npu  # noqa: F401

for words in sys.argv[1:]:
    program, *arguments = words.split(" ")
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        sys.argv = [program, *arguments]
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), program)
        with open(path, encoding="utf-8") as file:
            code = compile(file.read(), path, "exec", optimize=1)
        sys.modules["__main__"].__dict__["__file__"] = path
        exec(code, sys.modules["__main__"].__dict__)  # pylint: disable=exec-used
        break  # the interpreter of the child ends as that of any program
    if os.waitpid(pid, 0)[1] != 0:
        sys.exit(f"{words} failed")
    print(json.dumps({"program": program, "pid": pid}))
