# SPDX-License-Identifier: Apache-2.0
"""What an editor and a type checker see of the package is what is there at run time: names, parameters, docstrings, version. The
stubs are read as text, the package is asked in an interpreter of its own, without the collector."""
import ast
import json
import re
import subprocess
from pathlib import Path

import pytest

from scripts import PYTHON, python_path

ROOT = Path(__file__).resolve().parents[2]

ASKED = """
import importlib, inspect, json, pkgutil, sys
package = importlib.import_module(sys.argv[1])
def parameters(function):
    return [[p.name, p.kind.name, p.default is not p.empty] for p in inspect.signature(function).parameters.values()]
def described(thing):
    return bool(inspect.getdoc(thing))
def members(module):
    found = {}
    for name, thing in vars(module).items():
        if name.startswith("_") or getattr(thing, "__module__", None) != module.__name__:
            continue
        if inspect.isclass(thing):
            found[name] = {method: parameters(getattr(thing, method)) for method in dir(thing)
                           if method in ("__init__", "__enter__", "__exit__", "__call__") or not method.startswith("_")
                           if inspect.isfunction(getattr(thing, method))}
        elif inspect.isfunction(thing):
            found[name] = parameters(thing)
    return found
missing = sorted(set(package.__all__) - set(dir(package)))  # before anything is used
public = {name: getattr(package, name) for name in package.__all__}
homes = {thing.__module__ for thing in public.values() if callable(thing)} | {thing.__name__ for thing in public.values() if inspect.ismodule(thing)}
print(json.dumps({
    "missing": missing, "all": sorted(package.__all__), "homes": sorted(package._HOMES), "version": package.__version__,
    "modules": sorted(name for name, thing in public.items() if inspect.ismodule(thing)),
    "undescribed": sorted(name for name, thing in public.items() if name != "__version__" and not described(thing)),
    "members": {name: members(sys.modules[name]) for name in homes},
    "config": [package.config.__doc__, parameters(package.config)],
}))
"""


@pytest.fixture(scope="module")
def asked(dist):
    def ask(name):
        run = subprocess.run([PYTHON, "-I", "-c", f"import sys; sys.path[:0] = {python_path(dist).split(':')!r}\n{ASKED}", name],
                             capture_output=True, text=True, timeout=60, check=False)
        assert run.returncode == 0 and run.stderr == "", run.stderr
        return json.loads(run.stdout)
    return ask


def parameters(function):
    """[[name, kind, whether it has a default]...] of a def in a stub, as inspect calls them."""
    args, found = function.args, []
    plain = [*args.posonlyargs, *args.args]
    for place, arg in enumerate(plain):
        found.append([arg.arg, "POSITIONAL_OR_KEYWORD", place >= len(plain) - len(args.defaults)])
    if args.vararg:
        found.append([args.vararg.arg, "VAR_POSITIONAL", False])
    found += [[arg.arg, "KEYWORD_ONLY", default is not None] for arg, default in zip(args.kwonlyargs, args.kw_defaults)]
    if args.kwarg:
        found.append([args.kwarg.arg, "VAR_KEYWORD", False])
    return found


def unannotated(function):
    args = function.args
    every = [*args.posonlyargs, *args.args, *args.kwonlyargs, *filter(None, [args.vararg, args.kwarg])]
    return [arg.arg for arg in every if arg.annotation is None and arg.arg != "self"] + ([] if function.returns else ["return"])


def stub(path, names=None):
    """{name: parameters, or {method: parameters}} of the defs of a file, or of those `names` among them, which must have all their
    types; and what it imports."""
    found, imported = {}, set()
    for node in ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8)).body:
        if names is not None and getattr(node, "name", None) not in names:
            continue
        if isinstance(node, ast.ClassDef):
            methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
            found[node.name] = {item.name: parameters(item) for item in methods}
            assert not [item.name for item in methods if unannotated(item)], (path, node.name)
        elif isinstance(node, ast.FunctionDef):
            found[node.name] = parameters(node)
            assert not unannotated(node), (path, node.name)
        elif isinstance(node, ast.ImportFrom):
            imported |= {alias.asname for alias in node.names}
        elif isinstance(node, ast.AnnAssign):
            imported.add(node.target.id)
    return found, imported


def imports_for_types(path):
    [block] = [node for node in ast.parse(path.read_text(encoding="utf-8")).body
               if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"]
    return {alias.asname for node in block.body for alias in node.names}


def test_the_package_says_that_it_has_types(dist):
    for name in ("msmemscope", "msleaks"):
        assert (dist / "python" / name / "py.typed").read_bytes() == b"", name


@pytest.mark.parametrize("name", ["msmemscope", "msleaks"])
def test_the_stub_names_what_the_package_has(asked, dist, name):
    """A name of the table in __init__.py needs an import for type checkers, and the other way round."""
    package = asked(name)
    imported = imports_for_types(dist / "python" / "msmemscope" / "__init__.py")
    assert sorted(imported) == package["all"] == sorted({*package["homes"], *package["modules"]})
    assert package["undescribed"] == package["missing"] == []


def test_stubs_have_the_parameters_of_the_functions(asked, dist):
    package, compared = asked("msmemscope"), []
    for module, members in package["members"].items():
        path = dist / "python" / "msmemscope" / f"{module.rpartition('.')[2]}.pyi"
        if not path.exists():
            continue
        told, _ = stub(path)
        # What is only for our own code may be left out.
        assert told and set(told) <= set(members), module
        for name, there in told.items():
            if isinstance(there, dict):
                members[name] = {method: members[name][method] for method in there}
            assert there == members[name], (module, name)
            compared.append(f"{path.stem}.{name}")
    assert {"tracer.start", "tracer.stop", "tracer.RecordFunction", "watcher.watch", "watcher.remove",
            "describe.describer"} <= set(compared)


def test_what_has_no_stub_has_its_types_in_the_code(asked, dist):
    """Functions of our own beside it need none."""
    package, found = asked("msmemscope"), set()
    for module in package["members"]:
        path = dist / "python" / "msmemscope" / f"{module.rpartition('.')[2]}.py"
        if not path.with_suffix(".pyi").exists():
            told, _ = stub(path, package["all"])
            found |= set(told)
    assert {"config", "start", "step", "stop", "take_snapshot", "TakeSnapshot"} <= found


def test_config_has_a_parameter_for_each_name_of_its_options(asked, dist):
    options = {}
    exec((dist / "python" / "msmemscope" / "_options.py").read_text(encoding="utf-8"), options)
    names = {*options["CONFIG"], *(alias for alias, name in options["ALIASES"].items() if name in options["CONFIG"])}
    assert names >= {"call-stack", "events", "output", "output-path", "format", "data-format"}
    text, there = asked("msmemscope")["config"]
    assert {name for name, kind, default in there if kind == "KEYWORD_ONLY" and default} == {name.replace("-", "_") for name in names}
    assert [entry for entry in there if entry[1] != "KEYWORD_ONLY"] == [["unknown", "VAR_KEYWORD", False]]
    for name in names:
        described = re.search(rf"^ +{name.replace('-', '_')}: (.+)$", text, re.M)
        assert described and (name in options["ALIASES"] or options["OPTIONS"][name].allowed in described[1]), name


def test_the_version_is_that_of_the_command(asked, msmemscope):
    version = asked("msmemscope")["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert f"msmemscope version {version}-" in msmemscope("--version", output=False).check().stdout
    assert f"VERSION {version} " in (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
