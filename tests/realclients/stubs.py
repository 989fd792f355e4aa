# SPDX-License-Identifier: Apache-2.0
"""Libraries for a client that wants more of the Ascend software than the simulated NPU has: every library that it names and that is
nowhere gets an empty one, and every function that is nowhere a stub, which says its name on stderr once and returns 0.

For a framework that links the graph compiler and does not call it, only.
"""
import platform
import re
import subprocess
from pathlib import Path

HEAD = """#include <stdio.h>
#define STUB(number, name) \\
	__attribute__((visibility("default"))) void *stub##number(void) __asm__(name); \\
	void *stub##number(void) \\
	{ \\
		static int said; \\
		if (!__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED)) \\
			(void)fprintf(stderr, "not simulated: %s\\n", name); \\
		return NULL; \\
	}
"""

# Called while libraries are loaded, by code of headers that uses what they return: the table of error codes of the graph engine.
OBJECTS = {"_ZN2ge13StatusFactory8InstanceEv": "std::map<unsigned, std::string>"}
OBJECT_HEAD = "#include <map>\n#include <string>\n"
OBJECT = """extern "C" __attribute__((visibility("default"))) void *object{0}() __asm__("{1}");
void *object{0}()
{{
	static {2} object;
	return &object;
}}
"""


def _symbols(option, path):
    done = subprocess.run(["nm", "-D", option, path], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return {(line.split()[-2], line.split()[-1].split("@")[0]) for line in done.stdout.splitlines()}


def _needed(path):
    done = subprocess.run(["readelf", "-d", path], check=True, stdout=subprocess.PIPE, text=True)
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", done.stdout))


def _system():
    """Every library of this machine that the loader knows, by name."""
    done = subprocess.run(["/sbin/ldconfig", "-p"], check=True, stdout=subprocess.PIPE, text=True)
    ours = {"x86_64": "x86-64", "aarch64": "AArch64"}[platform.machine()]
    return {name: Path(path) for name, path in re.findall(rf"^\s(\S+) \(libc6,{ours}.*\) => (\S+)$", done.stdout, re.M)}


def build(folder, clients, libraries):
    """Makes the libraries in the folder. `clients` are the files whose wishes are met, `libraries` those that are there beside the
    system's. Returns the names of the functions."""
    folder.mkdir(parents=True)
    system = _system()
    have = {path.name for path in (*clients, *libraries)} | set(system)
    wanted = set().union(*map(_needed, clients))
    defined = {name for path in (*clients, *libraries, *(system[name] for name in wanted & set(system)))
               for _, name in _symbols("--defined-only", path)}
    functions = sorted({name for path in clients for kind, name in _symbols("--undefined-only", path)
                        if kind == "U" and name not in defined and not name.startswith(("Py", "_Py", "_ZTI"))})
    lines = [f'STUB({number}, "{name}")' for number, name in enumerate(functions) if name not in OBJECTS]
    source = folder / "stubs.c"
    source.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    objects = folder / "objects.cpp"
    objects.write_text(OBJECT_HEAD + "".join(OBJECT.format(number, name, OBJECTS[name]) for number, name in enumerate(functions)
                                             if name in OBJECTS), encoding="utf-8")
    compiler = ["cc", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-L", folder, "-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed"]
    subprocess.run([*compiler, source, objects, "-lstdc++", "-Wl,-soname,libnot_simulated.so", "-o", folder / "libnot_simulated.so"], check=True)
    for name in sorted(wanted - have):
        subprocess.run([*compiler, "-xc", "/dev/null", f"-Wl,-soname,{name}", "-o", folder / name, "-lnot_simulated"], check=True)
    return functions
