# SPDX-License-Identifier: Apache-2.0
"""msmemscope doctor: one line for each thing that can go wrong, and exit status 1 when something will not work."""
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import harness

COLLECTOR = "libascend_kernel_hook.so"
LIBRARIES = ("libascend_hal.so", "libascendcl.so", "libruntime.so", "libms_tools_ext.so", "libprofapi.so", "libdcmi.so")


@pytest.fixture
def doctor(msmemscope, out):
    """doctor(words..., env={}, tool=path): the lines by what they are about, each (verdict, found, cure)."""
    def run(*words, env=None, tool=None, prefix=()):
        argv = [*prefix, tool or msmemscope.path, "doctor", "-o", out / "results", "--json", *words]
        done = subprocess.run(argv, env=harness.environment(msmemscope.dist, env), cwd=out, timeout=60, capture_output=True,
                              text=True, check=False)
        lines = {line["check"]: (line["verdict"], line["found"], line["cure"]) for line in json.loads(done.stdout)}
        assert done.returncode == any(verdict == "BAD" for verdict, _, _ in lines.values()), done
        return lines

    return run


@pytest.fixture
def tree(dist, out):
    """tree(name): a copy of what a launch needs of the staged tree."""
    def copy(name):
        for part in ("bin", "lib64"):
            shutil.copytree(dist / part, out / name / part, symlinks=True)
        return out / name

    return copy


def bad(lines):
    return {subject for subject, (verdict, _, _) in lines.items() if verdict == "BAD"}


def test_all_is_well_on_the_simulated_npu(doctor, dist, out):
    lines = doctor()
    assert bad(lines) == set()
    for library in LIBRARIES:
        verdict, found, _ = lines[library]
        assert verdict == "ok" and found.startswith(f"{dist}/simnpu/lib64/{library}: ")
    for subject in ("msmemscope", "collector", "torch_npu's gate", "other profilers", "C library"):
        assert lines[subject][0] == "ok", lines[subject]
    libc = os.confstr("CS_GNU_LIBC_VERSION").split()[1]
    assert lines["C library"][1].startswith(f"glibc {libc} ")
    assert list(out.iterdir()) == []  # it looks, and makes nothing


def test_gpu_and_cpu_are_known(doctor, out):
    """On a machine without either accelerator, PyTorch on the CPU is what works, and by itself."""
    lines = doctor()
    assert lines["GPU"][0] == ("ok" if list(Path("/dev").glob("nvidia[0-9]*")) else "note")
    assert lines["CPU"][0] == "ok" and "--device=cpu" in lines["CPU"][1], "the simulated NPU is there"
    lines = doctor(env={"LD_LIBRARY_PATH": None, "ASCEND_HOME_PATH": None})
    no_device = not any(list(Path("/dev").glob(f"{name}[0-9]*")) for name in ("nvidia", "davinci"))
    assert ("by default" in lines["CPU"][1]) == no_device
    (out / "lib").mkdir()
    subprocess.run(["cc", "-shared", "-o", out / "lib" / "libcuda.so.1", "-x", "c", "/dev/null"], check=True)
    lines = doctor(env={"LD_LIBRARY_PATH": out / "lib"})
    assert lines["libcuda.so.1"][:2] == ("ok", f"{out}/lib/libcuda.so.1: memory of PyTorch on the GPU is recorded by default")


def empty_library(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cc", "-shared", "-o", path, "-x", "c", "/dev/null"], check=True)
    return path


def test_what_a_gpu_needs_is_known(doctor, dist, out):
    """The driver's libraries, CUPTI wherever it may lie, and who has CUPTI's one subscriber; nothing of it without a GPU."""
    empty_library(out / "lib" / "libcuda.so.1")
    paths = {"LD_LIBRARY_PATH": out / "lib", "CUDA_HOME": out / "toolkit", "PATH": f"{out}/env/bin:/usr/bin:/bin"}
    lines = doctor(env=paths)
    if not list(Path("/dev").glob("nvidia[0-9]*")):
        assert lines["NVML"][0] == "note" and "libnvidia-ml.so.1" in lines["NVML"][1] and lines["NVML"][2]
    # A machine may have CUPTI where its loader looks: that comes before the toolkit.
    machine = lines["CUPTI"][0] == "ok"
    assert machine or lines["CUPTI"][0] == "note" and "CUPTI_LIBRARY" in lines["CUPTI"][2]
    assert lines["CUPTI subscriber"][0] == "ok" and "releases it" in lines["CUPTI subscriber"][1]
    assert "gpu,cpu" in lines["CPU"][1] and bad(lines) == set()
    # In the toolkit, where the loader looks, in packages of the interpreter that would run, where the user says: the last counts most.
    python = out / "env" / "bin" / "python3"
    python.parent.mkdir(parents=True)
    python.symlink_to("/usr/bin/python3")
    for path, more in ((out / "toolkit/extras/CUPTI/lib64/libcupti.so", {}), (out / "lib/libcupti.so.13", {}),
                       (out / "env/lib/python3.11/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12", {}),
                       (out / "own/libcupti.so", {"CUPTI_LIBRARY": out / "own/libcupti.so"})):
        empty_library(path)
        verdict, found, _ = doctor(env={**paths, **more})["CUPTI"]
        assert verdict == "ok" and (found.startswith(f"{path}: ") or machine and "toolkit" in str(path))
    empty_library(out / "lib" / "libnvidia-ml.so.1")
    lines = doctor(env={**paths, "CUDA_INJECTION64_PATH": "/opt/nsys.so"})
    assert lines["NVML"][:2] == ("ok", f"{out}/lib/libnvidia-ml.so.1: usage of process and device, as the driver counts it")
    verdict, found, cure = lines["CUPTI subscriber"]
    assert verdict == "note" and "used by /opt/nsys.so" in found and "CUDA_INJECTION64_PATH" in cure
    assert doctor(env={**paths, "CUDA_INJECTION64_PATH": dist / "lib64" / COLLECTOR})["CUPTI subscriber"][0] == "ok"
    if not list(Path("/dev").glob("nvidia[0-9]*")):
        assert not {"CUPTI", "NVML", "CUPTI subscriber"} & set(doctor())


def test_a_program_that_cannot_load_its_libraries_is_told_of(doctor, out):
    """All that is missing by name, without running it; and nothing when the loader is told where they are."""
    (out / "main.c").write_text("int f(void); int g(void); int puts(const char *);\n"
                                "int main(void) { puts(\"ran\"); return f() + g(); }\n")
    for name in "fg":
        (out / f"{name}.c").write_text(f"int {name}(void) {{ return 0; }}\n")
        subprocess.run(["cc", "-shared", "-o", out / f"lib{name}{name}.so", out / f"{name}.c"], check=True)
    subprocess.run(["cc", "-o", out / "prog", out / "main.c", f"-L{out}", "-lff", "-lgg"], check=True)
    verdict, found, cure = doctor("--", out / "prog")["its libraries"]
    assert verdict == "BAD" and found == f"{out}/prog cannot start: the loader does not find libff.so, libgg.so"
    assert "LD_LIBRARY_PATH" in cure
    lines = doctor("--", out / "prog", env={"LD_LIBRARY_PATH": out})
    assert lines["its libraries"][0] == lines["program"][0] == "ok"
    # A library of another version than the program asks for.
    (out / "map").write_text("NEW_9 { global: f; };\n")
    subprocess.run(["cc", "-shared", "-o", out / "libff.so", out / "f.c", f"-Wl,--version-script={out}/map"], check=True)
    subprocess.run(["cc", "-o", out / "prog", out / "main.c", f"-L{out}", "-lff", "-lgg"], check=True)
    (out / "map").write_text("OLD_1 { global: f; };\n")
    subprocess.run(["cc", "-shared", "-o", out / "libff.so", out / "f.c", f"-Wl,--version-script={out}/map"], check=True)
    verdict, found, _ = doctor("--", out / "prog", env={"LD_LIBRARY_PATH": out})["its libraries"]
    assert verdict == "BAD" and "NEW_9" in found
    # A script is as good as its interpreter.
    (out / "script").write_text("#!/bin/sh\n")
    (out / "script").chmod(0o755)
    assert doctor("--", out / "script")["its libraries"][0] == "ok"


def test_text_has_a_line_for_each_check(msmemscope, doctor):
    run = msmemscope("doctor", output=False).check()
    verdicts = [line.split()[0] for line in run.stdout.splitlines()]
    lines = doctor()
    assert verdicts == [verdict for verdict, _, _ in lines.values()]
    assert run.stderr == (f"msmemscope: {verdicts.count('ok')} ok, {verdicts.count('note')} notes, "
                          f"{verdicts.count('BAD')} bad\n")


def test_without_ascend_software_it_says_how_to_go_on(doctor):
    lines = doctor(env={"LD_LIBRARY_PATH": None, "ASCEND_HOME_PATH": None})
    verdict, _, cure = lines["Ascend software"]
    assert verdict == "note" and "simulated NPU" in cure
    assert bad(lines) == set() and not set(LIBRARIES) & set(lines)


def test_a_library_that_is_missing_has_a_cure(doctor, dist, out):
    some = out / "some"
    some.mkdir()
    shutil.copy(dist / "simnpu" / "lib64" / "libruntime.so", some)
    lines = doctor(env={"LD_LIBRARY_PATH": some, "ASCEND_HOME_PATH": None})
    assert lines["libruntime.so"][0] == "ok"
    verdict, found, cure = lines["libascend_hal.so"]
    assert verdict == "BAD" and "memory of the driver" in found and cure
    assert lines["libdcmi.so"][0] == "note"


def test_libraries_for_another_machine_are_passed_over(doctor, dist, out):
    strange = out / "strange"
    strange.mkdir()
    real = (dist / "simnpu" / "lib64" / "libascend_hal.so").read_bytes()
    (strange / "libascend_hal.so").write_bytes(real[:18] + (8).to_bytes(2, "little") + real[20:])  # MIPS
    (strange / "libdcmi.so").write_bytes(b"no library")
    lines = doctor(env={"LD_LIBRARY_PATH": f"{strange}:{dist}/simnpu/lib64"})
    for library in ("libascend_hal.so", "libdcmi.so"):
        assert lines[library][1].startswith(f"{dist}/simnpu/lib64/")


def test_the_gate_needs_the_real_name(doctor, tree):
    copy = tree("linked")
    (copy / "lib64" / COLLECTOR).rename(copy / "lib64" / "collector.so")
    (copy / "lib64" / COLLECTOR).symlink_to("collector.so")
    lines = doctor(tool=copy / "bin" / "msmemscope")
    assert bad(lines) == {"torch_npu's gate"} and "collector.so" in lines["torch_npu's gate"][1]


def test_the_gate_needs_the_extension_of_cann(doctor, dist, out):
    lines = doctor(env={"ASCEND_HOME_PATH": out / "no-cann"})
    assert bad(lines) == {"torch_npu's gate"} and "libms_tools_ext.so" in lines["torch_npu's gate"][1]
    assert doctor(env={"ASCEND_HOME_PATH": None})["torch_npu's gate"][0] == "note"


def test_a_path_with_a_blank_is_noted_and_works(doctor, tree):
    copy = tree("a tree: copied")
    lines = doctor(tool=copy / "bin" / "msmemscope")
    assert bad(lines) == set() and lines["collector"][0] == "ok"
    assert lines["path"][0] == "note"


def test_a_collector_that_does_not_load_is_found_out(doctor, tree):
    copy = tree("broken")
    (copy / "lib64" / COLLECTOR).write_bytes(b"\x7fELF but not really")
    lines = doctor(tool=copy / "bin" / "msmemscope")
    assert bad(lines) == {"collector"} and "does not run" in lines["collector"][1]
    shutil.rmtree(copy / "lib64")
    lines = doctor(tool=copy / "bin" / "msmemscope")
    assert bad(lines) == {"collector"} and "whole tree" in lines["collector"][2]


@pytest.mark.parametrize("variable,value,subject,verdict", [
    ("MSTX_INJECTION_PATH", "/opt/tool/libtool.so", "mstx", "BAD"),
    ("MSMEMSCOPE_DISABLE", "1", "switched off", "BAD"),
    ("PROFILING_MODE", "true", "another profiler", "note"),
    ("CUDA_INJECTION64_PATH", "/opt/nsys.so", "another profiler", "note"),
])
def test_what_stands_in_the_way_is_named(doctor, variable, value, subject, verdict):
    lines = doctor(env={variable: value})
    assert lines[subject][0] == verdict and variable in lines[subject][1]
    assert variable in lines[subject][2]  # the cure
    assert bad(lines) == ({subject} if verdict == "BAD" else set())


def test_variables_that_mean_nothing_are_no_profiler(doctor, dist):
    lines = doctor(env={"PROFILING_MODE": "false", "MSMEMSCOPE_DISABLE": "0", "CUDA_INJECTION64_PATH": "",
                        "MSTX_INJECTION_PATH": dist / "lib64" / COLLECTOR})
    assert lines["other profilers"][0] == "ok" and bad(lines) == set()


def test_other_preloads(doctor, dist, targets, out):
    other = targets / "libplugin_a.so"
    lines = doctor(env={"LD_PRELOAD": other})
    assert lines["LD_PRELOAD"][0] == "note" and str(other) in lines["LD_PRELOAD"][1]
    copy = out / "copy" / COLLECTOR
    copy.parent.mkdir()
    shutil.copy(dist / "lib64" / COLLECTOR, copy)
    assert bad(doctor(env={"LD_PRELOAD": copy})) == {"LD_PRELOAD"}
    assert "LD_PRELOAD" not in doctor(env={"LD_PRELOAD": dist / "lib64" / "libmsmemscope.so"})


def test_the_program_is_looked_at(doctor, program, out):
    assert doctor("--", *program("plain"))["program"][0] == "ok"
    lines = doctor("--", *program("plain_static", "--with", "arguments"))
    assert bad(lines) == {"program"} and "statically" in lines["program"][1]
    assert bad(doctor("--", out / "absent")) == {"program"}
    script = out / "script.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    verdict, found, _ = doctor("--", script)["program"]
    assert verdict == "ok" and "what runs is /bin/sh" in found


def test_places(doctor, out):
    lines = doctor()
    assert lines["results"][:1] == lines["raw traces"][:1] == ("ok",) and "free" in lines["results"][1]
    lines = doctor("-o", "/proc/nowhere")
    assert {"results"} <= bad(lines) <= {"results", "raw traces"} and "-o" in lines["results"][2]


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no file system in memory")
def test_results_in_memory_have_their_raw_traces_elsewhere(doctor, out):
    lines = doctor("-o", "/dev/shm/msmemscope", env={"TMPDIR": out})
    assert "in memory" in lines["results"][1] and lines["raw traces"][1].startswith(f"{out}: local disk")
    lines = doctor("--trace-dir=/dev/shm")
    assert lines["raw traces"][0] == "note" and "--trace-dir" in lines["raw traces"][2]


def test_a_limit_on_file_sizes_is_noticed(doctor):
    verdict, found, cure = doctor(prefix=("sh", "-c", 'ulimit -f 1000000; exec "$@"', "sh"))["file size limit"]
    assert (verdict, cure) == ("note", "ulimit -f unlimited") and "MiB" in found


def test_packages_of_the_interpreter_that_would_run_are_known(doctor, out):
    """Those beside it: a virtual environment has its own."""
    for name in ("torch_npu-2.13.0.dist-info", "mstx-0.0.2.dist-info", "torch_npu_other-1.dist-info"):
        (out / "env" / "lib" / "python3.11" / "site-packages" / name).mkdir(parents=True)
    python = out / "env" / "bin" / "python3"
    python.parent.mkdir()
    python.symlink_to("/usr/bin/python3")
    assert not {"torch_npu", "mstx"} & set(doctor("--", "/usr/bin/python3", "-c", "pass"))
    for lines in (doctor("--", python, "-c", "pass"), doctor(env={"PATH": f"{python.parent}:/usr/bin:/bin"})):
        verdict, found, cure = lines["torch_npu"]
        assert verdict == "note" and found.startswith("2.13.0 in ") and "torch_npu.npu.mstx" in found and "mstx of CANN" in cure
        verdict, found, cure = lines["mstx"]
        assert verdict == "note" and found.startswith("0.0.2 in ") and "placeholder" in found and "uninstall" in cure
