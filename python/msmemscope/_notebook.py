# SPDX-License-Identifier: Apache-2.0
"""Notebooks: `%load_ext msmemscope`, then

    %%msmemscope
    model(batch)

records while the cell runs and shows what the cell did with memory: the page of `msmemscope report`, of the cell's own window, and
for viewers without HTML a summary as text. Words after the name are those of config(): `%%msmemscope --call-stack=python
--device=npu,cpu`. Files are as after stop(); the cell runs the same without a collector.
"""
import csv
import glob
import html
import linecache
import os
import shlex
import sqlite3
import sys
import tempfile
from typing import Any

from . import _command, _control, _native

PLACES = 5  # of what a cell left allocated
CELL_BYTES = 1000000  # of the page in a cell, at most
_HEIGHT = 640


def _size(count):
    value, unit = float(abs(count)), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1023.5:
            break
        value, unit = value / 1024, larger
    number = f"{value:.0f}" if unit == "B" or value >= 100 else f"{value:.1f}"
    return f"{'-' if count < 0 else ''}{number} {unit}"


def _attributes(text):
    """{key: value} of a row's Attr, as far as it is numbers and words; a database quotes both."""
    return dict(part.partition(":")[::2] for part in text.replace('"', "").strip("{}").split(",") if ":" in part)


def _place(stack):
    """The line of a cell that a Python stack goes through, else its innermost line."""
    lines = [line for line in stack.strip('"').split("\n") if line]
    cells = [line for line in lines if line.startswith("In[")]
    return (cells or lines or ["?"])[0]


def _rows(project):
    """The rows of each file of a project, as {column: text}."""
    for path in sorted(glob.glob(os.path.join(glob.escape(project), "device_*", "dump", "memscope_dump_*"))):
        if path.endswith(".csv"):
            with open(path, newline="", encoding="utf-8", errors="surrogateescape") as file:
                rows = list(csv.DictReader(file))
        elif path.endswith(".db"):
            with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as base:
                base.row_factory = sqlite3.Row
                rows = [dict(row) for row in base.execute("select * from memscope_dump order by ID")]
        else:
            continue
        yield rows


class Pool:
    """What a cell did with one pool of one device."""

    def __init__(self):
        self.before = self.used = self.peak = None
        self.allocations = self.frees = 0
        self.kept = {}  # address: (bytes, Python stack)

    def take(self, row):
        attributes = _attributes(row.get("Attr") or "")
        size = int(attributes.get("size", 0))
        if attributes.get("shadow") == "true":
            return
        # CPU tensors have no pool: the sum of those that live is their total.
        level = attributes.get("used", attributes.get("total", "") if row["Event Type"] == "HOST" else "")
        used = int(level) if level.isdigit() else None
        if row["Event"] == "MALLOC":
            self.allocations += 1
            self.kept[row["Ptr"]] = (size, row.get("Call Stack(Python)") or "")
            before = None if used is None else used - size
        else:
            self.frees += 1
            self.kept.pop(row["Ptr"], None)
            before = None if used is None else used + size
        if used is None:
            return
        if self.before is None:
            self.before = self.peak = before
        self.used, self.peak = used, max(self.peak, used, before)


def _last_window(rows):
    """Rows behind the last START_TRACE."""
    begins = [at for at, row in enumerate(rows) if row.get("Event Type") == "START_TRACE"]
    return rows[begins[-1] + 1:] if begins else rows


def summary(project):
    """What the last window of a project's process did, as lines for a person."""
    pools = {}
    for rows in _rows(project):
        for row in _last_window(rows):
            if row["Event"] in ("MALLOC", "FREE"):
                pools.setdefault((str(row["Device Id"]), row["Event Type"]), Pool()).take(row)
    lines = []
    for (device, name), pool in sorted(pools.items()):
        if pool.used is None:
            continue
        where = f"device {device:4}" if device.isdigit() else f"{device:11}"
        lines.append(f"  {where} {name:13}  peak {_size(pool.peak)} (+{_size(pool.peak - pool.before)}), left "
                     f"{_size(pool.used - pool.before)}; {pool.allocations} allocations, {pool.frees} frees")
        places = {}
        for size, stack in pool.kept.values():
            where = _place(stack)
            count, total = places.get(where, (0, 0))
            places[where] = (count + 1, total + size)
        for where, (count, total) in sorted(places.items(), key=lambda item: -item[1][1])[:PLACES]:
            lines.append(f"    {_size(total):>9} in {count} {'block' if count == 1 else 'blocks'}"
                         + (f"  {where}" if where not in ("?", "NA") else ""))
    return lines or ["  no memory was allocated or freed"]


def project_of_this_process():
    """The newest directory of results of this process, or None."""
    session = _native.text(_native.collector.mscope_session) if _native.collector is not None else ""
    places = {os.path.dirname(session), _control.output()} - {""}
    found = [path for place in places for name in ("msmemscope", "msleaks")
             for path in glob.glob(os.path.join(glob.escape(place), f"{name}_{os.getpid()}_*")) if os.path.isdir(path)]
    return max(found, key=os.path.getmtime, default=None)


def _words(line):
    """{name of an argument of config(): text} of the words behind %%msmemscope."""
    arguments = {}
    for word in shlex.split(line):
        name, equals, value = word.lstrip("-").partition("=")
        if not equals:
            raise ValueError(f"%%msmemscope: '{word}' is not of the form --name=value")
        arguments[name.replace("-", "_")] = value
    return arguments


def page(project, limit=CELL_BYTES):
    """The page of the last window of a project, as an iframe of at most `limit` characters; None where there is none.

    The whole page is in the attribute srcdoc, so that a notebook which is saved, sent or converted still has it.
    """
    size = limit * 3 // 4  # quotes and ampersands are longer in an attribute
    with tempfile.TemporaryDirectory(prefix="msmemscope-") as directory:
        path = os.path.join(directory, "report.html")
        for _ in range(3):
            try:
                _command.text("report", project, "--last-window", f"--max-size={size}", f"--output={path}", "--quiet")
                with open(path, encoding="utf-8") as file:
                    text = html.escape(file.read())
            except (OSError, ValueError, _command.Failed):
                return None
            frame = f'<iframe sandbox="allow-scripts" srcdoc="{text}" title="msmemscope: memory of this cell" ' \
                    f'style="width:100%;height:{_HEIGHT}px;border:1px solid #8888"></iframe>'
            if len(frame.encode()) <= limit:
                return frame
            size = size * limit * 9 // 10 // len(frame.encode())
    return None


class Result:
    """What a cell shows: the page where HTML is shown, else the text."""

    def __init__(self, lines, frame):
        self.lines = lines
        self.frame = frame

    def __repr__(self):
        return "\n".join(self.lines)

    def _repr_html_(self):
        """The text is there too: of a notebook that is not trusted, viewers show HTML without frames and scripts."""
        text = html.escape("\n".join(self.lines))
        return self.frame and f"{self.frame}<details><summary>{html.escape(self.lines[-1])}</summary><pre>{text}</pre></details>"


def _name_file(file, name):
    if _native.collector is not None:
        _native.collector.mscope_name_file(os.fsencode(file), name.encode())


def _name_cells(shell, cell):
    """Functions of cells have a temporary file; in call stacks they read In[3], by the number beside the cell that has them.

    `cell` is the text below %%msmemscope, which runs next; its lines count from there, as in IPython's own tracebacks. Returns what
    is to be called after it ran.
    """
    compiler = shell.compile
    numbers = getattr(compiler, "_filename_map", None)  # of IPython, for its tracebacks
    if numbers is None or not hasattr(compiler, "get_code_name"):
        return lambda: None
    caller = sys._getframe(1)
    while caller is not None and caller.f_code.co_filename not in numbers:
        caller = caller.f_back
    outer = caller.f_code.co_filename if caller is not None else ""
    number = numbers.get(outer, shell.execution_count)
    for file, its in numbers.items():
        seen, ours = _below.get(file, (None, None))
        _name_file(file, f"In[{ours if its == seen else its}]")
    if linecache.getline(outer, 1).startswith("get_ipython().run_cell_magic("):
        _name_file(outer, "")  # it only calls us
    inner = compiler.get_code_name(cell, shell.transform_cell(cell), shell.execution_count)
    _name_file(inner, f"In[{number}]")

    def after():
        _below[inner] = (numbers.get(inner), number)

    return after


_below = {}  # file of a text below %%msmemscope: (its number for IPython, the number of the cell)


def _magic(shell, line, cell):
    arguments = _words(line)
    if arguments:
        _control.choose(arguments)
    _control.quiet = True  # the cell shows it
    named = _name_cells(shell, cell)
    _control.start()
    try:
        shell.run_cell(cell)
    finally:
        _control.stop()
        named()
    project = project_of_this_process()
    if project is None:
        return
    lines = ["msmemscope: memory of this cell", *summary(project)]
    if _control.chose_cpu():
        lines.append("Recorded: CPU tensors too, because no NPU and no GPU was found here (--device=npu,gpu: devices only)")
    lines.append(f"Files: {project}")
    _show(Result(lines, page(project)))


def _show(result):
    """Both forms, for a front end to choose from: a saved notebook has both."""
    from IPython.display import display
    display(result)


def load_ipython_extension(shell: Any) -> None:
    """What %load_ext msmemscope does."""
    def msmemscope(line, cell):
        """Records what the cell does with memory, and shows it. Words are those of config(): --name=value."""
        return _magic(shell, line, cell)

    shell.register_magic_function(msmemscope, magic_kind="cell", magic_name="msmemscope")


def unload_ipython_extension(shell: Any) -> None:
    """What %unload_ext msmemscope does."""
    shell.magics_manager.magics["cell"].pop("msmemscope", None)
