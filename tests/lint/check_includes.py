# SPDX-License-Identifier: Apache-2.0
"""Who may include whom.

    base  <-  trace, symbols, parquet  <-  dump  <-  replay, import  <-  findings  <-  analysis, advise  <-  sink  <-  store, views  <-  engine  <-  viewer  <-  cli
    base  <-  twin  <-  analysis
    base  <-  options  <-  cli; of it trace knows the words, options.def and words.h
    headers of base and trace that need no .c file, and those words  <-  collector
    simnpu and simcuda stand in for somebody else's software: they include nothing of src.
    Of replay, others see the headers in PUBLIC alone: the state of a replay is its own.

Inside the collector, where "." is its own top folder; any other folder is a vendor's, and vendors do not include one another:

    .  <-  loader, sampler, unwind  <-  interp  <-  record  <-  python, watch  <-  process  <-  torch  <-  ascend, cuda, cpu, ...
                                                                                        torch  <-  got
"""
import re
from pathlib import PurePosixPath

import lint

RANKS = (("base",), ("options", "twin"), ("trace", "symbols", "parquet"), ("dump",), ("replay", "import"), ("findings",), ("analysis", "advise"), ("sink",), ("store", "views"), ("engine",), ("viewer",), ("cli",))
RANK = {folder: rank for rank, folders in enumerate(RANKS) for folder in folders}
FOLDERS = {*RANK, "collector"}
COLLECTOR_RANKS = ((".",), ("loader", "sampler", "unwind"), ("interp",), ("record",), ("python", "watch"), ("process",), ("torch",))
COLLECTOR_RANK = {folder: rank for rank, folders in enumerate(COLLECTOR_RANKS) for folder in folders}
COLLECTOR_BASE = {"base/compiler.h", "base/hash.h", "base/utf8.h", "base/vendors.h", "base/vendors.def", "base/scripts.def"}
WORDS = ("options/options.def", "options/words.h")  # the words of options, which reach the session and the collector

PUBLIC = {"replay": ("replay/replay.h", "replay/facts.h", "replay/figures.h", "replay/ooms.h", "replay/watches.h")}


def includes(text):
    """(line number, name) of each include, quoted or in angle brackets; system headers have no folder of ours."""
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r'\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', line)
        if found and (found[1] or found[2].split("/")[0] in FOLDERS):
            yield number, found[1] or found[2]


def collector_folder(name):
    """The folder of a collector's file, inside the collector."""
    parts = PurePosixPath(name).parts
    return parts[1] if len(parts) > 2 else "."


def collector_arrow(path, name):
    """Why the file `path` of the collector may not include `name` of the collector, or None."""
    own, target = collector_folder(PurePosixPath(path).relative_to("src")), collector_folder(name)
    above = len(COLLECTOR_RANKS)
    if own != target and COLLECTOR_RANK.get(target, above) >= COLLECTOR_RANK.get(own, above):
        return f"collector/{own} may not use {name}"
    return None


def collector_problem(name, files, seen=()):
    """Why the collector may not include `name`, or None. Follows what `name` includes itself."""
    path = PurePosixPath(name)
    if name in COLLECTOR_BASE or name in WORDS or path.parts[0] == "collector" or name in seen:
        return None
    if path.parts[0] != "trace" or path.suffix not in (".h", ".def"):
        return f"collector may not use {name}"
    if f"src/{path.with_suffix('.c')}" in files:
        return f"collector may not use {name}: it needs {path.with_suffix('.c')}"
    for _, inner in includes(files.get(f"src/{name}", "")):
        problem = collector_problem(inner, files, (*seen, name))
        if problem:
            return f"{problem} (through {name})"
    return None


SIMULATED = ("simnpu", "simcuda")


def problem_of(path, name, files):
    """Why the file `path` may not include `name`, or None."""
    top, *rest = PurePosixPath(path).parts
    target = PurePosixPath(name).parts[0]
    if top in SIMULATED:
        return f"{top} may not use {name} of src" if target in FOLDERS or "src" in name.split("/") else None
    folder = rest[0]
    if folder == "cli" and name == "simcuda/devices.def":  # the words of --device
        return None
    if target == "msmemscope":  # include/msmemscope: headers for everybody
        return None
    if target not in FOLDERS or "/" not in name:
        return f'write it from the root of src, as "{folder}/...", not {name}'
    if folder == "collector":
        return collector_arrow(path, name) if target == folder else collector_problem(name, files)
    if target == "options":
        may_use = folder in ("options", "cli") or (folder == "trace" and name in WORDS)
    else:
        may_use = target == folder or (target in RANK and RANK[target] < RANK[folder] and name in PUBLIC.get(target, (name,)))
    return None if may_use else f"{folder} may not use {name}"


def problems(files):
    """Failures in a {path: text} of source files.

    >>> problems({"src/replay/a.c": '#include "trace/x.h"', "src/trace/x.h": '#include "base/map.h"'})
    []
    >>> problems({"src/trace/x.h": '\\n#include "replay/a.h"'})
    ['src/trace/x.h:2: trace may not use replay/a.h']
    >>> problems({"src/sink/a.c": '#include "replay/replay.h"\\n#include "replay/state.h"'})
    ['src/sink/a.c:2: sink may not use replay/state.h']
    >>> problems({"src/symbols/elf.c": '#include "trace/x.h"'})
    ['src/symbols/elf.c:1: symbols may not use trace/x.h']
    >>> problems({"src/cli/main.c": '#include "collector/life.h"'})
    ['src/cli/main.c:1: cli may not use collector/life.h']
    >>> problems({"src/sink/a.c": '#include "options/options.h"', "src/cli/b.c": '#include "options/options.h"'})
    ['src/sink/a.c:1: sink may not use options/options.h']
    >>> problems({"src/trace/a.h": '#include "options/words.h"', "src/trace/b.h": '#include "options/options.h"'})
    ['src/trace/b.h:1: trace may not use options/options.h']
    >>> problems({"src/base/map.c": '# include "map.h"'})
    ['src/base/map.c:1: write it from the root of src, as "base/...", not map.h']
    >>> problems({"src/other/a.c": ""})
    ['src/other/a.c: the folder other has no place in the order of layers']

    The collector also answers for what its headers include, and may not use what would have to be linked.

    >>> clean = {"src/trace/record.h": '#include "base/compiler.h"', "src/trace/events.def": ""}
    >>> problems({**clean, "src/collector/hot/a.c": '#include "trace/record.h"\\n#include "trace/events.def"'})
    []
    >>> problems({**clean, "src/collector/a.c": '#include "base/status.h"'})
    ['src/collector/a.c:1: collector may not use base/status.h']
    >>> problems({"src/trace/record.h": '#include "base/map.h"', "src/collector/a.c": '#include "trace/record.h"'})
    ['src/collector/a.c:1: collector may not use base/map.h (through trace/record.h)']
    >>> problems({"src/trace/reader.h": "", "src/trace/reader.c": "", "src/collector/a.c": '#include "trace/reader.h"'})
    ['src/collector/a.c:1: collector may not use trace/reader.h: it needs trace/reader.c']

    Inside the collector a folder uses those below it, and the folder of a vendor no other vendor's.

    >>> problems({"src/collector/record/a.c": '#include "collector/loader/b.h"\\n#include "collector/lock.h"'})
    []
    >>> problems({"src/collector/record/a.c": '#include "collector/process/b.h"'})
    ['src/collector/record/a.c:1: collector/record may not use collector/process/b.h']
    >>> problems({"src/collector/a.h": '#include "collector/ascend/b.h"'})
    ['src/collector/a.h:1: collector/. may not use collector/ascend/b.h']
    >>> problems({"src/collector/cuda/a.c": '#include "collector/torch/b.h"\\n#include "collector/ascend/b.h"'})
    ['src/collector/cuda/a.c:2: collector/cuda may not use collector/ascend/b.h']

    >>> problems({"simnpu/hal.c": '#include "acl/acl.h"\\n#include <base/map.h>\\n#include "../src/base/map.h"'})
    ['simnpu/hal.c:2: simnpu may not use base/map.h of src', 'simnpu/hal.c:3: simnpu may not use ../src/base/map.h of src']
    """
    failures = []
    for path, text in sorted(files.items()):
        folder = path.split("/")[1]
        if path.startswith("src/") and folder not in FOLDERS:
            failures.append(f"{path}: the folder {folder} has no place in the order of layers")
            continue
        for number, name in includes(text):
            problem = problem_of(path, name, files)
            if problem:
                failures.append(f"{path}:{number}: {problem}")
    return failures


def check(_dists):
    names = [name for name in lint.tree_files() if re.match(r"(src|simnpu|simcuda)/.*\.(c|h|def)$", name)]
    files = {name: lint.read(name) for name in names}
    return len(files), problems(files)


if __name__ == "__main__":
    lint.main(check)
