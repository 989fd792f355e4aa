# SPDX-License-Identifier: Apache-2.0
"""The collector exports the names of its tables of hooks and of the API, the word that marks it as the one collector, no others.

A name too many could take the place of a function of the traced program; a name missing is a hook that never fires.
"""
import re

import lint

COLLECTOR = "lib64/libascend_kernel_hook.so"
HOOKS = "src/collector/*/hooks.def"
API = "src/collector/api.def"
OWN = {"mscope_collector_v1"}


def hook_names(text):
    """Second argument of each HOOK(library, name, ...) in the table.

    >>> sorted(hook_names('''/* HOOK(library, not_me, ...) */
    ... HOOK(hal, halMemAlloc, int, (void **p, uint64_t n, uint64_t flags), alloc)
    ... HOOK(hal,
    ...      halMemFree, int, (void *p), free)
    ... // HOOK(hal, nor_me, int, (void))'''))
    ['halMemAlloc', 'halMemFree']
    """
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
    return set(re.findall(r"^\s*HOOK\(\s*[^,]+,\s*(\w+)\s*,", text, re.M))


def api_names(text):
    """First argument of each API(name, ...) in the table.

    >>> api_names("/* API(no) */" + chr(10) + 'API(mscope_recording, uint32_t, (void), "now")')
    {'mscope_recording'}
    """
    return set(re.findall(r"^API\((\w+),", text, re.M))


def exported(symbols):
    """Defined names in the output of `readelf --dyn-syms`.

    >>> exported('''   Num:    Value          Size Type    Bind   Vis      Ndx Name
    ...      1: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND read@GLIBC_2.2.5 (2)
    ...      2: 0000000000001139    22 FUNC    GLOBAL DEFAULT   12 halMemAlloc
    ...      3: 0000000000001150     8 OBJECT  GLOBAL DEFAULT   13 versioned@@V1
    ...      4: 0000000000000000     0 OBJECT  GLOBAL DEFAULT  ABS V1
    ...      5: 0000000000001160     8 FUNC    WEAK   DEFAULT   12 weak''') == {"halMemAlloc", "versioned", "V1", "weak"}
    True
    """
    found = re.findall(r"^ *\d+: \w+ +\w+ +\w+ +(?:GLOBAL|WEAK|UNIQUE) +\w+ +(?:\[.*?\] +)?(\w+) +([^\s@]+)", symbols, re.M)
    return {name for section, name in found if section != "UND"}


def problems(hooks, names, api=""):
    """Failures given the texts of the tables and the exported names.

    >>> table = "HOOK(hal, halMemAlloc, int, (void))"
    >>> problems(table, {"halMemAlloc", "mscope_collector_v1"})
    []
    >>> problems(table, {"mscope_collector_v1", "helper"})
    ['exports helper, which is no hook', 'does not export the hook halMemAlloc']
    >>> problems(table, {"halMemAlloc", "mscope_collector_v1"}, "API(mscope_x, int, (void))")
    ['does not export mscope_x']
    >>> problems("", {"mscope_collector_v1"})
    ['src/collector/*/hooks.def name no hook']
    """
    hooked = hook_names(hooks)
    if not hooked:
        return [f"{HOOKS} name no hook"]
    own = OWN | api_names(api)
    failures = [f"exports {name}, which is no hook" for name in sorted(names - hooked - own)]
    failures += [f"does not export the hook {name}" for name in sorted(hooked - names)]
    failures += [f"does not export {name}" for name in sorted(own - names)]
    return failures


def check(dists):
    hooks = "\n".join(path.read_text(encoding="utf-8") for path in sorted(lint.ROOT.glob(HOOKS)))
    counted, failures = 0, []
    for dist in dists:
        path = dist / COLLECTOR
        if not path.is_file():
            failures.append(f"{path}: no such file")
            continue
        names = exported(lint.readelf("--dyn-syms", path))
        counted += len(names)
        api = (lint.ROOT / API).read_text(encoding="utf-8")
        failures += [f"{path}: {line}" for line in problems(hooks, names, api)]
    return counted, failures


if __name__ == "__main__":
    lint.main(check)
