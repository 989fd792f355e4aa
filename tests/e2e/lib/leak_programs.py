# SPDX-License-Identifier: Apache-2.0
"""What a summary says about a program of tests/gpu/programs/leaks.py, which says itself what leaks. Without pytest, since tests/gpu runs
where there is none."""


def line_of(place):
    """The innermost line of the program itself; None: it is not on the stack."""
    return next((frame["line"] for frame in place["frames"] if frame.get("file", "").endswith("leaks.py") and "line" in frame), None)


def mistakes(said, process):
    """Things that leak and are not called so; places that are called leaks and are none."""
    leaks = [place for place in process["places"] if place["verdict"] == "leak"]
    lines = {line_of(place) for place in leaks}
    missed = [thing["name"] for thing in said["things"] if thing["leaks"] and not lines & set(thing["lines"])]
    true_lines = {line for thing in said["things"] if thing["leaks"] for line in thing["lines"]}
    names = {line: thing["name"] for thing in said["things"] for line in thing["lines"]}
    false = [f"{names.get(line_of(place), 'the training')} at {line_of(place)} ({place['pool']}): {place.get('sentence', '')}"
             for place in leaks if line_of(place) not in true_lines]
    return missed, false
