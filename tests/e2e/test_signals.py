# SPDX-License-Identifier: Apache-2.0
"""A launched program gets the signals, the descriptors and the surroundings that it gets without us, and ends as it would.

Most tests run twice, `direct` and `launched`, and expect the same of both. MSMEMSCOPE_BIN names the command, MSMEMSCOPE_TARGETS
the folder of the programs from tests/targets.
"""
import contextlib
import ctypes
import fcntl
import itertools
import os
import pathlib
import pty
import re
import resource
import select
import shutil
import signal
import struct
import subprocess
import termios
import time
import uuid

import pytest

from harness import FOREIGN

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMAND = pathlib.Path(os.environ.get("MSMEMSCOPE_BIN", ROOT / "build/dist/bin/msmemscope")).resolve()
TARGETS = pathlib.Path(os.environ.get("MSMEMSCOPE_TARGETS", ROOT / "build/release/tests/targets")).resolve()
LOG = str(TARGETS / "signals_log")
DIE = str(TARGETS / "signals_die")
STATE = str(TARGETS / "signals_state")

PATIENCE_S = 30  # for what must happen
QUIET_S = 0.2    # for what must not; the supervisor decides within a quarter of this
REPEATS = int(os.environ.get("MSMEMSCOPE_REPEATS", "5"))

LIBC = ctypes.CDLL(None, use_errno=True)

both = pytest.mark.parametrize("how", ["direct", "launched"])
racy = pytest.mark.parametrize("how", ["direct"] + ["launched"] * REPEATS,
                               ids=["direct", *(f"launched-{turn}" for turn in range(REPEATS))])
repeated = pytest.mark.parametrize("turn", range(REPEATS))


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    """Neither command nor program sees settings of the tests or of the developer."""
    for path in (COMMAND, pathlib.Path(LOG)):
        assert path.is_file(), f"no {path}: run make, or set MSMEMSCOPE_BIN and MSMEMSCOPE_TARGETS"
    for name in list(os.environ):
        if name.startswith(FOREIGN):
            monkeypatch.delenv(name)


@pytest.fixture
def start(tmp_path):
    """start(how, program, args...) is the command line, direct or launched."""
    def command(how, *words):
        prefix = [str(COMMAND), "-o", str(tmp_path / "out"), "--"] if how == "launched" else []
        return prefix + [str(word) for word in words]
    return command


def state_of(pid):
    """State letter of a process; None when there is none."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def children_of(pid):
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            head, _, rest = path.read_text().rpartition(")")
            if int(rest.split()[1]) == pid:
                found[int(path.parent.name)] = head.partition("(")[2]
    return found


def eventually(check):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if check():
            return True
        time.sleep(0.01)
    return False


class Reader:
    """Lines of a descriptor, with patience."""

    def __init__(self, fd):
        self.fd = fd
        self.text = ""

    def fill(self, timeout):
        if not select.select([self.fd], [], [], timeout)[0]:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # a terminal whose other side is closed
            data = b""
        self.text += data.decode(errors="replace")
        return bool(data)

    def until(self, pattern):
        deadline = time.monotonic() + PATIENCE_S
        while not (match := re.search(pattern, self.text)):
            left = deadline - time.monotonic()
            assert left > 0 and self.fill(left), f"no {pattern!r} in {self.text!r}"
        return match

    def settle(self, seconds=QUIET_S):
        """Everything so far and within the next moment."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if not self.fill(left):
                break
        return self.text

    def got(self):
        # A terminal may echo a key in front of it.
        return re.findall(r"got (.*?)\r?\n", self.settle())


class Job:
    """A signals_log that runs in a process group of its own."""

    def __init__(self, command, **options):
        options.setdefault("preexec_fn", os.setpgrp)
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)
        self.pid = self.process.pid
        self.reader = Reader(self.process.stdout.fileno())
        match = self.reader.until(r"ready (\d+) (\d+)\n")
        self.program, self.parent = int(match[1]), int(match[2])

    def got(self):
        return self.reader.got()

    def end(self):
        self.process.stdin.write(b"end\n")
        self.process.stdin.flush()
        return self.process.wait(PATIENCE_S)

    def engine(self):
        (pid,) = [pid for pid in children_of(self.pid) if pid != self.program]
        return pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in {self.program, self.pid}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)
        self.process.stdin.close()
        self.process.stdout.close()


@contextlib.contextmanager
def terminal(command, **environment):
    """Runs the command as leader of a session with a new terminal; gives its pid and the terminal."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(environment)
        os.execvp(command[0], command)
    try:
        yield pid, fd
    finally:
        for child in [*children_of(pid), pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        with contextlib.suppress(OSError):
            os.close(fd)


# Signals that processes send


@racy
@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "USR1", "QUIT", "WINCH", "CONT", "TSTP"])
def test_signal_to_the_visible_pid_arrives_once(start, how, name):
    with Job(start(how, LOG, name)) as job:
        os.kill(job.pid, signal.Signals[f"SIG{name}"])
        job.reader.until("got")
        assert job.got() == [name]
        assert job.end() == 0


@racy
@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "USR1", "CONT"])
def test_signal_to_the_group_arrives_once(start, how, name):
    with Job(start(how, LOG, name)) as job:
        os.killpg(job.pid, signal.Signals[f"SIG{name}"])
        job.reader.until("got")
        assert job.got() == [name]
        assert job.end() == 0


@both
def test_later_signals_arrive_each(start, how):
    with Job(start(how, LOG, "USR1")) as job:
        for count in range(1, 4):
            os.kill(job.pid, signal.SIGUSR1)
            assert job.got() == ["USR1"] * (2 * count - 1)
            os.killpg(job.pid, signal.SIGUSR1)
            assert job.got() == ["USR1"] * 2 * count


@both
def test_queued_signals_keep_their_order_and_value(start, how):
    with Job(start(how, LOG, "RT1")) as job:
        for value in (3, 1, 2):
            assert LIBC.sigqueue(job.pid, 35, ctypes.c_void_p(value)) == 0
        assert job.got() == [f"RT1 value {value} from {os.getpid()}" for value in (3, 1, 2)]


@racy
@pytest.mark.parametrize("option", [[], ["--foreground"]], ids=["group", "foreground"])
def test_timeout_terminates_once(start, how, option):
    command = ["timeout", *option, "-s", "TERM", "0.5", *start(how, LOG, "TERM")]
    with Job(command, preexec_fn=os.setpgrp) as job:
        job.reader.until("got")
        # Without us, timeout's second signal, to the group, may come after the first, to the pid, was handled.
        allowed = (1, 2) if how == "direct" and not option else (1,)
        got = job.got()
        assert len(got) in allowed and set(got) == {"TERM"}
        assert job.end() == 124


@both
@pytest.mark.parametrize("option", [[], ["--foreground"]], ids=["group", "foreground"])
def test_timeout_ends_a_program_that_does_not_care(start, how, option):
    begin = time.monotonic()
    assert subprocess.run(["timeout", *option, "0.5", *start(how, "sleep", "60")]).returncode == 124
    assert time.monotonic() - begin < PATIENCE_S


@both
def test_nohup_protects(start, how):
    with Job(["nohup", *start(how, LOG, "USR1")], stderr=subprocess.DEVNULL) as job:
        os.kill(job.pid, signal.SIGHUP)
        os.killpg(job.pid, signal.SIGHUP)
        os.kill(job.pid, signal.SIGUSR1)
        job.reader.until("got")
        assert job.got() == ["USR1"]
        assert job.end() == 0


@racy
def test_pkill_by_the_programs_command_line_arrives_once(start, how):
    word = uuid.uuid4().hex
    with Job(start(how, LOG, "TERM", word)) as job:
        subprocess.run(["pkill", "-TERM", "-f", word], check=True)
        job.reader.until("got")
        assert job.got() == ["TERM"]


@repeated
def test_pkill_by_our_command_line_arrives_once(start, tmp_path, turn):
    word = uuid.uuid4().hex
    command = start("launched", LOG, "TERM")
    command[command.index("-o") + 1] = str(tmp_path / word)
    with Job(command) as job:
        subprocess.run(["pkill", "-TERM", "-f", word], check=True)
        job.reader.until("got")
        assert job.got() == ["TERM"]


def test_program_that_left_the_group_gets_what_timeout_sends(start):
    with Job(start("launched", "setsid", LOG, "TERM")) as job:
        os.kill(job.pid, signal.SIGTERM)
        os.killpg(job.pid, signal.SIGTERM)
        job.reader.until("got")
        assert set(job.got()) == {"TERM"}


def test_engine_may_die(start):
    with Job(start("launched", LOG, "TERM", "USR1")) as job:
        os.kill(job.engine(), signal.SIGKILL)
        assert eventually(lambda: list(children_of(job.pid)) == [job.program])
        os.kill(job.pid, signal.SIGTERM)
        os.kill(job.pid, signal.SIGUSR1)
        assert sorted(job.got()) == ["TERM", "USR1"]
        assert job.end() == 0


def test_engine_survives_signals_meant_for_the_program(start):
    with Job(start("launched", LOG, "TERM", "INT", "HUP", "QUIT", "USR1")) as job:
        engine = job.engine()
        for name in ("TERM", "INT", "HUP", "QUIT", "USR1"):
            os.killpg(job.pid, signal.Signals[f"SIG{name}"])
            os.kill(engine, signal.Signals[f"SIG{name}"])
        assert sorted(job.got()) == sorted(("TERM", "INT", "HUP", "QUIT", "USR1"))
        assert state_of(engine) in "SR"
        assert job.end() == 0


def test_signal_to_the_engine_long_ago_does_not_hide_one_to_the_program(start):
    with Job(start("launched", LOG, "USR1")) as job:
        os.kill(job.engine(), signal.SIGUSR1)
        time.sleep(QUIET_S)
        os.kill(job.pid, signal.SIGUSR1)
        assert job.got() == ["USR1"]


@racy
def test_sigkill_of_the_visible_pid_kills_the_program(start, how):
    with Job(start(how, LOG)) as job:
        engines = [job.engine()] if how == "launched" else []
        os.kill(job.pid, signal.SIGKILL)
        assert job.process.wait(PATIENCE_S) == -signal.SIGKILL
        for pid in [job.program, *engines]:
            assert eventually(lambda: state_of(pid) in (None, "Z"))


# Signals that a terminal sends


@racy
@pytest.mark.parametrize("key, name", [(b"\x03", "INT"), (b"\x1c", "QUIT")])
def test_key_on_the_terminal_arrives_once(start, how, key, name):
    with terminal(start(how, LOG, name)) as (pid, fd):
        reader = Reader(fd)
        reader.until("ready")
        os.write(fd, key)
        reader.until("got")
        assert reader.got() == [name]
        os.write(fd, b"end\n")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_key_on_the_terminal_arrives_once_without_an_engine(start):
    with terminal(start("launched", LOG, "INT")) as (pid, fd):
        reader = Reader(fd)
        program = int(reader.until(r"ready (\d+)")[1])
        (engine,) = [child for child in children_of(pid) if child != program]
        os.kill(engine, signal.SIGKILL)
        assert eventually(lambda: list(children_of(pid)) == [program])
        os.write(fd, b"\x03")
        reader.until("got")
        assert reader.got() == ["INT"]


@both
def test_key_on_the_terminal_kills(start, how):
    with terminal(start(how, "sleep", "60")) as (pid, fd):
        assert eventually(lambda: how == "direct" or "sleep" in children_of(pid).values())
        time.sleep(QUIET_S)
        os.write(fd, b"\x03")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGINT


@both
def test_window_change_arrives_once(start, how):
    with terminal(start(how, LOG, "WINCH")) as (_, fd):
        reader = Reader(fd)
        reader.until("ready")
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        reader.until("got")
        assert reader.got() == ["WINCH"]


@racy
def test_hangup_arrives_once(start, tmp_path, how):
    """The visible pid leads the session, as under `docker run -t` or `xterm -e`: the kernel tells it alone."""
    log = tmp_path / "log"
    with terminal(["sh", "-c", 'exec "$@" >"$LOG_FILE"', "sh", *start(how, LOG, "HUP", "CONT")], LOG_FILE=str(log)) as (_, fd):
        assert eventually(lambda: log.exists() and "ready" in log.read_text())
        os.close(fd)
        assert eventually(lambda: "got HUP" in log.read_text() and "got CONT" in log.read_text())
        time.sleep(QUIET_S)
        assert sorted(re.findall("got (.*)", log.read_text())) == ["CONT", "HUP"]


@contextlib.contextmanager
def shell():
    """A shell that says by which signal a job stopped."""
    with terminal(["bash", "--posix", "--norc", "--noprofile", "-i"], PS1="prompt> ", TERM="dumb") as (pid, fd):
        reader = Reader(fd)
        reader.until("prompt> ")
        yield pid, fd, reader


@racy
@pytest.mark.parametrize("back", ["fg", "bg"])
def test_shell_stops_and_continues_the_job(start, how, back):
    with shell() as (bash, fd, reader):
        os.write(fd, (" ".join(start(how, LOG, "CONT")) + " </dev/null\n").encode())
        program = int(reader.until(r"ready (\d+)")[1])
        (visible,) = children_of(bash)
        for _ in range(2):
            reader.text = ""
            os.write(fd, b"\x1a")
            reader.until(r"\[1\] ?\+ +Stopped ?\(SIGTSTP\)")
            assert state_of(program) == "T" and state_of(visible) == "T"
            time.sleep(QUIET_S)
            reader.text = ""
            os.write(fd, f"{back}\n".encode())
            reader.until("got CONT")
            assert reader.got() == ["CONT"]
            assert state_of(program) in "SR" and state_of(visible) in "SR"
            if back == "bg":
                os.write(fd, b"fg\n")
                reader.until(r"fg[^$]*signals_log")
                time.sleep(QUIET_S)
        os.write(fd, b"\x03")
        os.write(fd, b"echo code=$?\n")
        reader.until("code=130")


@both
def test_background_job_that_reads_the_terminal_stops(start, how):
    with shell() as (bash, fd, reader):
        os.write(fd, (" ".join(start(how, "cat")) + " &\n").encode())
        assert eventually(lambda: len(children_of(bash)) == 1)
        (visible,) = children_of(bash)
        assert eventually(lambda: state_of(visible) == "T")
        os.write(fd, b"\n")
        reader.until(r"\[1\] ?\+ +Stopped ?\(SIGTTIN\)")
        os.write(fd, b"fg\n")
        assert eventually(lambda: state_of(visible) != "T")
        os.write(fd, b"typed\n")
        reader.until("typed\r\ntyped\r\n")
        os.write(fd, b"\x04")
        os.write(fd, b"echo code=$?\n")
        reader.until("code=0")


# Stop and continue without a terminal


@racy
@pytest.mark.parametrize("kill", [os.kill, os.killpg], ids=["pid", "group"])
def test_stop_and_continue(start, how, kill):
    with Job(start(how, LOG, "CONT", "USR1")) as job:
        for count in (1, 2):
            kill(job.pid, signal.SIGSTOP)
            assert eventually(lambda: state_of(job.program) == "T" and state_of(job.pid) == "T")
            time.sleep(QUIET_S)
            assert state_of(job.program) == "T" and state_of(job.pid) == "T"
            kill(job.pid, signal.SIGCONT)
            assert eventually(lambda: state_of(job.program) != "T" and state_of(job.pid) != "T")
            assert job.got() == ["CONT"] * count
        assert state_of(job.program) in "SR" and state_of(job.pid) in "SR"
        assert job.end() == 0


@both
@pytest.mark.parametrize("stop, resume", [(os.kill, os.kill), (os.killpg, os.killpg), (os.kill, os.killpg)],
                         ids=["pid", "group", "pid-group"])
def test_signals_to_a_stopped_job_arrive_once_when_it_continues(start, how, stop, resume):
    with Job(start(how, LOG, "USR1", "USR2")) as job:
        stop(job.pid, signal.SIGSTOP)
        assert eventually(lambda: state_of(job.program) == "T" and state_of(job.pid) == "T")
        os.kill(job.pid, signal.SIGUSR1)
        os.killpg(job.pid, signal.SIGUSR2)
        time.sleep(QUIET_S)
        assert job.got() == []
        resume(job.pid, signal.SIGCONT)
        job.reader.until("got USR1")
        assert sorted(job.got()) == ["USR1", "USR2"]


@both
@pytest.mark.parametrize("kills", [[os.kill], [os.killpg], [os.kill, os.killpg, os.killpg]], ids=["pid", "group", "mixed"])
def test_quick_stops_end_running(start, how, kills):
    with Job(start(how, LOG)) as job:
        kill = itertools.cycle(kills)
        for pause in range(20):
            next(kill)(job.pid, signal.SIGSTOP)
            time.sleep(pause * 0.01)
            next(kill)(job.pid, signal.SIGCONT)
        time.sleep(1)
        assert state_of(job.program) in "SR" and state_of(job.pid) in "SR"
        assert job.end() == 0


@repeated
def test_visible_pid_follows_stops_of_the_program(start, turn):
    with Job(start("launched", LOG, "CONT")) as job:
        os.kill(job.program, signal.SIGSTOP)
        assert eventually(lambda: state_of(job.pid) == "T")
        os.kill(job.program, signal.SIGCONT)
        assert eventually(lambda: state_of(job.pid) in "SR")
        assert job.got() == ["CONT"]
        os.kill(job.program, signal.SIGSTOP)
        assert eventually(lambda: state_of(job.pid) == "T")
        os.kill(job.program, signal.SIGKILL)
        assert job.process.wait(PATIENCE_S) == -signal.SIGKILL


# Ends


@both
def test_exit_codes_are_the_programs(start, how):
    for code in range(256):
        run = subprocess.run(start(how, DIE, "exit", code), capture_output=True)
        assert (run.returncode, run.stdout) == (code, b"out\n")
        assert b"err\n" in run.stderr


@both
@pytest.mark.parametrize("number", [*range(1, 16), signal.SIGXCPU, signal.SIGSYS, signal.SIGRTMIN + 1])
def test_death_by_signal_is_the_programs(start, tmp_path, how, number):
    def with_core():
        resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)

    process = subprocess.Popen(start(how, DIE, "signal", int(number)), cwd=tmp_path, preexec_fn=with_core)
    status = os.waitpid(process.pid, 0)[1]
    assert os.waitstatus_to_exitcode(status) == -number
    if how == "launched":
        assert not os.WCOREDUMP(status)


@both
@pytest.mark.parametrize("name", ["SEGV", "ABRT", "KILL"])
def test_shell_sees_the_same_death(start, tmp_path, how, name):
    number = signal.Signals[f"SIG{name}"]
    line = 'ulimit -c 0; "$@"; echo code=$?'
    run = subprocess.run(["sh", "-c", line, "sh", *start(how, DIE, "signal", int(number))], capture_output=True, text=True)
    assert run.stdout == f"out\ncode={128 + number}\n"


@both
def test_output_is_the_programs(start, tmp_path, how):
    data = os.urandom(3_000_000)
    run = subprocess.run(start(how, "cat"), input=data, capture_output=True)
    assert run.stdout == data
    run = subprocess.run(start(how, "sh", "-c", "cat >&2"), input=data, capture_output=True)
    assert data in run.stderr if how == "launched" else run.stderr == data


@both
def test_reader_that_leaves_ends_the_program(start, how):
    line = '"$@" | head -1; echo "${PIPESTATUS[@]}"'
    run = subprocess.run(["bash", "-c", line, "bash", *start(how, "yes")], stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S)
    assert run.stdout == "y\n141 0\n"


@both
def test_writer_notices_that_the_program_left(start, how):
    line = 'yes | "$@"; echo "${PIPESTATUS[@]}"'
    run = subprocess.run(["bash", "-c", line, "bash", *start(how, "head", "-1")], stdout=subprocess.PIPE, text=True,
                         timeout=PATIENCE_S)
    assert run.stdout == "y\n141 0\n"


@both
def test_descriptor_from_outside_ends_with_the_program(start, how):
    """Others than 0 to 2 too: a make jobserver, a lock, a process substitution."""
    reader, writer = os.pipe()
    with Job(start(how, "bash", "-c", f"exec {writer}>&-; exec {LOG}"), pass_fds=[writer]) as job:
        os.close(writer)
        assert select.select([reader], [], [], PATIENCE_S)[0] and os.read(reader, 1) == b""
        assert job.end() == 0
    os.close(reader)


@both
@pytest.mark.parametrize("case, code", [("nothing", 127), ("plain", 126), ("folder", 126), ("interpreter", 127), ("junk", 126)])
def test_what_cannot_be_executed_is_said(start, tmp_path, how, case, code):
    path = tmp_path / case
    if case == "plain":
        path.write_text("text")
    elif case == "folder":
        path.mkdir()
    elif case == "interpreter":
        path.write_text("#!/nowhere/python\n")
        path.chmod(0o755)
    elif case == "junk":
        shutil.copy("/bin/true", path)
        with path.open("r+b") as file:
            file.seek(18)
            file.write(b"\xff\x7f")  # the machine
    line = '"$@"'
    run = subprocess.run(["sh", "-c", line, "sh", *start(how, path)], capture_output=True, text=True)
    assert run.returncode == code
    assert str(path) in run.stderr


@both
def test_text_without_interpreter_line_goes_to_the_shell(start, tmp_path, how):
    path = tmp_path / "script"
    path.write_text('echo "$0 $1"\n')
    path.chmod(0o755)
    run = subprocess.run(["env", *start(how, path, "word")], stdout=subprocess.PIPE, text=True)
    assert (run.returncode, run.stdout) == (0, f"{path} word\n")


# Surroundings


OURS = re.compile(r"^(LD_PRELOAD|LD_LIBRARY_PATH|LD_PRELOAD_PATH|MSMEMSCOPE_\w*|ASCEND_\w*|session)\b.*\n", re.M)


def surroundings(command, **options):
    text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, **options).stdout
    return OURS.sub("", text)


def test_surroundings_are_the_same(start, tmp_path):
    def unusual():
        os.setpgrp()
        os.umask(0o027)
        os.nice(3)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2, signal.SIGTERM])
        signal.setitimer(signal.ITIMER_REAL, 1000)
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 4096))

    with open(tmp_path / "file", "w+") as file:
        os.set_inheritable(file.fileno(), True)
        high = fcntl.fcntl(file.fileno(), fcntl.F_DUPFD, 77)
        options = {"preexec_fn": unusual, "pass_fds": [file.fileno(), high], "cwd": tmp_path, "stdin": subprocess.DEVNULL}
        direct, launched = (re.sub(r"fd 1 pipe:\[\d+\]", "fd 1 pipe", surroundings(start(how, STATE), **options))
                            for how in ("direct", "launched"))
        os.close(high)
    assert launched == direct
    assert "alarm set" in direct and "nice 3" in direct and "fd 77" in direct


def test_closed_descriptors_stay_closed(start, tmp_path):
    line = f'exec "$@" <&- 2>&- >{tmp_path}/list'
    lists = []
    for how in ("direct", "launched"):
        subprocess.run(["sh", "-c", line, "sh", *start(how, STATE)], check=True)
        lists.append(re.findall("^fd .*", (tmp_path / "list").read_text(), re.M))
    assert lists[0] == lists[1]
    assert len(lists[0]) == 1


@both
def test_children_can_be_waited_for_although_nobody_waits_for_them(start, how):
    ignore = lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    assert subprocess.run(start(how, DIE, "exit", 7), preexec_fn=ignore, capture_output=True).returncode == 7


def test_program_is_a_child_of_the_visible_pid_in_its_group(start):
    with Job(start("launched", LOG)) as job:
        assert job.parent == job.pid
        assert os.getpgid(job.program) == os.getpgid(job.engine()) == job.pid
        assert os.getsid(job.program) == os.getsid(job.engine()) == os.getsid(0)


def test_engine_gives_way(start):
    with Job(start("launched", LOG)) as job:
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, job.program) == nice
        assert eventually(lambda: os.getpriority(os.PRIO_PROCESS, job.engine()) == min(nice + 10, 19))


# Pid 1 of a container


def in_container(command, **options):
    namespace = ["unshare", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*namespace, "true"], capture_output=True).returncode != 0:
        pytest.skip("process namespaces are not allowed here")
    return subprocess.run([*namespace, *command], capture_output=True, text=True, timeout=PATIENCE_S, **options)


@pytest.mark.parametrize("ending, code", [(["exit", 5], 5), (["signal", 15], 143), (["signal", 9], 137)])
def test_pid_1_tells_the_end_by_its_exit_code(start, ending, code):
    assert in_container(start("launched", DIE, *ending)).returncode == code


def test_pid_1_reaps_orphans(start):
    # The subshell leaves an orphan that ends at once; the program then counts the dead that nobody has reaped.
    script = "(true & true & true &); sleep 0.5; ps -e -o stat= | grep -c Z"
    assert in_container(start("launched", "sh", "-c", script)).stdout.strip() == "0"


def test_pid_1_passes_signals_on(start):
    script = 'trap "echo got TERM; exit 3" TERM; kill -TERM 1; while :; do sleep 0.1; done'
    run = in_container(start("launched", "sh", "-c", script))
    assert (run.returncode, run.stdout) == (3, "got TERM\n")


@pytest.mark.parametrize("where", ["above", "below", "altstack"])
def test_a_handler_that_does_not_return(traced, where):
    """siglongjmp() out of an event, at each moment that the collector asks for the time: this thread and others are recorded
    as before, and at most the event that was left is missing, and counted."""
    result = traced("jump_out", where, driver="bare", timeout=60)
    result.run.check()
    pairs = result.pairs()
    assert len(pairs) == 60
    for project, process in pairs:
        found = [(row.tid, row.event, row.ptr, row.attr["size"]) for row in result.rows(project) if row.attr["size"] != 5000011]
        made = [(tid, op, block.address, block.size) for tid, events in process.threads.items() for op, block in events]
        # Stable: the order within a thread counts.
        assert sorted(found, key=lambda event: event[0]) == sorted(made, key=lambda event: event[0])
        left = [row for row in result.rows(project) if row.attr["size"] == 5000011]
        losses = result.info(project)["losses"]
        lost = losses.pop("nested")
        assert not any(losses.values()), losses
        assert 1 <= len(left) + lost <= 2
