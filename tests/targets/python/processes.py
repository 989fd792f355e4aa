# SPDX-License-Identifier: Apache-2.0
"""processes.py METHOD: a pool and a process of its own, started by METHOD of multiprocessing, while a thread of the parent goes on
allocating. Every process takes device memory in functions of its own, each block with a size of its own; the parent prints for
every process {"pid": ..., "works": how often it called work(), "line": where that begins, "stacks": {size: [[file, line, function],
...]}}, frames innermost first as the interpreter tells them."""
import ctypes
import json
import multiprocessing
import os
import sys
import threading

FLAG = 33 << 56 | 0x904400  # what aclrtMalloc passes for normal pages

ctypes.CDLL("libascend_hal.so", mode=ctypes.RTLD_GLOBAL)
hal = ctypes.CDLL(None)
hal.halMemAlloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_ulonglong, ctypes.c_ulonglong]

stopping = threading.Event()


def frames(frame):
    found = []
    while frame is not None:
        code = frame.f_code
        found.append([code.co_filename, frame.f_lineno, getattr(code, "co_qualname", code.co_name)])
        frame = frame.f_back
    return found


def work(size):
    address, told = ctypes.c_void_p(), {}
    told[size], result = frames(sys._getframe()), hal.halMemAlloc(ctypes.byref(address), size, FLAG)
    assert result == 0
    return os.getpid(), told


def alone(queue):
    queue.put([(lambda: work(4096 * 100))(), [work(4096 * 101) for _ in range(1)][0]])


def go_on(done):
    at = 1000
    while not stopping.wait(0.001):
        done.append(work(4096 * at))
        at += 1


def main(method):
    context = multiprocessing.get_context(method)
    done = []
    thread = threading.Thread(target=go_on, args=(done,))
    thread.start()
    with context.Pool(2) as pool:
        found = pool.map(work, [4096 * i for i in range(1, 21)], chunksize=1)
    queue = context.Queue()
    process = context.Process(target=alone, args=(queue,))
    process.start()
    found += queue.get()
    process.join()
    stopping.set()
    thread.join()
    assert process.exitcode == 0
    processes = {}
    for pid, told in found + done:
        processes.setdefault(pid, []).append(told)
    for pid, all_told in processes.items():
        print(json.dumps({"pid": pid, "works": len(all_told), "line": work.__code__.co_firstlineno,
                          "stacks": {size: stack for told in all_told for size, stack in told.items()}}))


if __name__ == "__main__":
    main(sys.argv[1])
