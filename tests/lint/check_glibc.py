# SPDX-License-Identifier: Apache-2.0
"""The collector loads into any process on a machine with glibc 2.17 or later, whatever that process has loaded itself.

It is preloaded, so one name that the machine's libc does not have stops every program there from starting. Four rules:
- No symbol version above GLIBC_2.17.
- libc.so.6 is the only library it needs.
- It takes no name from libc that glibc 2.17 had elsewhere: dlsym, pthread_create and others moved into libc.so.6 with 2.32 to
  2.34, where their old versions remain for old programs. Asking for such an old version links here and finds nothing on an
  old machine whose program did not happen to load libdl or libpthread. A weak reference is fine, the code asks before use.
- Its thread-local storage, taken from the small surplus that all late libraries share, has at most 16 bytes.

Everything else of the tree that a loader reads (simulated NPU, sampler, examples) keeps the first rule, and needs the library that had
a name before the name moved. libunwind is that of Debian.
"""
import re
import subprocess

import lint
from check_exports import COLLECTOR

NEWEST = (2, 17)
TLS_BYTES = 16
MOVED_SINCE = (2, 30)


def number(version):
    """GLIBC_2.17 as (2, 17); None for names that are no glibc release.

    >>> number("GLIBC_2.2.5"), number("GLIBC_2.34"), number("GLIBC_PRIVATE"), number("GLIBC_ABI_DT_RELR")
    ((2, 2, 5), (2, 34), None, None)
    """
    found = re.fullmatch(r"GLIBC_(\d+(?:\.\d+)*)", version)
    return tuple(map(int, found[1].split("."))) if found else None


def undefined(symbols):
    """(bind, name, version) of each undefined name in the output of `readelf --dyn-syms`.

    >>> undefined("     1: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND read@GLIBC_2.2.5 (2)")
    [('GLOBAL', 'read', 'GLIBC_2.2.5')]
    """
    return re.findall(r"^ *\d+: \w+ +\w+ +\w+ +(GLOBAL|WEAK) +\w+ +(?:\[.*?\] +)?UND ([^\s@]+)@{1,2}(\S+)", symbols, re.M)


def moved_names(libc_symbols):
    """Names that libc.so.6 got from the libraries beside it: their default version is young, an older one is there too.

    >>> sorted(moved_names('''
    ...  10: 0000000000084420   20 FUNC    GLOBAL DEFAULT   16 dlsym@@GLIBC_2.34
    ...  11: 0000000000084420   20 FUNC    GLOBAL DEFAULT   16 dlsym@GLIBC_2.2.5
    ...  12: 0000000000084420   20 FUNC    GLOBAL DEFAULT   16 stat@@GLIBC_2.33
    ...  13: 0000000000084420   20 FUNC    GLOBAL DEFAULT   16 fcntl@@GLIBC_2.28
    ...  14: 0000000000084420   20 FUNC    GLOBAL DEFAULT   16 fcntl@GLIBC_2.2.5'''))
    ['dlsym']
    """
    found = re.findall(r" (\w+)(@{1,2})(GLIBC_[\d.]+)", libc_symbols)
    old = {name for name, at, version in found if at == "@" and number(version) <= NEWEST}
    return {name for name, at, version in found if at == "@@" and number(version) >= MOVED_SINCE and name in old}


def too_new(versions, names):
    """Failures about versions (readelf -V) above the floor; `names` as undefined() has them."""
    failures = []
    for version in dict.fromkeys(re.findall(r"Name: (\S+) +Flags:", versions)):
        if number(version) is None or number(version) > NEWEST:
            users = ", ".join(name for _, name, wanted in names if wanted == version) or "no single name"
            failures.append(f"asks for version {version}: {users}")
    return failures


def former_home(name):
    """The library that had a name which is in libc.so.6 now.

    >>> former_home("dlsym"), former_home("pthread_create"), former_home("shm_open")
    ('libdl.so.2', 'libpthread.so.0', 'librt.so.1')
    """
    if name.startswith("dl"):
        return "libdl.so.2"
    return "librt.so.1" if re.match(r"shm_|timer_|mq_|aio_|lio_", name) else "libpthread.so.0"


def floor_problems(dynamic, versions, symbols, moved):
    """Failures of a file that only has to load with glibc 2.17, given what readelf says (-d, -V, --dyn-syms).

    >>> versions = "Version needs section '.gnu.version_r'\\n  0x0010:   Name: GLIBC_2.2.5  Flags: none  Version: 2"
    >>> symbols = "  2: 0000000000000000     0 FUNC    GLOBAL  DEFAULT  UND dlsym@GLIBC_2.2.5 (2)"
    >>> floor_problems(" 0x1 (NEEDED)  Shared library: [libdl.so.2]", versions, symbols, {"dlsym"})
    []
    >>> floor_problems("", versions, symbols, {"dlsym"})
    ['takes dlsym and does not need libdl.so.2, where glibc 2.17 has it']
    >>> floor_problems("", versions.replace("2.2.5", "2.34"), symbols.replace("2.2.5", "2.34"), {"dlsym"})
    ['asks for version GLIBC_2.34: dlsym']
    """
    names, libraries = undefined(symbols), lint.needed(dynamic)
    failures = too_new(versions, names)
    for bind, name, version in names:
        if name in moved and bind != "WEAK" and number(version) and number(version) <= NEWEST and former_home(name) not in libraries:
            failures.append(f"takes {name} and does not need {former_home(name)}, where glibc 2.17 has it")
    return failures


def loaded_files(dist):
    """What a loader reads of a staged tree, but for the collector, its names and libunwind."""
    for path in sorted(dist.rglob("*")):
        if path.is_file() and not path.is_symlink() and path != dist / COLLECTOR and not path.name.startswith("libunwind"):
            with open(path, "rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def problems(dynamic, versions, symbols, segments, moved):
    """Failures given what readelf says (-d, -V, --dyn-syms, -l) and the names that were not in libc 2.17's libc.so.6.

    >>> dynamic = " 0x1 (NEEDED)  Shared library: [libc.so.6]"
    >>> versions = "Version needs section '.gnu.version_r'\\n  0x0010:   Name: GLIBC_2.2.5  Flags: none  Version: 2"
    >>> symbols = "  1: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND read@GLIBC_2.2.5 (2)"
    >>> segments = "  TLS            0x002df0 0x0000000000003df0 0x0000000000003df0 0x000000 0x000010 R   0x8"
    >>> problems(dynamic, versions, symbols, segments, {"dlsym"})
    []
    >>> problems(dynamic + "\\n 0x1 (NEEDED)  Shared library: [libdl.so.2]", versions, symbols, segments, set())
    ['needs libdl.so.2']
    >>> problems(dynamic, versions + "\\n  0x0020:   Name: GLIBC_2.34  Flags: none  Version: 3",
    ...     symbols + "\\n  2: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND dlsym@GLIBC_2.34 (3)", segments, {"dlsym"})
    ['asks for version GLIBC_2.34: dlsym']
    >>> problems(dynamic, versions + "\\n  0x0020:   Name: GLIBC_ABI_DT_RELR  Flags: none  Version: 3", symbols, segments, set())
    ['asks for version GLIBC_ABI_DT_RELR: no single name']
    >>> old = symbols + "\\n  2: 0000000000000000     0 FUNC    {}  DEFAULT  UND dlsym@GLIBC_2.2.5 (2)"
    >>> problems(dynamic, versions, old.format("GLOBAL"), segments, {"dlsym"})
    ['dlsym was not in libc.so.6 of glibc 2.17; make the reference weak or do without']
    >>> problems(dynamic, versions, old.format("WEAK"), segments, {"dlsym"})
    []
    >>> problems(dynamic, versions, symbols, segments.replace("0x000010", "0x000018"), set())
    ['thread-local storage of 24 bytes, at most 16']
    >>> problems("", versions, symbols, "", set())
    ['does not need libc.so.6: not what we meant to look at']
    """
    libraries = lint.needed(dynamic)
    failures = [f"needs {name}" for name in libraries if name != "libc.so.6"]
    if "libc.so.6" not in libraries:
        failures.append("does not need libc.so.6: not what we meant to look at")

    names = undefined(symbols)
    failures += too_new(versions, names)
    for bind, name, version in names:
        if name in moved and bind != "WEAK" and number(version) and number(version) <= NEWEST:
            failures.append(f"{name} was not in libc.so.6 of glibc 2.17; make the reference weak or do without")

    for size in re.findall(r"^ +TLS +\S+ +\S+ +\S+ +\S+ +(0x[0-9a-f]+)", segments, re.M):
        if int(size, 16) > TLS_BYTES:
            failures.append(f"thread-local storage of {int(size, 16)} bytes, at most {TLS_BYTES}")
    return failures


def libc_of_this_machine():
    """Our own libc. Names moved on all machines alike, so it also answers for the cross build."""
    path = subprocess.run(["gcc", "-print-file-name=libc.so.6"], check=True, capture_output=True, text=True).stdout
    return path.strip()


def check(dists):
    moved = moved_names(lint.readelf("--dyn-syms", libc_of_this_machine()))
    counted, failures = 0, []
    if not {"dlsym", "pthread_create"} <= moved:
        failures.append("this libc does not tell which names moved; glibc 2.34 or later is needed")
    for dist in dists:
        path = dist / COLLECTOR
        if not path.is_file():
            failures.append(f"{path}: no such file")
            continue
        what = [lint.readelf(option, path) for option in ("-d", "-V", "--dyn-syms", "-l")]
        counted += len(undefined(what[2]))
        failures += [f"{path}: {line}" for line in problems(*what, moved)]
        for path in loaded_files(dist):
            what = [lint.readelf(option, path) for option in ("-d", "-V", "--dyn-syms")]
            counted += len(undefined(what[2]))
            failures += [f"{path}: {line}" for line in floor_problems(*what, moved)]
    return counted, failures


if __name__ == "__main__":
    lint.main(check)
