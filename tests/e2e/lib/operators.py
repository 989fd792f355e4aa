# SPDX-License-Identifier: Apache-2.0
"""Operators and the tensors that they take and give: what a script says of them, and the rows."""
import json


def expected_accesses(run):
    """By thread, the rows that the script says: begin, reads, writes, end of each operator."""
    threads = {}
    for line in map(json.loads, run.stdout.splitlines()):
        rows = threads.setdefault(line["thread"], [])
        rows.append(("ATEN_START", line["name"]))
        rows += [("READ", line["name"], *tensor) for tensor in line["reads"]]
        rows += [("WRITE", line["name"], *tensor) for tensor in line["writes"]]
        rows.append(("ATEN_END", line["name"]))
    return threads


def found_accesses(run):
    threads = {}
    for row in run.rows():
        if row.event == "OP_LAUNCH":
            threads.setdefault(row.tid, []).append((row.type, row.name))
        elif row.event == "ACCESS":
            threads.setdefault(row.tid, []).append(
                (row.type, row.name, row.ptr, row.attr["size"], row.attr["dtype"], row.attr["shape"]))
    return threads
