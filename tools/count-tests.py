#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds up what ctest, pytest and the lint runner left as JUnit files in a folder: `N passed, N failed, N skipped`."""
import sys
import xml.etree.ElementTree
from pathlib import Path


def main():
    total = failed = skipped = 0
    for path in sorted(Path(sys.argv[1]).glob("*.xml")):
        for suite in xml.etree.ElementTree.parse(path).getroot().iter("testsuite"):
            total += int(suite.get("tests", 0))
            failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            skipped += int(suite.get("skipped", 0)) + int(suite.get("disabled", 0))
    print(f"{total - failed - skipped} passed, {failed} failed, {skipped} skipped")


if __name__ == "__main__":
    main()
