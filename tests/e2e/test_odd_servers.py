# SPDX-License-Identifier: Apache-2.0
"""Servers that speak PostgreSQL's protocol and then stop speaking, or never stop: each command ends, and says why."""
import resource
import socket
import struct
import threading

import pytest

READY = b"Z" + struct.pack("!I", 5) + b"I"
WELCOME = b"R" + struct.pack("!II", 8, 0) + READY
SET_DONE = b"C" + struct.pack("!I", 8) + b"SET\0"
COLUMN = b"T" + struct.pack("!IH", 4 + 2 + 2 + 18, 1) + b"v\0" + struct.pack("!IHIhih", 0, 0, 25, -1, -1, 0)


def row(text):
    return b"D" + struct.pack("!IHI", 10 + len(text), 1, len(text)) + text


class OddServer:
    """Listens on a port of its own; `talk(connection)` is what it does with each connection, until the other side closes."""

    def __init__(self, talk):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"postgresql://127.0.0.1:{self.listener.getsockname()[1]}/d?user=u&sslmode=disable&gssencmode=disable"
        self.talk = talk
        self.met = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.met.set()
            threading.Thread(target=self._answer, args=[connection], daemon=True).start()

    def _answer(self, connection):
        with connection:
            try:
                self.talk(connection)
                while connection.recv(65536):
                    pass
            except OSError:
                pass

    def close(self):
        self.listener.close()


def welcomes(connection):
    connection.recv(65536)
    connection.sendall(WELCOME)
    connection.recv(65536)
    connection.sendall(SET_DONE + SET_DONE + READY)
    connection.recv(65536)


def never_answers(connection):
    del connection


def stops_at_the_first_question(connection):
    welcomes(connection)


def sends_rows_for_ever(connection):
    welcomes(connection)
    rows = row(b"x" * 100000) * 20
    connection.sendall(b"1" + struct.pack("!I", 4) + b"2" + struct.pack("!I", 4) + COLUMN)
    while True:
        connection.sendall(rows)


def sends_a_row_that_never_ends(connection):
    """One value of 2 GB, which a client has to hold at once."""
    welcomes(connection)
    connection.sendall(b"1" + struct.pack("!I", 4) + b"2" + struct.pack("!I", 4) + COLUMN +
                       b"D" + struct.pack("!IHI", 0x7ffffff0, 1, 0x7ffffff0 - 10))
    while True:
        connection.sendall(bytes(1 << 20))


@pytest.fixture
def odd():
    made = []

    def start(talk):
        made.append(OddServer(talk))
        return made[-1]

    yield start
    for server in made:
        server.close()


@pytest.mark.parametrize("talk", [never_answers, stops_at_the_first_question, sends_rows_for_ever])
def test_a_launch_ends_though_its_store_does_not_answer(odd, msmemscope, program, out, talk):
    """Within $MSMEMSCOPE_STORE_WAIT from connection to the last row; the limit of the test is half of what a question may take."""
    server = odd(talk)
    done = msmemscope(f"--store={server.url}", "--", *program("leaky_steps"), output=out / "results", timeout=60,
                      env={"MSMEMSCOPE_RUN": "r", "MSMEMSCOPE_STORE_WAIT": 1})
    assert server.met.is_set() and done.returncode == msmemscope.bare(*program("leaky_steps")).returncode, str(done)
    [line] = [line for line in done.stderr.splitlines() if "nothing is lost" in line]
    assert "0 of 1 processes are stored" in line, str(done)


@pytest.mark.parametrize("talk,said", [(sends_rows_for_ever, "more than a store holds"), (sends_a_row_that_never_ends, "postgresql://127")])
def test_a_server_that_never_stops_is_refused(odd, msmemscope, talk, said):
    """The helper's memory is bounded: it and the command take less than the answer has sent."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    done = msmemscope("fleet", "show", "--store", odd(talk).url, output=False)
    assert done.returncode == 1 and said in done.stderr, str(done)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss <= max(before, 300 << 10), "KiB"
