# SPDX-License-Identifier: Apache-2.0
"""A dry run (`msmemscope dryrun`): the program runs on the simulated NPU, which computes only what is small, or on the simulated CUDA, which
computes nothing, and ends after a few steps.

What the command must know of it are notes of the trace that start with "dry run: ": where the program died, which values it read that
nobody had computed. src/cli/dry_notes.h has the same words.
"""
import builtins
import io
import linecache
import os
import sys
import threading

from . import _who
from ._boot import finish_labels, note, when_imported
from ._native import collector, ctypes

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_TEXT_MAX = 60  # characters of a line of source that a note shows
_VALUES_MAX = 100  # lines that read values which nobody computed
_READS_MAX = 10000  # of one line, without a step and without a new peak: a loop that waits for a value
_GROWTHS_MAX = 3  # such a loop goes on at most this often because it takes memory: it gathers data, or never ends
_HOW = (" read as 0", " read without its value", " taken as full (upper bound)")  # enum rt_sim_unknown of the simulated NPU

# What integers are larger by that nobody computed: more than hides below a peak, and not so much that a loop over it takes minutes.
_MORE = 100003 if "MSMEMSCOPE_DRY_OTHER" in os.environ else 0

_LBFGS = os.path.join("torch", "optim", "lbfgs.py")

_wanted = 0  # steps after which the program ends; 0: it ends by itself
_taken = 0
_marked = False  # the program marks steps itself: those of its optimizers do not count
_ended = None  # tells the trace that the program has ended
_listener = None  # of mstx; ctypes does not keep it
_values = None  # listener of the simulated NPU or CUDA
_cuda = None  # the simulated CUDA; None: an NPU
_missing = None  # what the simulated CUDA could not do, most lately
_told_times = 0  # values
_numbers = set()  # kinds of numbers that nobody computed and the program read
_workspaces = 0  # the largest that a convolution may have
_reads = {}  # text about a value: how often it was read since the latest step
_said = set()  # what is not simulated, with its line
_growths = 0  # how often a loop has gone on
_peak = 0  # of tensors, when _READS_MAX reads of one line were last looked at


def _is_users(filename):
    return not (filename.startswith(_PACKAGE) or f"{os.sep}site-packages{os.sep}" in filename or
                f"{os.sep}dist-packages{os.sep}" in filename or filename.startswith(("<", os.path.dirname(os.__file__) + os.sep)))


def _expression(code, instruction, line):
    """The source of what runs: the expression where the interpreter knows its columns (from 3.11 on), else its line."""
    positions = getattr(code, "co_positions", None)
    if positions is not None:
        for index, (first, last, start, end) in enumerate(positions()):
            if index * 2 == instruction and first == last == line and start is not None and end is not None:
                text = linecache.getline(code.co_filename, line).encode()[start:end].decode("utf-8", "replace")
                if text:
                    return text
                break
    return linecache.getline(code.co_filename, line).strip()


def _site(frames):
    """"train.py:31 optimizer.step()" of the innermost function that is the user's own, else of the innermost; frames from the inside out."""
    chosen = None
    for code, instruction, line in frames:
        if line is None:
            continue
        chosen = chosen or (code, instruction, line)
        if _is_users(code.co_filename):
            chosen = (code, instruction, line)
            break
    if chosen is None:
        return "?"
    code, instruction, line = chosen
    text = " ".join(_expression(code, instruction, line).split())
    if len(text) > _TEXT_MAX:
        text = text[:_TEXT_MAX - 3] + "..."
    return f"{os.path.basename(code.co_filename)}:{line} {text}".rstrip()


def _died_at():
    """Where an exception came from that nobody caught; None if there was none."""
    traceback = getattr(sys, "last_traceback", None)
    if traceback is None:
        return None
    frames = []
    while traceback is not None:
        frames.append((traceback.tb_frame.f_code, traceback.tb_lasti, traceback.tb_lineno))
        traceback = traceback.tb_next
    return _site(reversed(frames))


def _frames(frame):
    while frame is not None:
        yield frame.f_code, frame.f_lasti, frame.f_lineno
        frame = frame.f_back


def _users_frame():
    """Of this thread; of the main thread if nothing here is the user's own, as in autograd's threads."""
    frame = sys._getframe(1)  # the caller's may be the last: threads of autograd have none of their own
    if not any(_is_users(code.co_filename) for code, _, _ in _frames(frame)):
        frame = sys._current_frames().get(threading.main_thread().ident, frame)
    return frame


def _value(kind, _name, how=None):
    """The thread that is here has got a value that nobody computed, or a shape that follows from one."""
    global _told_times
    _told_times += 1
    try:
        from . import _small
        where = _site(_frames(_users_frame()))
        how = how or _HOW[min(kind, len(_HOW) - 1)]
        text = where + (f" read as {_small.number_read}" if how == " read as 0" else how)
        if text not in _reads:
            if len(_reads) >= _VALUES_MAX:
                return
            note(f"dry run: value: {text}")
        _reads[text] = _reads.get(text, 0) + 1
        if _reads[text] >= _READS_MAX:
            _look_for_loop(where, text)
    except Exception as error:  # pylint: disable=broad-exception-caught  # the program goes on
        note(f"a value that was not computed has no line: {type(error).__name__}: {error}")


def _look_for_loop(where, text):
    global _peak, _growths
    _reads[text] = 0
    peak = sys.modules["torch"].cuda.max_memory_allocated() if _cuda is not None else sys.modules["torch_npu"].npu.max_memory_allocated()
    if peak > _peak and _growths < _GROWTHS_MAX:
        _peak, _growths = peak, _growths + 1
        return
    if peak > _peak:
        times = f"more than {_GROWTHS_MAX * _READS_MAX:,} times, without a step"
    else:
        times = f"{_READS_MAX:,} times, without a step and without more memory"
    note(f"dry run: ended at {where}: it read a value that was not computed {times}")
    _end()


def _name_lines(torch):
    """
    The run for classes tells the lines that start a backward pass: its memory is taken on threads of PyTorch's own, which have no line. Other runs
    have the figures.
    """
    run = getattr(torch.autograd, "_engine_run_backward", None)
    if run is None or "MSMEMSCOPE_DRY_CLASSES" not in os.environ:
        return
    told = set()

    def begins(*args, **kwargs):
        for code, _, line in _frames(sys._getframe(1)):
            if _is_users(code.co_filename):
                if (code, line) not in told and len(told) < _VALUES_MAX:
                    told.add((code, line))
                    function = "" if code.co_name == "<module>" else f" {code.co_name}"
                    note(f"dry run: backward: {os.path.basename(code.co_filename)}:{line}{function}")
                break
        return run(*args, **kwargs)

    torch.autograd._engine_run_backward = begins


def _npu_is_here(_module):
    global _values
    _name_lines(sys.modules["torch"])
    _values = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_char_p)(_value)
    ctypes.CDLL("libruntime.so").rtSimListen(_values)
    from ._small import install_reads
    install_reads(sys.modules["torch"], lambda: _told_times, _number, _MORE)


def _told(kind, what):
    """The simulated CUDA has something to say: enum sim_told of simcuda/sim.h."""
    global _missing, _workspaces
    text = what.decode("utf-8", "replace")
    if kind == 0:
        _value(kind, None, " read as True" if text == "true" else f" read as {text}")
    elif kind == 1:
        _value(kind, None, " read without its values")
    elif kind == 5:
        _value(2, None)
    elif kind == 4:
        _workspaces = max(_workspaces, int(text))
    else:
        _missing = f"simcuda: {text}"
        try:
            said = f"{_site(_frames(_users_frame()))}: {text}"
        except Exception:  # pylint: disable=broad-exception-caught  # the program goes on
            said = text
        if said not in _said and len(_said) < _VALUES_MAX:
            _said.add(said)
            note(f"dry run: missing: {said}")


def _number(size):
    """A number that nobody computed was read: an integer may be a size, any other one may decide where the program goes."""
    kind = "numbers" if size else "conditions"
    if kind not in _numbers:
        note(f"dry run: {kind}")
        _numbers.add(kind)
    if "lbfgs" not in _numbers and any(code.co_filename.endswith(_LBFGS) for code, _, _ in _frames(sys._getframe(1))):
        _numbers.add("lbfgs")
        note(f"dry run: missing: {_site(_frames(_users_frame()))}: the history of LBFGS follows from values that were not computed")


def _cuda_is_here(torch):
    """Without kernels for the card PyTorch fails when it launches the first one, here as there."""
    number = ctypes.c_int()
    card = tuple(_cuda.cudaDeviceGetAttribute(ctypes.byref(number), which, 0) or number.value for which in (75, 76))  # 75.76: the capability
    kinds = torch.cuda.get_arch_list()
    runs = 0
    for kind in kinds:
        name, _, digits = kind.rstrip("af").partition("_")
        if digits.isdigit():
            major, minor = divmod(int(digits), 10)
            if (major == card[0] and minor <= card[1]) if name == "sm" else (major, minor) <= card:
                runs = max(runs, int(digits))
    _cuda.simcuda_compiled_for(runs)
    if kinds and not runs:
        _cuda.simcuda_refuse(f"torch {torch.__version__} has no kernels for a card of capability {card[0]}.{card[1]}, "
                             f"only {', '.join(kinds)}".encode())
    _name_lines(torch)
    from ._small import install
    install(torch, _cuda, lambda how: _value(0, None, how), lambda: _told_times, _number, _MORE)


def _compiler_is_here(_module):
    """torch.compile() is at work: what its kernels need depends on choices that are made on the card."""
    note(f"dry run: ended at {_site(_frames(_users_frame()))}: torch.compile() makes kernels of its own, whose memory is not known; "
         "without it (TORCHDYNAMO_DISABLE=1) the program can be run dry")
    _end()


def _dynamo_is_here(module):
    """Any other compiler of torch.compile(): it cannot see through what we have put around PyTorch's functions."""
    module.CatchErrorsWrapper.__call__ = lambda *_arguments, **_named: _compiler_is_here(module)


def _facts():
    """What the simulated CUDA knows at the end."""
    if _cuda is not None:
        _cuda.simcuda_outside.restype = ctypes.c_uint64
        note(f"dry run: outside of the pool: {_cuda.simcuda_outside()}")
        if _workspaces > 0:
            note(f"dry run: workspaces: {_workspaces}")
        _cuda.simcuda_waiting.restype = ctypes.c_uint64
        if _cuda.simcuda_waiting() > 0:
            note(f"dry run: waits for other streams: {_cuda.simcuda_waiting()}")


def finished():
    """The program's own code has ended, by itself."""
    _facts()
    where = _died_at()
    if where is not None:
        lines = str(sys.last_value).strip().splitlines()
        wrong = next((line.strip() for line in lines if "simnpu: " in line), lines[0] if lines else "")
        # Libraries above the simulated CUDA do not pass its words on.
        wrong = _missing or wrong
        note(f"dry run: died at {where}")
        note(f"dry run: because of {type(sys.last_value).__name__}: {wrong[:200]}")


def _end():
    """Ends the process here. Neither handlers of the program nor its `finally` run: they would save a model that was never trained."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass
    _facts()
    finish_labels()
    if _ended is not None:
        _ended()
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is not None:
        for child in multiprocessing.active_children():
            child.terminate()
    os._exit(0)


def _step(marked):
    global _taken, _marked, _growths
    if marked and not _marked:
        _marked, _taken = True, 0
    if marked or not _marked:
        _taken += 1
        for text in _reads:
            _reads[text] = 0
        _growths = 0
        if _cuda is not None:
            _cuda.simcuda_step()
        if _taken == _wanted:
            _end()


def _range(ends):
    """A range 'step start' of mstx starts or has ended."""
    global _taken, _marked
    if ends:
        _step(True)
    elif not _marked:
        _marked, _taken = True, 0


def _listen_to_cuda():
    global _cuda, _values
    try:
        _cuda = ctypes.CDLL("libsimcuda.so")
    except OSError:  # a process that cleared its environment
        return
    _values = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_char_p)(_told)
    _cuda.simcuda_listen(_values)
    when_imported("torch", _cuda_is_here)
    when_imported("torch._inductor.compile_fx", _compiler_is_here)
    when_imported("torch._dynamo.convert_frame", _dynamo_is_here)


class _Kept(io.RawIOBase):
    """Standard input, of which what is read is kept for the runs that follow."""

    def __init__(self, source, path):
        self._source, self._kept = source, open(path, "ab", buffering=0)

    def readable(self):
        return True

    def fileno(self):
        return self._source.fileno()

    def isatty(self):
        return self._source.isatty()

    def readinto(self, room):
        count = self._source.readinto(room)
        if count:
            self._kept.write(bytes(room[:count]))
        return count


def _keep_input(path):
    try:
        if sys.stdin.isatty():
            asks = builtins.input

            def asked(prompt="", /):
                line = asks(prompt)
                with open(path, "a", encoding="utf-8") as kept:
                    kept.write(line + "\n")
                return line

            builtins.input = asked
        else:
            raw = _Kept(sys.stdin.buffer.raw, path)
            sys.stdin = io.TextIOWrapper(io.BufferedReader(raw), encoding=sys.stdin.encoding, errors=sys.stdin.errors)
    except (AttributeError, OSError):  # no standard input, or another one
        pass


def begin(ended):
    """Before the first line of the script; `ended` as in _boot.begin()."""
    global _wanted, _ended, _listener
    _wanted, _ended = int(os.environ.get("MSMEMSCOPE_DRY_STEPS", "0")), ended
    _who.on_step = _step
    if "MSMEMSCOPE_DRY_INPUT" in os.environ:
        _keep_input(os.environ.pop("MSMEMSCOPE_DRY_INPUT"))
    if ctypes is not None:
        _listener = ctypes.CFUNCTYPE(None, ctypes.c_uint32)(_range)
        collector.mscope_step_listener(ctypes.cast(_listener, ctypes.c_void_p).value)
        if "SIMCUDA_DEVICE" in os.environ:
            _listen_to_cuda()
        else:
            when_imported("torch_npu", _npu_is_here)
