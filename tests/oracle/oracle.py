#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The real caching allocator of PyTorch releases against our twin of it, address by address, without a device.

    oracle.py check RELEASE... [--runs=N] [--seed=N]    random programs and settings; each address must be equal
    oracle.py replay RELEASE... [--runs=N] [--seed=N]   memory snapshots of the real allocator; whatif must replay each to its end
    oracle.py fixture RELEASE...                        writes tests/twin/oracle.txt, which CI replays
    oracle.py records RELEASE...                        writes tests/twin/records.json.xz, snapshots that CI replays from several moments

The CUDA wheel of a release is downloaded once (some 500 MB), libc10.so, libc10_cuda.so and its headers are kept in the folder that
MSMEMSCOPE_ORACLE names (default: ~/.cache/msmemscope-oracle), and the wheel is deleted. The headers of CUDA come from NVIDIA's runtime wheel.
"""
import json
import lzma
import os
import pickle
import random
import re
import subprocess
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FIXTURE = ROOT / "tests/twin/oracle.txt"
RECORDS = ROOT / "tests/twin/records.json.xz"
CACHE = Path(os.environ.get("MSMEMSCOPE_ORACLE", Path.home() / ".cache/msmemscope-oracle"))
PLAYER = ROOT / "build/release/tests/twin/twin_player"
COMMAND = ROOT / "build/release/src/cli/msmemscope"
RUNTIMES = {"12": "nvidia-cuda-runtime-cu12==12.4.127", "13": "nvidia-cuda-runtime==13.0.96"}
KEPT = re.compile(r"torch/lib/libc10(_cuda)?\.so$|torch/include/(c10|torch/headeronly)/")
GIB = 1 << 30
EMPTIES_FROM = 9  # releases before it end the program when empty_cache() is called while a private pool is filled
POOLS_TOLD_FROM = 11  # releases before it do not say in their history which private pool an entry is of
POOLS_FROM = 3  # releases before it begin and end private pools by other functions


def download(what, folder):
    """Downloads one wheel without what it depends on; gives its path."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--python-version", "3.11",
                    "-d", folder, what], check=True)
    return max(folder.glob("*.whl"), key=lambda path: path.stat().st_mtime)


def unpack(wheel, folder, kept):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if kept.search(name)])
    wheel.unlink()


def library(release):
    folder = CACHE / release
    if not (folder / "torch/lib/libc10_cuda.so").exists():
        unpack(download(f"torch==={release}", CACHE / "wheels"), folder, KEPT)
    return folder / "torch/lib/libc10_cuda.so"


def headers(major):
    folder = CACHE / f"cuda-{major}"
    if not folder.exists():
        unpack(download(RUNTIMES[major], CACHE / "wheels"), folder, re.compile("/include/"))
    return next(folder.glob("**/cuda_runtime_api.h")).parent


def standin(release, folder, major):
    """The stand-in as libcudart of the version that the library was linked with, and as libcuda."""
    names = subprocess.run(["nm", "-D", "--undefined-only", library(release)], capture_output=True, text=True, check=True).stdout
    wanted = {name.split("@")[0] for name in re.findall(r"U (cuda\w+)", names)}
    source = (HERE / "cuda_standin.c").read_text()
    missing = sorted(name for name in wanted if not re.search(rf"\b{name}\(", source))
    driver = ("cuMemMap", "cuMemUnmap", "cuMemSetAccess", "cuMemAddressFree", "cuMemExportToShareableHandle",
              "cuMemImportFromShareableHandle", "cuMemsetD32Async", "cuStreamWriteValue32", "cuMemGetHandleForAddressRange")
    (folder / "missing.c").write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in (*missing, *driver)))
    (folder / "version").write_text(f"libcudart.so.{major} {{ global: cuda*; cu*; }};\n")
    base = ["gcc", "-w", "-O2", "-shared", "-fPIC", HERE / "cuda_standin.c", folder / "missing.c"]
    runtime = folder / f"libcudart.so.{major}"
    subprocess.run([*base, f"-Wl,-soname,libcudart.so.{major}", f"-Wl,--version-script={folder / 'version'}", "-o", runtime], check=True)
    # One copy of the counters: libcuda is the same file under another name, found by what it exports.
    forward = folder / "libcuda.so.1"
    subprocess.run(["gcc", "-w", "-shared", "-fPIC", "-x", "c", "/dev/null", "-x", "none", "-Wl,-soname,libcuda.so.1", "-Wl,--no-as-needed", runtime,
                    "-o", forward], check=True)
    # 2.13 asks NVML about the fabric; a device without one is told by the last of these.
    (folder / "nvml.c").write_text("".join(f"int {name}(void) {{ return {code}; }}\n" for name, code in (
        ("nvmlInit_v2", 0), ("nvmlDeviceGetHandleByPciBusId_v2", 0), ("nvmlDeviceGetNvLinkRemoteDeviceType", 3),
        ("nvmlDeviceGetNvLinkRemotePciInfo_v2", 3), 
        ("nvmlSystemGetCudaDriverVersion_v2", 3), ("nvmlDeviceGetGpuFabricInfoV", 3)))
        + "int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned int *count) { *count = 0; return 0; }\n")
    subprocess.run(["gcc", "-w", "-shared", "-fPIC", folder / "nvml.c", "-Wl,-soname,libnvidia-ml.so.1", "-o", folder / "libnvidia-ml.so.1"],
                   check=True)
    return runtime, forward


def tells_history(release):
    """Whether entries of its history can be followed as they are made: 2.1 cannot."""
    return "attachAllocatorTraceTracker" in (CACHE / release / "torch/include/c10/cuda/CUDACachingAllocator.h").read_text()


def build(release):
    """Path of the oracle of a release, built if need be."""
    lib = library(release)
    folder = CACHE / release / "oracle"
    program = folder / "oracle"
    sources = [HERE / name for name in ("cuda_standin.c", "oracle.cpp")]
    if program.exists() and program.stat().st_mtime > max(path.stat().st_mtime for path in sources):
        return program
    folder.mkdir(exist_ok=True)
    needed = subprocess.run(["readelf", "-d", lib], capture_output=True, text=True, check=True).stdout
    major = re.search(r"libcudart\.so\.(\d+)", needed)[1]
    runtime, driver = standin(release, folder, major)
    minor = int(release.split(".")[1])
    flags = (["-DORACLE_STATS=c10::cuda::CUDACachingAllocator"] if minor < 5 else []) + (["-DORACLE_POOLS"] if minor >= POOLS_FROM else [])
    flags += ["-DORACLE_TRACKER"] if tells_history(release) else []
    old_abi = b"_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx11" not in (CACHE / release / "torch/lib/libc10.so").read_bytes()
    subprocess.run(["g++", "-std=c++20" if minor >= 9 else "-std=c++17", "-O1", "-w", f"-D_GLIBCXX_USE_CXX11_ABI={0 if old_abi else 1}", *flags,
                    "-DC10_CUDA_NO_CMAKE_CONFIGURE_FILE", f"-I{HERE / 'shim'}", f"-I{CACHE / release}/torch/include", f"-I{headers(major)}", HERE / "oracle.cpp",
                    "-o", program, lib, lib.with_name("libc10.so"), "-Wl,--no-as-needed", runtime, driver,
                    f"-Wl,-rpath,{folder}:{lib.parent}", f"-Wl,-rpath-link,{folder}", "-Wl,--disable-new-dtags"], check=True)
    return program


# ---- programs and settings ----

def program(seed):
    """(bytes of the device, fraction or None, events): sizes and lifetimes of many kinds, the same for a seed everywhere."""
    rng = random.Random(seed)
    total = rng.choice((GIB, 2 * GIB, 4 * GIB, 8 * GIB, 141 * GIB))
    fraction = rng.choice((None, None, 0.25, 0.5, 0.8, 1.0))
    streams = rng.choice((1, 1, 2, 4))
    budget = total * (fraction or 1) * rng.choice((0.3, 0.7, 0.95, 1.3))
    favourites = [int(2 ** rng.uniform(6, 29)) for _ in range(6)]
    edges = [512, 513, 1 << 20, (1 << 20) + 1, 2 << 20, 10 << 20, (10 << 20) - 512, 20 << 20, 64 << 20, (64 << 20) + 1, 256 << 20]
    events, live, held, number = [], [], 0, 0
    for _ in range(rng.choice((300, 800))):
        kind = rng.random()
        if kind < 0.004:
            events.append("e")
        elif live and (kind < 0.42 or held > budget):
            place = rng.choice((0, len(live) - 1, rng.randrange(len(live))))
            which, size = live.pop(place)
            held -= size
            events.append(f"f {which}")
        else:
            size = rng.choice((rng.choice(favourites), rng.choice(edges), int(2 ** rng.uniform(0, 12)), int(2 ** rng.uniform(10, 24)),
                               int(2 ** rng.uniform(20, 28.5))))
            number += 1
            live.append((number, size))
            held += size
            events.append(f"a {number} {max(size, 1)} {rng.randrange(streams)}")
    return total, fraction, events


def with_pools(case, seed, release):
    """The same program with private pools, as graphs and MemPools have them: begun and ended, up to two at a time, used again, and released."""
    total, fraction, events = case
    rng = random.Random(~seed)
    out, open_pools, kept, unused = [], {}, {}, list(range(7, 0, -1))
    for event in events:
        kind = rng.random()
        again = [pool for pool in kept if pool not in open_pools]
        if kind < 0.02 and len(open_pools) < 2 and (unused or again):
            stream = rng.choice([each for each in range(4) if each not in open_pools.values()])
            pool = rng.choice(again) if again and (not unused or rng.random() < 0.5) else unused.pop()
            kept[pool] = kept.get(pool, 0) + 1
            open_pools[pool] = stream
            out.append(f"p {pool} {stream}")
        elif kind < 0.045 and open_pools:
            pool = rng.choice(list(open_pools))
            del open_pools[pool]
            out.append(f"q {pool}")
        elif kind < 0.055 and again:
            pool = rng.choice(again)
            kept[pool] -= 1
            out.append(f"r {pool}")
            if kept[pool] == 0:
                del kept[pool]
        if event != "e" or not open_pools or int(release.split(".")[1]) >= EMPTIES_FROM:
            out.append(event)
    return total, fraction, out


def settings(rng, release):
    """A random text that the release accepts."""
    minor = int(release.split(".")[1])
    parts = []
    expandable = rng.random() < 0.4
    if expandable:
        parts.append("expandable_segments:True")
    if rng.random() < 0.4 and not (expandable and minor < 5):
        parts.append(f"max_split_size_mb:{rng.choice((21, 32, 64, 128, 200, 512))}")
        if minor >= 6 and rng.random() < 0.3:
            parts.append(f"max_non_split_rounding_mb:{rng.choice((21, 40, 100))}")
    if rng.random() < 0.35:
        parts.append("roundup_power2_divisions:" + rng.choice(
            ("1", "2", "4", "8", "16", "[256:1,512:2,1024:4,>:8]", "[1:4,64:2,>:1]", "[16:8,64:4]", "[4:2,32:16,>:4]", "[>:4]")))
    if rng.random() < 0.3:
        parts.append(f"garbage_collection_threshold:{rng.choice((0.1, 0.3, 0.6, 0.8, 0.95))}")
    if minor >= 11 and rng.random() < 0.3:
        parts.append(f"large_segment_size_mb:{rng.choice((20, 32, 40, 64, 100))}")
    rng.shuffle(parts)
    return ",".join(parts)


def as_run(release, case, text):
    return f"run {release} {case[0]} {'-' if case[1] is None else case[1]} {text or '-'}"


def truth(release, case, text):
    """(lines, figures) of the real allocator, or the sentence with which it refuses the settings."""
    env = dict(os.environ, STANDIN_BYTES=str(case[0]), PYTORCH_CUDA_ALLOC_CONF=text)
    env.pop("PYTORCH_ALLOC_CONF", None)
    done = subprocess.run([build(release)], input="\n".join([as_run(release, case, text), *case[2], ""]), env=env, capture_output=True, text=True)
    if done.returncode != 0:
        return None, done.stderr
    *lines, figures = done.stdout.splitlines()
    return lines, figures


def read_figures(line):
    return {name: int(value) for name, value in (word.split("=") for word in line.split()[1:])}


def ours(release, case, text):
    done = subprocess.run([PLAYER], input="\n".join(["program", *case[2], as_run(release, case, text), ""]), capture_output=True, text=True)
    if done.returncode != 0:
        return None, done.stderr[:600]
    *lines, figures = done.stdout.splitlines()
    return lines, figures


def check(release, runs, seed):
    equal = addresses = failed = 0
    for number in range(seed, seed + runs):
        case, text = program(number), settings(random.Random(number + 1), release)
        if number % 2 and int(release.split(".")[1]) >= POOLS_FROM:
            case = with_pools(case, number, release)
        (real, real_figures), (twin, twin_figures) = truth(release, case, text), ours(release, case, text)
        if real is None and twin is None:
            equal += 1
            continue
        if real is None and "INTERNAL ASSERT" in real_figures:
            failed += 1  # PyTorch itself fails, when a part of an expandable segment of a released pool goes
            continue
        if real is None or twin is None:
            print(f"{release} seed {number} [{text}]: only one of them refuses: {(real_figures if real is None else twin_figures)[:600]}")
            continue
        known = read_figures(real_figures)
        mine = {name: value for name, value in read_figures(twin_figures).items() if name in known}
        if real == twin and known == mine:
            equal += 1
            addresses += len(real)
        else:
            at = next((i for i, pair in enumerate(zip(real, twin)) if pair[0] != pair[1]), None)
            detail = f"{real[at]} against {twin[at]}" if at is not None else {name: (known[name], mine[name]) for name in known if known[name] != mine[name]}
            print(f"{release} seed {number} [{text}] device {case[0] >> 20} MiB fraction {case[1]}: {detail}")
    print(f"{release}: {equal} of {runs} runs are equal, {addresses} addresses" + (f"; in {failed} PyTorch itself fails" if failed else ""))
    return equal + failed == runs


def read_segments(lines):
    segments = []
    for line in lines:
        word, *numbers = line.split()
        if word == "segment":
            address, size, stream, large, expandable, pool = map(int, numbers)
            segments.append({"device": 0, "address": address, "total_size": size, "stream": stream, "segment_type": "large" if large else "small",
                             "is_expandable": bool(expandable), "segment_pool_id": (pool, 0), "blocks": []})
        elif word == "block":
            size, requested, active = map(int, numbers)
            segments[-1]["blocks"].append({"size": size, "requested_size": requested, "state": "active_allocated" if active else "inactive"})
    return segments


def history(release, case, text, cut):
    """A memory snapshot with the allocator's own history, its segments and settings; of the history the first `cut` (a share) is lost, as in a ring."""
    env = dict(os.environ, STANDIN_BYTES=str(case[0]), PYTORCH_CUDA_ALLOC_CONF=text, ORACLE_HISTORY="1")
    done = subprocess.run([build(release)], input="\n".join([as_run(release, case, text), *case[2], ""]), env=env, capture_output=True,
                          text=True)
    if done.returncode != 0:
        return None
    lines = done.stdout.splitlines()
    entries = [line.split()[1:] for line in lines if line.startswith("history ")]
    trace = [{"action": action, "addr": int(address), "size": int(size), "stream": int(stream), **({} if pool == "-1" else {"pool_id": (int(pool), 0)})}
             for action, address, size, stream, pool in entries]
    return {"segments": read_segments(lines), "device_traces": [trace[int(len(trace) * cut):]], "allocator_settings":
            {"PYTORCH_CUDA_ALLOC_CONF": text, "memory_fractions": [{"device": 0, "device_bytes": case[0]}]}}


def replay(release, runs, seed):
    """Records from their start, and others that begin in the middle: of these, segments and blocks are taken from the end."""
    agree = tried = middle = 0
    build(release)
    if not tells_history(release):
        print(f"{release}: its history cannot be followed")
        return True
    for number in range(seed, seed + runs):
        case, rng = program(number), random.Random(number + 1)
        text = settings(rng, release)
        if "garbage" in text:
            continue  # a limit is not in a snapshot
        cut = rng.choice((0, 0.1, 0.3, 0.5, 0.7, 0.9))
        if number % 2 and int(release.split(".")[1]) >= POOLS_TOLD_FROM:
            case = with_pools(case, number, release)
        record = history(release, (case[0], None, case[2]), text, cut)
        if record is None:
            continue  # it refuses the settings
        tried += 1
        middle += cut > 0
        path = CACHE / "replay.pickle"
        path.write_bytes(pickle.dumps(record, protocol=4))
        done = subprocess.run([COMMAND, "whatif", "--json", f"--torch={release}", "--set=", path], capture_output=True, text=True)
        pools = json.loads(done.stdout)["pools"] if done.stdout else []
        if pools and pools[0]["agrees"]:
            agree += 1
        else:
            print(f"{release} seed {number} cut {cut} [{text}]: {pools[0].get('refusal') if pools else done.stderr}")
    print(f"{release}: {agree} of {tried} records are replayed to their end, {middle} of them begin in the middle")
    return agree == tried


def hashed(lines):
    value = 0xcbf29ce484222325
    for byte in "".join(line + "\n" for line in lines).encode():
        value = (value ^ byte) * 0x100000001b3 & (1 << 64) - 1
    return f"{value:016x}"


def fixture(releases):
    """Programs and what the real allocators did with them; figures that only the twin has are its own."""
    out = [f"# What the caching allocators of torch {', '.join(releases)} did; written by tests/oracle/oracle.py fixture."]
    count = 0
    for seed in range(30000, 30020):
        case = program(seed) if seed < 30012 else with_pools(program(seed), seed, releases[0])
        out += ["program", *case[2]]
        for release in releases:
            for turn in range(4):
                text = settings(random.Random(seed * 100 + turn), release) if turn else ""
                (real, figures), (mine, own) = truth(release, case, text), ours(release, case, text)
                if real is None:
                    continue
                kept = {**(read_figures(own) if mine else {}), **read_figures(figures)}
                out += [as_run(release, case, text), f"expect {hashed(real)} " + " ".join(f"{name}={kept[name]}" for name in kept)]
                count += 1
    FIXTURE.write_text("\n".join(out) + "\n")
    print(f"{FIXTURE}: {count} results of {', '.join(releases)}, {FIXTURE.stat().st_size} bytes")


def records(releases):
    """Snapshots of the first programs that a release runs with each kind of settings; those with private pools say the pool of each entry."""
    kept = []
    for release in releases:
        for wanted in ("expandable_segments:True", "", "max_split_size_mb:64", "expandable_segments:True,roundup_power2_divisions:4"):
            for number in range(40000, 40002):
                case = program(number)
                if number % 2 and int(release.split(".")[1]) >= POOLS_TOLD_FROM:
                    case = with_pools(case, number, release)
                record = history(release, (case[0], None, case[2]), wanted, 0)
                kept.append({"torch": release, "seed": number, "snapshot": record})
    RECORDS.write_bytes(lzma.compress(json.dumps(kept, separators=(",", ":")).encode(), preset=9))
    print(f"{RECORDS}: {len(kept)} records of {', '.join(releases)}, {RECORDS.stat().st_size} bytes")


def main(arguments):
    options = dict(argument[2:].split("=") for argument in arguments if argument.startswith("--"))
    words = [argument for argument in arguments if not argument.startswith("--")]
    if len(words) < 2 or words[0] not in ("check", "fixture", "records", "replay"):
        sys.exit(__doc__)
    if words[0] == "records":
        return records(words[1:])
    if words[0] == "fixture":
        return fixture(words[1:])
    work = check if words[0] == "check" else replay
    done = [work(release, int(options.get("runs", 200)), int(options.get("seed", 1))) for release in words[1:]]
    sys.exit(0 if all(done) else 1)


if __name__ == "__main__":
    main(sys.argv[1:])
