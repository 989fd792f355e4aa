#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the checks of this folder, each after its own doctests: a check that cannot fail proves nothing.

    run.py [--junit FILE] source            what the tree itself must satisfy
    run.py [--junit FILE] built DIST...     what was built and staged, for one or more machines
"""
import argparse
import doctest
import importlib
import sys
from pathlib import Path

CHECKS = {
    "source": ["includes", "cycles", "paths", "format", "features", "docs", "manual", "tests", "size", "members", "names", "words"],
    "built": ["exports", "glibc", "static"],
}


def run(name, dists):
    """How many things the check looked at, and its failures, those of its own doctests first."""
    module = importlib.import_module(f"check_{name}")
    own = doctest.testmod(module)
    if own.attempted == 0:
        return 0, [f"check_{name}.py: has no doctest that shows it can fail"]
    if own.failed:
        return 0, [f"check_{name}.py: {own.failed} of its own doctests failed"]
    counted, failures = module.check(dists)
    if counted == 0 and not failures:
        failures = [f"check_{name}.py: found nothing to look at"]
    return counted, failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--junit", type=Path, help="write the counts here, as test runners do")
    parser.add_argument("kind", choices=CHECKS)
    parser.add_argument("dists", nargs="*", type=Path, metavar="DIST")
    arguments = parser.parse_args()
    if (arguments.kind == "built") != bool(arguments.dists):
        parser.error("built needs staged trees, source takes none")

    failed = 0
    for name in CHECKS[arguments.kind]:
        counted, failures = run(name, arguments.dists)
        for line in failures:
            print(line)
        print(f"{'FAILED' if failures else 'ok':6} {name} ({counted} checked)", flush=True)
        failed += bool(failures)
    if arguments.junit:
        total = len(CHECKS[arguments.kind])
        arguments.junit.write_text(f'<testsuite name="lint" tests="{total}" failures="{failed}" skipped="0"/>\n')
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
