# SPDX-License-Identifier: Apache-2.0
"""programs that run out of a limit of PyTorch's pool for a reason that they know: the verdict names it, and the line"""
import sys
from concurrent.futures import ThreadPoolExecutor

from checks import PROGRAMS, check
from oom_truth import judge, trace

TOGETHER = 4
CASES = (("growth", 1), ("growth", 2, "uncaught"), ("growth", 5), ("spike", 1, "uncaught"), ("spike", 2), ("spike", 4),
         ("fragmentation", 1), ("fragmentation", 2, "uncaught"), ("fragmentation", 5), ("full", 1))


def split(place):
    # Large segments are not cut up then: if memory runs out at all, the request is larger than all that there is.
    said, verdicts, text = trace(place / "split", [sys.executable, PROGRAMS / "oom.py", "fragmentation", 1],
                                 {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"})
    return judge("fragmentation" if said["unused"] * 10 > said["limit"] else "spike", said, verdicts, text)


def run(place):
    with ThreadPoolExecutor(TOGETHER) as pool:
        jobs = {case: pool.submit(lambda cause, *more: judge(cause, *trace(place / f"{cause}-{more[0]}",
                                                                          [sys.executable, PROGRAMS / "oom.py", cause, *more])), *case)
                for case in CASES}
        cut = pool.submit(split, place)
    for (cause, seed, *more), job in jobs.items():
        check(f"{cause}, seed {seed}{', not caught' if more else ''}")(job.result)
    check("fragmentation, max_split_size_mb:64")(cut.result)
