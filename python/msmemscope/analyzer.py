# SPDX-License-Identifier: Apache-2.0
"""Questions to recorded runs: a csv or db of memscope_dump, a trace, or the directory of a run. Neither the collector nor a
framework is needed; the command msmemscope reads the files (_command.py).

    import msmemscope
    msmemscope.check_leaks(input_path="memscope.csv", mstx_info="test", start_index=0)
    msmemscope.check_inefficient("memscope.csv", mem_size=1 << 20, inefficient_type=["late_deallocation"])
    msmemscope.analyze("leaks", input_path="memscope.csv", mstx_info="test", start_index=0)
"""
import glob
import os
import sys

from . import _command, _rewrite

__all__ = ["InefficientAnalyzer", "InefficientConfig", "LeaksAnalyzer", "LeaksConfig", "analyze", "check_inefficient", "check_leaks",
           "get_analyzer_config", "list_analyzers", "whatif"]

_MIB = 1 << 20
_PATH_MAX = 4096
_NUMBER_MAX = 2**32 - 1  # of the command's options


class Findings(list):
    """The findings, a dict for each; `processes` is the whole answer of the command, as `analyze WHAT --json` prints it."""

    def __init__(self, found, processes):
        super().__init__(found)
        self.processes = processes


def _path(value):
    try:
        path = os.fspath(value)
    except TypeError:
        raise TypeError(f"input_path must be a path, not {type(value).__name__}") from None
    path = os.fsdecode(path)
    if not path.strip():
        raise ValueError("input_path is empty")
    if len(os.fsencode(path)) > _PATH_MAX:
        raise ValueError(f"input_path is longer than {_PATH_MAX} bytes")
    if not os.path.exists(path):
        raise FileNotFoundError(f"input_path {path} does not exist")
    if not (os.path.isfile(path) or os.path.isdir(path)):
        raise ValueError(f"input_path {path} is neither a file nor a directory")
    if not os.access(path, os.R_OK):
        raise PermissionError(f"input_path {path} cannot be read")
    return path


def _number(name, value, least):
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name} must be {least} or more, not {value}")
    return value


def _ask(*words):
    try:
        processes, said = _command.ask("analyze", *words)
    except _command.Failed as failure:
        raise ValueError(str(failure)) from None
    return processes, said


def _argument(path):
    """A path that the command does not take for an option."""
    return path if path.startswith("/") else os.path.join(".", path)


def _write(lines):
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


# ---- leaks ----

class LeaksConfig:
    """Arguments of check_leaks(): a run, the name of the marks, and the index of the first of three marks."""

    def __init__(self, input_path, mstx_info, start_index=0):
        self.input_path = input_path
        self.mstx_info = mstx_info
        self.start_index = start_index

    def check(self):
        path = _path(self.input_path)
        if not isinstance(self.mstx_info, str):
            raise TypeError(f"mstx_info must be a str, not {type(self.mstx_info).__name__}")
        if not self.mstx_info.strip():
            raise ValueError("mstx_info is empty")
        return path, self.mstx_info, _number("start_index", self.start_index, 0)


class LeaksAnalyzer:
    """With three marks A, B and C of one name, memory allocated between A and B must be freed before C."""

    def analyze(self, config):
        path, mark, start = config.check()
        _write([f"msmemscope: looking for memory leaks in {path}"])
        processes, said = _ask("leaks", _argument(path), f"--mark={mark}", f"--start-index={min(start, _NUMBER_MAX - 3)}", "--all")
        lines = [f'====== Memory allocated between the marks "{mark}" {start} and {start + 1} and not freed before {start + 2} ======']
        found = []
        for process in processes:
            who = f" of process {process['pid']}" if len(processes) > 1 else ""
            for device in process["marks"]["devices"]:
                lines += _device_lines(device, who)
                found += [{"pid": process["pid"], **leak} for leak in device.get("leaks", ())]
            if not process["marks"]["devices"]:
                lines.append(f"No memory was allocated{who}.")
        _write(lines + said)
        return Findings(found, processes)


def _device_lines(device, who):
    name = f"{device['device']}{who}"
    if not device["judged"]:
        return [f"Device {name} was not judged: {device['reason']}."]
    lines = []
    if device["leaks"]:
        lines.append(f"====== ERROR: Detected memory leaks on device {name} ======")
        lines += [f"Direct {leak['memory']} leak of {leak['size'] / _MIB} Mb(s) at {leak['address']} in Index {leak['index']}."
                  for leak in device["leaks"]]
        lines.append(f"====== SUMMARY: {device['leaked_bytes'] / _MIB} Mb(s) leaked in {device['leaked_blocks']} allocation(s) ======")
    else:
        lines.append(f"There are no hal memory leaks and none of other pools on device {name}.")
    if device["kept_by_pools_blocks"]:
        lines.append(f"{device['kept_by_pools_bytes'] / _MIB} Mb(s) of the driver on device {name} were taken by a framework's pool and "
                     "are kept by it: its cache, not a leak.")
    return lines


def check_leaks(input_path, mstx_info, start_index=0):
    """Prints which memory was allocated between two marks and not freed before the third, device by device.

    input_path   csv or db of memscope_dump, trace, or directory of a run
    mstx_info    message of the marks
    start_index  number of the first of the three marks, from 0

    Returns a list of the leaks, a dict for each: device, event_type, address, size, index (the row's ID), site and so on.
    """
    return LeaksAnalyzer().analyze(LeaksConfig(input_path, mstx_info, start_index))


# ---- inefficient ----

class InefficientConfig:
    """Arguments of check_inefficient(): a run, the smallest block, kinds of waste, and when a block is idle."""

    def __init__(self, input_path, mem_size=0, inefficient_type=None, idle_threshold=3000):
        self.input_path = input_path
        self.mem_size = mem_size
        self.inefficient_type = inefficient_type
        self.idle_threshold = idle_threshold

    def check(self):
        path = _path(self.input_path)
        return path, _number("mem_size", self.mem_size, 0), _types(self.inefficient_type), \
            _number("idle_threshold", self.idle_threshold, 1)


def _types(value):
    """The kinds of waste that are asked for, in their order."""
    if value is None:
        return _rewrite.TYPES
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, (list, tuple, set, frozenset)):
        raise TypeError(f"inefficient_type must be a str or a list of them, not {type(value).__name__}")
    if not value:
        raise ValueError("inefficient_type is empty")
    for kind in value:
        if not isinstance(kind, str):
            raise TypeError(f"inefficient_type has a {type(kind).__name__} in it")
        if kind not in _rewrite.TYPES:
            raise ValueError(f"inefficient_type {kind!r} is unknown; allowed: {', '.join(_rewrite.TYPES)}")
    return tuple(kind for kind in _rewrite.TYPES if kind in value)


def _dump_files(path):
    """The csv and db files whose rows get what is found; none of a trace."""
    if os.path.isfile(path):
        with open(path, "rb") as file:
            start = file.read(4096)
        return [path] if start.startswith(b"SQLite format 3\0") or b"Timestamp" in start.split(b"\n", 1)[0] else []
    files = []
    for place in ("", "dump", "device_*/dump", "ms*_*/device_*/dump"):
        for name in ("memscope_dump_*", "leaks_dump_*"):
            for ending in (".csv", ".db"):
                files += glob.glob(os.path.join(glob.escape(path), place, name + ending))
    return sorted(set(files))


class InefficientAnalyzer:
    """Blocks that are allocated too early, freed too late, or not used for long. The MALLOC rows of the files say so afterwards."""

    def analyze(self, config):
        path, size, types, idle = config.check()
        files = _dump_files(path)
        for file in files:
            if not (os.access(file, os.W_OK) and os.access(os.path.dirname(os.path.abspath(file)), os.W_OK)):
                raise PermissionError(f"{file} cannot be written, but the findings go into its rows")
        _write([f"msmemscope: looking for inefficient memory in {path}"])
        processes, said = _ask("inefficient", _argument(path), "--all", "--inefficient=" + ",".join(
            [*types, f"mem_size:{min(size, _NUMBER_MAX)}", f"idle_threshold:{min(idle, _NUMBER_MAX)}"]))
        found = [{"pid": process["pid"], **block, "inefficient_type": block["inefficient_type"].split(",")}
                 for process in processes for block in process["inefficient_blocks"] if block["size"] >= size]
        lines = [f"{kind}: {_counted(block for block in found if kind in block['inefficient_type'])}" for kind in types]
        values = {}
        for block in found:
            values[str(block["pid"]) if block["pid"] else "", str(block["index"])] = block["inefficient_type"]
        for file in files:
            rows = _rewrite.rewrite(file, types, values)
            lines.append(f"{file}: {rows} row{'' if rows == 1 else 's'} changed")
        if not any(process["accesses"] for process in processes):
            lines.append("nothing can be judged: no operator reports which memory it uses; record with --analysis=inefficient")
        if not files:
            lines.append("a trace has no rows to change; to write files with the findings: msmemscope export --analysis=inefficient")
        _write(lines + said)
        return Findings(found, processes)


def _counted(blocks):
    sizes = [block["size"] for block in blocks]
    return f"{len(sizes)} block{'' if len(sizes) == 1 else 's'}, {sum(sizes) / _MIB:.6f} Mb(s)"


def check_inefficient(input_path, mem_size=0, inefficient_type=None, idle_threshold=3000):
    """Finds inefficient memory and writes it to the files: inefficient_type in Attr of their MALLOC rows.

    input_path        csv or db of memscope_dump, or directory of a run; a trace is not changed
    mem_size          smaller blocks are skipped
    inefficient_type  early_allocation, late_deallocation, temporary_idleness, or a list of these; None: all. Other kinds
                      in the file stay
    idle_threshold    operators between two uses of a block beyond which it is idle

    Returns a list of the blocks, a dict for each: pid, index (the row's ID), size, inefficient_type.
    """
    return InefficientAnalyzer().analyze(InefficientConfig(input_path, mem_size, inefficient_type, idle_threshold))


# ---- by name ----

_ANALYZERS = {
    "leaks": (LeaksAnalyzer, LeaksConfig),
    "inefficient": (InefficientAnalyzer, InefficientConfig),
}


def _named(analyzer_type):
    if analyzer_type not in _ANALYZERS:
        raise ValueError(f"unknown analyzer {analyzer_type!r}; allowed: {', '.join(_ANALYZERS)}")
    return _ANALYZERS[analyzer_type]


def analyze(analyzer_type, **arguments):
    """check_leaks() or check_inefficient(), by the names of list_analyzers().

    Without mstx_info, leaks are judged by how memory grows from step to step, as at the end of a recording: also of files that
    stop() has completed while the program runs on.
    """
    analyzer, config = _named(analyzer_type)
    if config is LeaksConfig and set(arguments) == {"input_path"}:
        return _judge(_path(arguments["input_path"]))
    return analyzer().analyze(config(**arguments))


def _judge(path):
    """Leaks by growth, printed as the command prints them; returns the call sites of all processes."""
    processes, said = _ask("leaks", _argument(path), "--all")
    _write([*_command.text("analyze", "leaks", _argument(path)).splitlines(), *said])
    return Findings([{"pid": process["pid"], **place} for process in processes for place in process.get("leaks", {}).get("places", ())],
                    processes)


def list_analyzers():
    """The names that analyze() takes."""
    return list(_ANALYZERS)


def get_analyzer_config(analyzer_type):
    """The class of an analyzer's arguments, and their names with their defaults ("required" where there is none)."""
    import inspect
    config = _named(analyzer_type)[1]
    parameters = {name: "required" if parameter.default is inspect.Parameter.empty else parameter.default
                  for name, parameter in inspect.signature(config).parameters.items()}
    return {"config_class": config, "parameters": parameters}


# ---- what if ----

def whatif(input_path, settings=None, limit=None, card=None, torch=None, batch=None, batch_of=None):
    """Memory that PyTorch's pool would reserve under other settings of its allocator, from a recorded run or a memory snapshot of PyTorch.

    input_path  trace, directory of a run, or file of torch.cuda.memory._dump_snapshot()
    settings    texts as in PYTORCH_CUDA_ALLOC_CONF, "" is the default; None: the usual ones
    limit       bytes that the pool may reserve: does the run fit?
    card        bytes of another card: does the run fit there?
    torch       release of PyTorch to simulate, such as "2.11"; None: the recorded one
    batch       a number or several: other batch sizes, predicted from two or three runs, which input_path lists
    batch_of    batch sizes of these runs, in order; None: from their command lines or file names

    Returns a list with a dict for each pool, as `msmemscope whatif --json` has them; a pool that cannot be simulated has "refusal" and no "settings"
    or "batches".
    """
    if isinstance(settings, str):
        settings = [settings]
    words = [f"--set={text}" for text in settings or ()]
    words += [f"--{name}={_number(name, value, 1 << 20)}" for name, value in (("limit", limit), ("card", card)) if value is not None]
    if torch is not None:
        words.append(f"--torch={torch}")
    for name, numbers in (("batch", batch), ("batch-of", batch_of)):
        if numbers is not None:
            numbers = [numbers] if isinstance(numbers, int) else numbers
            words.append(f"--{name}=" + ",".join(str(_number(name, value, 1)) for value in numbers))
    paths = [_path(path) for path in input_path] if isinstance(input_path, (list, tuple)) else [_path(input_path)]
    try:
        return _command.document("whatif", *words, *paths)[0]["pools"]
    except _command.Failed as failure:
        raise ValueError(str(failure)) from None
