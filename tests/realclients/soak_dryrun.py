# SPDX-License-Identifier: Apache-2.0
"""All habits of programs/habits.py in a dry run; test_dryrun.py takes a sample."""
import habit_truth


def test_every_habit_is_exact_or_says_what_it_is(client):
    counts = habit_truth.compare(client)
    print(counts)
    assert sum(counts.values()) >= 25
