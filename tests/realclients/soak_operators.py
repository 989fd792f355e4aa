# SPDX-License-Identifier: Apache-2.0
"""PyTorch's whole operator database on the simulated NPU against the CPU, by type, results and gradients. Prints the table of
simnpu/README.md and the lines of simnpu/opapi/not_computed.txt, and fails when these are not what it found.

$SAMPLES and $SEED choose others than the samples that the files were made from; then only what is wrong fails.
"""
import os

import pytest
from database import SAMPLES, SEED, all_pairs, not_computed, problems, reason, run, table

from clients import ROOT


@pytest.fixture(scope="module")
def results(client):
    return run(client, all_pairs(client), int(os.environ.get("SAMPLES", SAMPLES)), int(os.environ.get("SEED", SEED)))


def test_nothing_is_wrong_without_a_word(results):
    print("\n".join(table(results)))
    for one in results:
        if one["outcome"] not in ("right", "none"):
            print(one["outcome"], one["entry"], one["type"], one["why"])
    found = problems(results)
    if "SEED" in os.environ or "SAMPLES" in os.environ:
        found = [line for line in found if ": refused" not in line]
    assert not found, "\n".join(found)


@pytest.mark.skipif("SEED" in os.environ or "SAMPLES" in os.environ, reason="the files are of other samples")
def test_the_list_of_what_is_not_computed_has_nothing_that_is(results):
    refused = {reason(one) for one in results if one["outcome"] in ("refused", "failed")}
    print("\n".join(sorted(refused)))
    assert not_computed() - refused == set(), "remove these from simnpu/opapi/not_computed.txt"


@pytest.mark.skipif("SEED" in os.environ or "SAMPLES" in os.environ, reason="the table is of other samples")
def test_the_table_of_the_readme_is_this_one(results):
    readme = (ROOT / "simnpu" / "README.md").read_text(encoding="utf-8")
    assert "\n".join(table(results)) in readme
