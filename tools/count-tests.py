#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds up what ctest, pytest and the lint runner left as JUnit files in a folder: `N passed, N failed, N skipped`. The file `slowest` there
gets the tests that took most CPU time and the sums by file; what pytest ran says so itself (tests/e2e/lib/costs.py). Tests that the file
`unstable` there lists have failed and then passed (tools/common.sh): they count as passed."""
import sys
import xml.etree.ElementTree
from collections import Counter
from pathlib import Path

SLOWEST = 20


def cpu_seconds(case):
    found = case.find("properties/property[@name='cpu_s']")
    return 0.0 if found is None else float(found.get("value"))


def main():
    folder = Path(sys.argv[1])
    total = failed = skipped = 0
    tests, files = Counter(), Counter()
    for path in sorted(folder.glob("*.xml")):
        root = xml.etree.ElementTree.parse(path).getroot()
        for suite in root.iter("testsuite"):
            total += int(suite.get("tests", 0))
            failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            skipped += int(suite.get("skipped", 0)) + int(suite.get("disabled", 0))
        for case in root.iter("testcase"):
            seconds = cpu_seconds(case)
            tests[f"{case.get('classname')}::{case.get('name')}"] += seconds
            files[case.get("classname")] += seconds
    if (folder / "unstable").exists():
        failed -= len((folder / "unstable").read_text(encoding="utf-8").splitlines())
    with open(folder / "slowest", "w", encoding="utf-8") as out:
        for title, found, count in (("tests", tests, SLOWEST), ("files", files, None)):
            print(f"CPU seconds of {title}, {sum(found.values()):.0f} in all:", file=out)
            for name, seconds in found.most_common(count):
                print(f"{seconds:8.2f}  {name}", file=out)
    print(f"{total - failed - skipped} passed, {failed} failed, {skipped} skipped")


if __name__ == "__main__":
    main()
