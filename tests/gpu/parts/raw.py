# SPDX-License-Identifier: Apache-2.0
"""programs on the driver API against their own truth, as on the stand-in driver of tests/fakes"""

from checks import Traced, build, check, differences, exact


def run(place):
    programs = {}

    @check("programs build")
    def _():
        programs["random"] = build(place, "cuda_random")
        programs["steps"] = build(place, "cuda_steps")

    for way in ("proc", "ptsz", "dlsym"):
        @check(f"random, 4 threads, functions found by {way}")
        def _(way=way):
            return exact(Traced(place / f"random-{way}", ["--call-stack=c:20"], [programs["random"], 7, 4, 300], {"WAY": way}))
    for seed in range(6):
        @check(f"random, seed {seed}")
        def _(seed=seed):
            return exact(Traced(place / f"seed-{seed}", [], [programs["random"], seed + 50, seed % 3 + 1, 200]))

    @check("stacks lead to the program")
    def _():
        traced = Traced(place / "stacks", ["--call-stack=c:20"], [programs["random"], 9, 1, 100])
        wanted = [row for row in traced.rows if row.event == "MALLOC" and row.type in ("HAL", "HOST_PINNED")]
        found = [row for row in wanted if any("take" in frame for frame in row.c_stack)]
        if len(found) != len(wanted):
            raise AssertionError(f"{len(found)} of {len(wanted)} stacks reach take(): {wanted[0].c_stack if wanted else ''}")
        return f"{len(found)} stacks"

    @check("launches, names")
    def _():
        traced = Traced(place / "launches", ["--level=kernel"], [programs["steps"], "launches"])
        names = [row.name for row in traced.rows if row.type == "KERNEL_LAUNCH"]
        expected = ["plain_kernel"] * 5 + ["shape::kernel::fill"] * 4 + ["plain_kernel"] * 3
        if names != expected:
            raise AssertionError(f"{len(names)} launches: {names[:4]}")
        return f"{len(names)} launches"

    @check("refused requests")
    def _():
        traced = Traced(place / "refused", ["--analysis=oom"], [programs["steps"], "refused"])
        return exact(traced)

    @check("memory of a context that is reset")
    def _():
        traced = Traced(place / "contexts", [], [programs["steps"], "contexts"])
        return differences(traced)

    @check("a fork before CUDA is used")
    def _():
        return exact(Traced(place / "fork", [], [programs["steps"], "fork"]))
