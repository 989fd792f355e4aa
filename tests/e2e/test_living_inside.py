# SPDX-License-Identifier: Apache-2.0
"""Living inside somebody else's process: one test or more for each trap that the collector has to avoid.

Two traps are tested elsewhere: that the compiler must not assume libc calls never re-enter us (unit tests of the
collector), and another profiler that holds the device's interface (with the adapter that has one).
"""
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from truth import check_rows

ROOT = Path(__file__).resolve().parents[2]
WITH_STACKS = ["--call-stack=c:20"]
stacks_or_not = pytest.mark.parametrize("options", [[], WITH_STACKS], ids=["plain", "stacks"])


def readelf(what, path):
    return subprocess.run(["readelf", "-W", what, path], check=True, capture_output=True, text=True).stdout


# Our code triggers our hooks.

@stacks_or_not
def test_our_code_triggers_our_hooks(traced, options):
    """malloc of this program calls the driver; whatever of ours calls malloc may not call itself forever."""
    traced("logging_allocator", driver="bare", options=options).balance("nested", "starting")


# Looking up the real function allocates.

def test_looking_up_the_real_function_allocates(traced, msmemscope, program, targets):
    """A name that the driver lacks is answered like that each time, and looked up once."""
    msmemscope.bare(*program("missing_symbol"), env={"LD_LIBRARY_PATH": targets / "lacking"}).check()
    traced("missing_symbol", driver="lacking").exact()


# Hooks run before our constructor.

@stacks_or_not
def test_hooks_run_before_our_constructor(traced, options):
    """Memory taken by a library's constructor and given back by its destructor is recorded as any other."""
    traced("ctor", options=options).exact()


# TLS that allocates or will not fit.

def test_tls_leaves_room_for_others(traced, targets):
    """A library with 1 KiB of initial-exec TLS can still be loaded late."""
    traced("late_load", targets / "libtls_greedy.so").exact()


def test_tls_fits_when_loaded_late(msmemscope, program, collector, targets):
    """The collector itself can be loaded late, after and before a library that takes nearly all of the room."""
    greedy = targets / "libtls_greedy.so"
    msmemscope.bare(*program("late_load", collector)).check()
    msmemscope.bare(*program("late_load", greedy, collector)).check()
    msmemscope.bare(*program("late_load", collector, greedy)).check()


def test_tls_is_16_bytes(collector):
    [segment] = re.findall(r"^\s*TLS\s+(.*)$", readelf("-l", collector), re.MULTILINE)
    assert int(segment.split()[4], 16) <= 16, segment


# Address reused by another thread before we wrote.

@pytest.mark.parametrize("threads", [2, 16])
def test_address_reused_by_another_thread_before_we_wrote(traced, threads):
    traced("handoff", threads, 10000, driver="bare", env={"BARE_SLOTS": 1}).exact()


# Frees after thread teardown.

@stacks_or_not
def test_frees_after_thread_teardown(traced, options):
    """Destructors of thread-local objects take and give back memory in every round there is."""
    traced("tls_dtor", options=options).exact()


def test_ten_thousand_short_threads_cost_no_more_than_ten(traced):
    """What is kept per thread goes on to the next one, in memory and on disk."""
    result = traced("churn", 10000).exact()
    growth = int(re.search(r"^growth_kib (\d+)$", result.run.stderr, re.MULTILINE)[1])
    assert growth < 128 << 10, "KiB of address space, the program's own logs take 40 MiB"
    kept = sum(path.stat().st_size for path in result.run.project().path.rglob("trace.msc"))
    assert 0 < kept < 4 << 20


# fork, _Fork, raw clone; vfork, posix_spawn, exec.

@stacks_or_not
@pytest.mark.parametrize("kind", ["fork", "_Fork", "clone", "vfork", "spawn", "nested", "thread"])
def test_fork_and_its_kin(traced, kind, options):
    """Several in a row, so that some come amid a call of another thread."""
    result = traced("fork_kinds", *[kind] * 5, driver="bare", options=options).exact()
    assert len(result.run.projects()) == (11 if kind == "nested" else 6)


@stacks_or_not
@pytest.mark.parametrize("kind", ["fork", "_Fork", "clone"])
def test_fork_amid_the_calls_of_other_threads(traced, kind, options):
    """Locks that another thread held at the fork are held forever in the child, which must not want them."""
    result = traced("fork_kinds", "unlogged", *[kind] * 40, driver="bare", options=options, timeout=30)
    result.run.check()
    children = [(project, process) for project, process in result.pairs() if process.events()[0][1].device == "1"]
    assert len(children) == 40
    for project, process in children:
        check_rows(result.rows(project), process)


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "off"])
def test_a_child_never_finds_the_loader_in_our_hands(msmemscope, program, collector, recorded):
    """A thread of the parent that looks for an original holds a lock of the loader, which the child's exceptions need."""
    words = program("fork_loader", 200)
    run = msmemscope("--", *words) if recorded else msmemscope.bare(*words, env={"LD_PRELOAD": collector})
    assert run.check().stdout == "200 children\n"


def test_a_child_that_calls_nothing_leaves_nothing(traced):
    result = traced("fork_kinds", "idle", "idle").exact()
    assert len(result.run.projects()) == 1


def test_a_child_of_vfork_is_the_first_that_uses_a_device(traced):
    """What it does before its exec stands in the trace of its parent, whose memory it shares; and the parent is recorded."""
    result = traced("confine", "vfork", "live", "vfork", driver="bare", stdout=True)
    [(project, process)] = result.pairs()
    rows = result.rows(project)
    assert [row.event for row in rows[:2]] == ["MALLOC", "FREE"] and rows[0].tid != process.pid
    own = [(row.event, row.ptr) for row in rows[2:-2]]
    assert {row.tid for row in rows[2:-2]} == {process.pid}
    assert own == [(op, block.address) for op, block in process.events()]
    assert not any(result.info(project)["losses"].values())


def test_exec_in_all_its_ways(traced):
    assert len(traced("exec_self", options=WITH_STACKS).exact().run.projects()) == 7


def test_a_cleared_environment_is_nobodys_to_trace(traced):
    """The child runs untraced and unharmed; its own truth is on stdout, for want of the variable."""
    result = traced("cleared_env").exact()
    assert len(result.run.projects()) == 1
    assert result.run.stdout.startswith('{"pid":')


# Signals.

@stacks_or_not
def test_storm_of_signals(traced, options):
    """Handlers that call the driver, amid our code too: the program never hangs, what is not recorded is counted."""
    result = traced("storm", 500, driver="bare", options=options, timeout=60)
    nested = result.balance("nested", "starting")
    made = sum(len(process.events()) for process in result.processes.values())
    assert nested < made / 2, f"{nested} of {made} lost: a nested event must be the exception"


def test_errno_comes_back_as_it_was(traced, msmemscope, program):
    msmemscope.bare(*program("errno_kept")).check()
    traced("errno_kept").exact()
    traced("errno_kept", options=WITH_STACKS).run.check()


def test_smallest_stacks_are_large_enough(traced, msmemscope, program):
    msmemscope.bare(*program("small_stack")).check()
    traced("small_stack").exact()
    result = traced("small_stack", options=WITH_STACKS)
    result.run.check()


def _stack_use(run):
    """{what happened in a coroutine: bytes of its stack}"""
    return {line.split()[0]: int(line.split()[1]) for line in run.stdout.splitlines() if re.fullmatch(r"[a-z-]+ \d+", line)}


@stacks_or_not
def test_events_in_coroutines_of_8_kib(traced, targets, options):
    """The first event of a process and of a thread, new call sites, new and gone libraries, new chunks, failed frees."""
    result = traced("coroutines", 8192, targets / "libplugin_a.so", driver="bare", options=options).exact()
    assert len(_stack_use(result.run)) == 11
    if not options:
        return
    stacks = [str(row.c_stack) for row in result.run.rows() if row.event == "MALLOC"]
    for name in ["site_10+", "site_33+", "in_array+", "in_aligned+", "in_library+", "many+", "first+"]:
        assert any(f"({name}" in stack for stack in stacks), name


def test_the_stack_that_an_event_needs(traced, msmemscope, program, targets):
    """docs/reliability.md has these figures."""
    words = (0, targets / "libplugin_a.so")
    library = {"LD_LIBRARY_PATH": str(targets / "bare"), "TRUTH": "/dev/null"}
    bare = _stack_use(msmemscope.bare(*program("coroutines", *words), env=library).check())
    used = _stack_use(traced("coroutines", *words, driver="bare", options=WITH_STACKS).exact().run)
    more = {name: used[name] - bare[name] for name in bare}
    assert more.pop("process") <= 3072
    assert max(more.pop(name) for name in ("again", "sites-again", "thread-again")) <= 640
    assert max(more.values()) <= 1792, more


# Program closes every descriptor.

@stacks_or_not
def test_program_closes_every_descriptor(traced, options):
    traced("close_all", options=options).exact()


def test_program_removes_its_own_directory(traced, tmp_path, out):
    """Also with an output directory that was given relative to the directory of the start."""
    traced("chdir_root", tmp_path / "gone").exact()
    result = traced("chdir_root", tmp_path / "gone", options=["-o", "relative"], cwd=out)
    result.run.check()
    assert list((out / "relative").glob("msmemscope_*_ascend"))


# dlopen / dlclose.

def test_dlopen_dlclose(traced, targets):
    """Plug-ins that lie at the same address one after the other: each block's stack names the one that was there."""
    plugins = [targets / f"libplugin_{letter}.so" for letter in "abc"]
    result = traced("plugin_loop", 20, *plugins, options=WITH_STACKS).exact()
    for row in result.run.rows():
        if row.event == "MALLOC":
            letter = "abc"[row.attr["size"] % 8]
            assert re.match(rf"\S*libplugin_{letter}\.so\(plugin_{letter}\+0x", row.c_stack[0]), row.c_stack
        assert any(re.search(r"plugin_loop\(main\+0x", frame) for frame in row.c_stack), row.c_stack
    info = result.info(result.run.project())
    modules = Counter(module["path"] for module in info["modules"])
    assert all(modules[str(plugin)] >= 1 for plugin in plugins)
    for block in info["live_blocks"]:
        assert f"plugin_{'abc'[block['size'] % 8]}" in block["stack"][0], block


def test_dlclose_without_stacks(traced, targets):
    traced("plugin_loop", 20, *[targets / f"libplugin_{letter}.so" for letter in "ab"]).exact()


# Deep binding, lookups through a handle, static programs, setuid.

def test_deep_binding(traced, targets):
    """The plug-in's calls may go past us, never the program's own; and then the trace says why blocks are missing."""
    result = traced("deepbind", targets / "libplugin_a.so")
    result.run.check()
    [(project, process)] = result.pairs()
    rows = result.rows(project)
    own = [block.size for _, block in process.events() if block.size % 2 == 0]
    assert [row.attr["size"] for row in rows if row.attr["size"] % 2 == 0] == own
    if any(row.attr["size"] % 2 == 1 for row in rows):
        result.exact()


def test_lookups_through_a_handle(traced):
    """dlsym() on the driver's own handle is not ours to see, and works."""
    result = traced("handle_lookup", "libascend_hal.so", "handle")
    result.run.check()
    assert sum(len(process.events()) for process in result.processes.values()) == 188
    assert result.run.rows() == []


@pytest.mark.parametrize("way", ["global", "next"])
def test_device_runtime_resolves_the_driver_by_itself(traced, way):
    """Loaded late, names looked up in the global scope: the preloaded function comes first and finds the driver."""
    traced("handle_lookup", "libascend_hal.so", way).exact()


def test_static_program(msmemscope, program):
    run = msmemscope("--", *program("plain_static", 5))
    assert (run.returncode, run.stdout) == (5, "plain stdout\n")
    assert "plain_static is linked statically" in run.stderr
    assert run.stderr.index("linked statically") < run.stderr.index("plain stderr"), "said before it starts"
    assert run.projects() == []


# Sanitized target.

@pytest.fixture
def sanitized(tmp_path):
    """sanitized(compiler): the program plain, built with AddressSanitizer."""
    def build(compiler):
        path = tmp_path / f"plain_{compiler}"
        subprocess.run([compiler, "-fsanitize=address", "-o", path, ROOT / "tests/targets/plain.c"], check=True)
        return path

    return build


def test_sanitized_target_of_gcc(msmemscope, sanitized):
    """Its runtime insists on being first: said before the start, with what helps, and the program runs."""
    path = sanitized("gcc")
    run = msmemscope("--", path)
    said = re.search(r"AddressSanitizer.*LD_PRELOAD=(libasan\.so\S*?),", run.stderr)
    assert said and said.start() < run.stderr.index("plain stderr"), run
    assert (run.returncode, run.stdout) == (0, "plain stdout\n"), run
    helped = msmemscope("--", path, env={"LD_PRELOAD": said[1]})
    assert (helped.returncode, helped.stdout) == (0, "plain stdout\n"), helped
    assert "AddressSanitizer" not in helped.stderr, helped


def test_sanitized_target_of_clang(msmemscope, sanitized):
    """The runtime is inside the program; nothing has to be ordered."""
    run = msmemscope("--", sanitized("clang"))
    assert "AddressSanitizer" in run.stderr
    assert (run.returncode, run.stdout) == (0, "plain stdout\n"), run


# Exported names, unloading, exit.

def test_exported_names_are_the_tables_of_hooks_and_api(collector):
    """And the mark by which copies find each other. `_exit` and SIGKILL are in test_rows.py."""
    symbols = readelf("--dyn-syms", collector)
    exported = {line.split()[-1].split("@")[0] for line in symbols.splitlines()
                if re.search(r"\b(GLOBAL|WEAK)\b", line) and " UND " not in line and " ABS " not in line}
    table = "".join(path.read_text() for path in (ROOT / "src/collector").glob("*/hooks.def"))
    hooks = set(re.findall(r"^HOOK\(\w+, (\w+),", table, re.MULTILINE))
    api = set(re.findall(r"^API\((\w+),", (ROOT / "src/collector/api.def").read_text(), re.MULTILINE))
    assert hooks and api and exported == hooks | api | {"mscope_collector_v1"}


def test_the_collector_is_never_unloaded(collector):
    assert "NODELETE" in readelf("-d", collector)


# Narrow surroundings.

@stacks_or_not
@pytest.mark.parametrize("what, value", [
    ("as", 2 << 30),      # address space
    ("stack", 64 << 10),  # of the first thread, default for the others
])
def test_a_program_under_limits_is_recorded(traced, what, value, options):
    traced("rlimit", what, value, env={"SIMNPU_HBM": "64M"}, stdout=True, options=options).exact()


@stacks_or_not
@pytest.mark.parametrize("what, value", [
    ("fsize", 0),   # a file that grows is answered with SIGXFSZ
    ("nofile", 4),  # the loader needs one, nobody has two
])
def test_a_program_that_cannot_be_recorded_is_unharmed(traced, what, value, options):
    result = traced("rlimit", what, value, env={"SIMNPU_HBM": "64M"}, stdout=True, options=options)
    result.run.check()
    assert sum(len(process.events()) for process in result.processes.values()) == 2 * 3750
    if result.run.projects():
        result.balance("no_space")
    else:
        assert "msmemscope" in result.run.stderr, "nothing is recorded, and nobody said so"


def test_thread_names_of_any_bytes(traced, msmemscope):
    """Names with quotes, line breaks, Chinese and half of a character spoil neither csv nor JSON nor a terminal."""
    result = traced("names").exact()
    text = msmemscope("info", result.run.project().path, output=False).check().stdout
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text)
