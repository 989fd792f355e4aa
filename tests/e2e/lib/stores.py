# SPDX-License-Identifier: Apache-2.0
"""Stores for tests: a SQLite file, or a PostgreSQL server of the tests' own, on a socket in a directory that is removed with it.

PostgreSQL refuses to run as root; then it runs as the user nobody.
"""
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

import fleet_ranks
import harness

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
DATABASE = "memscope"


class Sqlite:
    kind = "sqlite"

    def __init__(self, directory):
        self.path = directory / "store.db"
        self.url = f"sqlite:{self.path}"
        self.env = {}

    def cpu_s(self):
        return 0

    def ask(self, sql, *values):
        with sqlite3.connect(f"file:{self.path}?mode=rw", uri=True, timeout=60) as db:
            return db.execute(sql, values).fetchall()


class Server:
    """A private cluster. `start`, `stop` and `kill` may be called any number of times."""

    def __init__(self):
        self.home = Path(tempfile.mkdtemp(prefix="memscope-pg-", dir="/tmp"))
        self.data = self.home / "data"
        self.user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.geteuid() == 0 else []
        if self.user:
            shutil.chown(self.home, "nobody", "nogroup")
        self._run("initdb", "-D", self.data, "-U", "tester", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--wal-segsize=1")
        self.start()
        self._run("createdb", "-h", self.home, "-U", "tester", DATABASE)
        self.made = 0

    def _run(self, program, *arguments, check=True):
        done = subprocess.run([*self.user, str(PROGRAMS[-1] / program), *map(str, arguments)], cwd=self.home, capture_output=True, text=True,
                              timeout=60)
        assert not check or done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def start(self, *options, file_bytes=None):
        """With `file_bytes` no file of the server grows beyond: as a disk that is full."""
        log = open(self.home / "log", "a")
        self.process = subprocess.Popen(
            [*(["prlimit", f"--fsize={file_bytes}"] if file_bytes else []), *self.user, str(PROGRAMS[-1] / "postgres"), "-D", str(self.data), "-k", str(self.home), "-c", "listen_addresses=",
             "-c", "fsync=off", "-c", "shared_buffers=32MB", "-c", "max_connections=40", *options],
            stdout=log, stderr=log, start_new_session=True)
        log.close()
        for _ in range(300):
            if subprocess.run([str(PROGRAMS[-1] / "pg_isready"), "-q", "-h", str(self.home)], check=False).returncode == 0:
                return
            time.sleep(0.1)
        raise AssertionError((self.home / "log").read_text())

    def hold(self, database, sql):
        """A session that has run a statement in a transaction and does not end it; a process to be killed."""
        return subprocess.Popen([*self.user, str(PROGRAMS[-1] / "psql"), "-h", str(self.home), "-U", "tester", "-d", database, "-Xqc",
                                 f"BEGIN; {sql}; SELECT pg_sleep(600)"], cwd=self.home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def stop(self, how=signal.SIGINT):
        """SIGINT ends all connections and waits for them; SIGQUIT is what a crash looks like."""
        self.process.send_signal(how)
        self.process.wait(30)

    def restart(self, *options, file_bytes=None):
        self.stop()
        self.start(*options, file_bytes=file_bytes)

    def remove(self):
        if self.process.poll() is None:
            self.stop(signal.SIGQUIT)
        shutil.rmtree(self.home, ignore_errors=True)

    def cpu_s(self):
        """Seconds that the server has computed, in all of its processes, those that have ended too."""
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if self.process.pid in (int(stat.parent.name), int(fields[1])):
                ticks += sum(map(int, fields[11:15]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def ask(self, sql, database=DATABASE):
        return [line.split("\x1f") for line in
                self._run("psql", "-h", self.home, "-U", "tester", "-d", database, "-XAtqF", "\x1f", "-c", sql).splitlines()]


class Postgresql:
    kind = "postgresql"

    def __init__(self, server):
        self.server = server
        server.made += 1
        self.database = f"store{server.made}"
        server.ask(f"CREATE DATABASE {self.database}")
        self.url = f"postgresql:///{self.database}?host={server.home}&user=tester"
        self.env = {}

    def cpu_s(self):
        return self.server.cpu_s()

    def ask(self, sql, *values):
        for number, value in enumerate(values):
            sql = sql.replace("?", str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'", 1)
        return [tuple(row) for row in self.server.ask(sql, self.database)]


def awaited(store, sql, *values):
    """What the store answers as soon as it has an answer; before, it may lack the tables, or be away."""
    for _ in range(6000):
        try:
            rows = store.ask(sql, *values)
        except (AssertionError, sqlite3.OperationalError):
            rows = []
        if rows:
            return rows
        time.sleep(0.02)
    raise AssertionError(f"never answered: {sql}")


@pytest.fixture(scope="session")
def pg_server():
    """A PostgreSQL of the tests' own."""
    made = Server()
    yield made
    made.remove()


@pytest.fixture
def pg(pg_server):
    return Postgresql(pg_server)


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request, out):
    return Sqlite(out) if request.param == "sqlite" else request.getfixturevalue("pg")


@pytest.fixture
def add(msmemscope):
    """add(store, paths..., options...)"""
    def run(store, *words, env=None):
        return msmemscope("store", "add", *words, "--to", store.url, output=False, env={**store.env, **(env or {})})

    return run


@pytest.fixture
def fleet(msmemscope):
    """fleet(store, words...): the JSON of an answer."""
    def run(store, *words, code=0):
        done = msmemscope("fleet", *words, "--store", store.url, "--json", output=False, env=store.env)
        assert done.returncode == code, str(done)
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="session")
def traces(dist, targets, runner, tmp_path_factory):
    """Results of four real ranks."""
    directory = tmp_path_factory.mktemp("traces") / "out"
    command = harness.Command(dist, directory, runner)
    for rank in range(4):
        command("--call-stack=c", "--", *runner, targets / "leaky_steps", env={"RANK": rank, "LOCAL_RANK": rank}).check()
    return directory


@pytest.fixture(scope="session")
def base(dist, runner, traces):
    """Rows of a real rank, from which synthetic ones are made."""
    rows = traces.parent / "rows"
    harness.Command(dist, None, runner)("store", "add", traces, "--to", f"rows:{rows}", output=False).check()
    return fleet_ranks.read(sorted(rows.glob("*.rows"))[0])
