# SPDX-License-Identifier: Apache-2.0
"""profiled.py TRUTH SCRIPT: runs SCRIPT under sys.setprofile() and writes to TRUTH what a Python trace of it must contain.

One list per thread, that of the main thread first: [text, start, end] in the order in which functions end; the times are
counts of events, which tell what lies inside what.
"""
import json
import re
import sys
import threading

threads = {}
clock = 0


def name(code):
    return getattr(code, "co_qualname", code.co_name)


def place(frame, line):
    return f"{frame.f_code.co_filename}({line}): {name(frame.f_code)}"


def hook(frame, event, arg):
    global clock
    clock += 1
    opened, ended = threads.setdefault(threading.get_native_id(), ([], []))
    if event == "call":
        opened.append((place(frame, frame.f_code.co_firstlineno), clock))
    elif event == "c_call":
        text = re.sub(r" object at 0x[0-9a-f]+>$", " object>", repr(arg))
        opened.append((place(frame, frame.f_lineno), clock))
        opened.append((text, clock))
    elif event == "return" and opened:
        text, start = opened.pop()
        ended.append([text, start, clock])
    elif event in ("c_return", "c_exception") and len(opened) > 1:
        for _ in range(2):
            text, start = opened.pop()
            ended.append([text, start, clock])


truth, script = sys.argv[1:3]
sys.argv = sys.argv[2:]
with open(script, encoding="utf-8") as file:
    code = compile(file.read(), script, "exec")
names = {"__name__": "__main__", "__file__": script, "__builtins__": __builtins__}
main = threading.get_native_id()
threads[main] = ([], [])
threading.setprofile(hook)
sys.setprofile(hook)
try:
    exec(code, names)
finally:
    sys.setprofile(None)
    threading.setprofile(None)
    lists = [threads.pop(main)[1], *(ended for _, ended in threads.values())]
    with open(truth, "w", encoding="utf-8") as file:
        json.dump(lists, file)
