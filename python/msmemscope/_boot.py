# SPDX-License-Identifier: Apache-2.0
"""What runs before the first line of a script that the command started; src/collector/python/boot.c calls run().

Everything here is in the way of every Python process of a launch, most of which never see a tensor: nothing is imported
before it is needed. A script that imports the package later finds it in sys.modules, this one, whatever sys.path says.
"""
import sys

from ._api import RECORDING_ON, WANTS_ACCESS, WANTS_LABELS, WANTS_NPU_OPS, WANTS_OPS, WANTS_STEPS, WANTS_TRACE, WANTS_WATCH

FRAMEWORK = WANTS_OPS | WANTS_NPU_OPS | WANTS_ACCESS | WANTS_LABELS | WANTS_WATCH


class _Loader:
    """The module's own loader, and a call when it has done its work."""

    def __init__(self, loader, finder):
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        # Put back first, so that the module's code finds its own loader.
        module.__loader__ = module.__spec__.loader = self._loader
        try:
            self._loader.exec_module(module)
        except BaseException:
            # The script may catch this and try again.
            sys.meta_path.insert(0, self._finder)
            raise
        _guarded(self._finder.loaded, module)

    # The interpreter leaves out its own functions when it shows where an import failed, by the name of their file.
    exec_module.__code__ = exec_module.__code__.replace(co_filename="<frozen importlib._bootstrap_external>")


class _Finder:
    """First in sys.meta_path until the framework has come; any other name costs one comparison."""

    def __init__(self, name, loaded):
        self._name = name
        self.loaded = loaded

    def find_spec(self, name, path=None, target=None):
        if name != self._name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name, path, target)
        if spec is None:
            # It is not there, this time: a script may add a path and try again.
            sys.meta_path.insert(0, self)
        elif hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader, self)
        return spec


def note(text):
    """One sentence for the trace; never for the program."""
    from ._native import collector
    if collector is not None:
        collector.mscope_note(text.encode("utf-8", "replace"))


def _guarded(function, *arguments):
    try:
        function(*arguments)
    except Exception as error:
        note(f"{function.__module__}.{function.__name__} failed: {type(error).__name__}: {error}")


def when_imported(name, function):
    """Calls function(module) once the module has been imported, at once if it is there already."""
    if name in sys.modules:
        _guarded(function, sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, function))


_LOCK_S = 1  # that a thread waits for another one that makes CUDA ready


def when_cuda_is_ready(function):
    """Calls function() once PyTorch has made CUDA ready, at once if it has; never makes it ready, since forked children could not use it.

    PyTorch calls what waits for CUDA inside its own lock. So function() must neither wait nor make CUDA ready, and what it raises never
    reaches the program. A thread that makes CUDA ready right now has that lock and comes here without it.
    """
    cuda = sys.modules.get("torch.cuda")
    queued = getattr(cuda, "_queued_calls", None)
    if queued is None:
        return
    inside = hasattr(getattr(cuda, "_tls", None), "is_initializing")
    lock = None if inside else getattr(cuda, "_initialization_lock", None)
    held = lock is not None and lock.acquire(timeout=_LOCK_S)
    try:
        ready = not inside and cuda.is_initialized()
        if not ready:
            queued.append((lambda: _guarded(function), []))
    finally:
        if held:
            lock.release()
    if ready:
        _guarded(function)


_operators = 0  # what is wanted of the framework now
_waiting = False  # whether _torch_is_here() will be called


def operators(wants):
    """What is wanted of the framework from now on: at once when it is there, else when it comes; 0: nothing."""
    global _operators, _waiting
    _operators = wants if wants & FRAMEWORK else 0
    aten = sys.modules.get(f"{__package__}._aten")
    if aten is not None:
        _guarded(aten.start, _operators)
    elif _operators and not _waiting:
        _waiting = True
        when_imported("torch", _torch_is_here)


def _torch_is_here(_module):
    from . import _aten
    _aten.start(_operators)


_steps_wanted = False  # whether steps of optimizers are seen, now or once there are any


def steps():
    """From now on, or once the framework is there, an optimizer's step() is a step. The collector knows whether it counts."""
    global _steps_wanted
    if not _steps_wanted:
        _steps_wanted = True
        when_imported("torch.optim.optimizer", _optimizers_are_here)


def _optimizers_are_here(module):
    from . import _steps
    _steps.enable(module)


_allocator_wanted = False  # whether calls that change PyTorch's pool are seen, now or once there is one


def allocator():
    """From now on, or once the framework is there, calls that change its pool on CUDA are recorded."""
    global _allocator_wanted
    if not _allocator_wanted:
        _allocator_wanted = True
        when_imported("torch.cuda.memory", _allocator_is_here)
        when_imported("torch_npu.npu.memory", _npu_allocator_is_here)


def _allocator_is_here(module):
    from . import _allocator
    _allocator.enable(module)


def _npu_allocator_is_here(module):
    from . import _allocator
    _allocator.enable_npu(module)


_end_is_told = False


def at_end(ended):
    """Calls ended() when the interpreter begins to end: before exit handlers of the script, behind its threads. All labels come first.

    Handlers run in reverse order. Functions that threading calls when the last thread is to end may add one more handler, and none
    comes after that. Before Python 3.9 there are no such functions; then handlers that the script adds later come first. The
    function may be called several times.
    """
    global _end_is_told
    if not _end_is_told:
        _end_is_told = True
        import atexit

        def end():
            finish_labels()
            dry = sys.modules.get(f"{__package__}._dry")
            if dry is not None:
                _guarded(dry.finished)
            else:
                _look()
            ended()

        atexit.register(end)
        when_imported("multiprocessing.util", _look_in_forked)
        when_imported("threading", lambda threading: _add_last(threading, atexit.register, end))


def _look():
    if "torch" in sys.modules:
        from . import _who
        _who.look()


def _look_in_forked(util):
    """Children that multiprocessing forks, as workers of a DataLoader, leave by os._exit(): no exit handler of the interpreter runs. Their
    finalizers do, and this one is made first of all: what its parent had is cleared."""
    getpid = sys.modules["os"].getpid
    here = getpid()

    def forked(_util):
        if getpid() != here:  # else it was spawned, and has exit handlers
            util.Finalize(None, _guarded, (_look,), exitpriority=_FIRST)

    util.register_after_fork(_look_in_forked, forked)


_FIRST = 1 << 20  # of multiprocessing's finalizers


def finish_labels():
    """What the latest operator has left in the framework's graph is labelled at the next one, or by this."""
    owners = sys.modules.get(f"{__package__}._owners")
    if owners is not None:
        owners.finish()


def _add_last(threading, register, ended):
    add = getattr(threading, "_register_atexit", None)
    if add is not None:
        add(register, ended)


def find_spec(name, path, target):
    """As the import system finds a module: for a finder that has just given way to those of this module."""
    for finder in list(sys.meta_path):
        find = getattr(finder, "find_spec", None)
        spec = find(name, path, target) if find is not None else None
        if spec is not None:
            return spec
    return None


def watch():
    """Blocks are watched from now on: operators are seen, on the host too."""
    operators(_operators | WANTS_WATCH)


def begin(wants, ended):
    """What a launch wants before the first line of a script; the interpreter calls ended() when it begins to end."""
    at_end(ended)
    allocator()
    run(wants)
    if "MSMEMSCOPE_DRY" in sys.modules["os"].environ:
        from . import _dry
        _guarded(_dry.begin, ended)
    # Hooks of the process that started this one.
    if "MSMEMSCOPE_HOOKS" in sys.modules["os"].environ:
        from . import _hooks
        _guarded(_hooks.inherit)


def run(wants):
    """What a launch or a window wants from now on, bits of enum python_wants; 0: it has ended."""
    operators(wants)
    hooks = sys.modules.get(f"{__package__}._hooks")
    if wants & WANTS_LABELS and hooks is None:
        from . import _hooks as hooks
    if hooks is not None:
        _guarded(hooks.automatic, bool(wants & WANTS_LABELS))
    if wants & WANTS_STEPS:
        steps()
    if wants & WANTS_TRACE:
        from . import _native, tracer
        # With --collect-mode=deferred the first window begins it.
        if _native.collector.mscope_recording() == RECORDING_ON:
            _guarded(tracer.window_begins)
    elif f"{__package__}.tracer" in sys.modules:
        _guarded(sys.modules[f"{__package__}.tracer"].window_ends)
