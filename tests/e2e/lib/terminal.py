# SPDX-License-Identifier: Apache-2.0
"""A program on a terminal of its own, and what stands on that terminal. It understands what `top` writes and refuses anything else.

    terminal = Terminal(argv, env, rows=24, columns=80)
    terminal.until(lambda lines: "USED" in "\\n".join(lines)); terminal.resize(40, 120); terminal.write("q"); terminal.end()
"""
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

TIMEOUT_S = 60
ESCAPE = re.compile(rb"\x1b\[(\??)([0-9;]*)([A-Za-z])")


class Terminal:
    def __init__(self, argv, env, rows=24, columns=80):
        self.master, self.slave = pty.openpty()
        self.rows, self.columns, self.raw, self._left = rows, columns, b"", b""
        self.alternate, self.cursor = False, True
        self._clear()
        self._size()
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen([str(word) for word in argv], stdin=self.slave, stdout=self.slave, stderr=self.slave,  # pylint: disable=consider-using-with
                                        env={**env, "TERM": "xterm"}, start_new_session=True, preexec_fn=self._own)

    @staticmethod
    def _own():
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def _clear(self):
        self.lines, self.row, self.column, self.scrolled = [""] * self.rows, 0, 0, 0

    def _size(self):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", self.rows, self.columns, 0, 0))

    def resize(self, rows, columns):
        """As a window does: the kernel tells the program."""
        self.rows, self.columns = rows, columns
        self._clear()
        self._size()

    def write(self, text):
        os.write(self.master, text.encode())

    def _feed(self, data):
        data, self._left = self._left + data, b""
        while data:
            if data[:1] == b"\x1b":
                found = ESCAPE.match(data)
                if not found:
                    assert len(data) < 16, f"unknown: {data[:40]!r}"
                    self._left = data
                    return
                self._act(*found.groups())
                data = data[found.end():]
                continue
            stop = re.search(rb"[\x1b\r\n]", data)
            end = stop.start() if stop else len(data)
            if end > 0:
                text = data[:end].decode(errors="replace")
                line = self.lines[self.row]
                self.lines[self.row] = line[:self.column].ljust(self.column) + text + line[self.column + len(text):]
                self.column += len(text)
                data = data[end:]
            elif data[:1] == b"\r":
                self.column, data = 0, data[1:]
            else:
                data = data[1:]
                if self.row + 1 < self.rows:
                    self.row += 1
                else:
                    self.lines = self.lines[1:] + [""]
                    self.scrolled += 1

    def _act(self, private, numbers, letter):
        if private:
            on = letter == b"h"
            if numbers == b"1049":
                self.alternate = on
                self._clear()
            elif numbers == b"25":
                self.cursor = on
            else:
                raise AssertionError(f"unknown mode {numbers!r}")
        elif letter == b"H":
            row, _, column = (numbers or b"1;1").partition(b";")
            self.row, self.column = min(int(row), self.rows) - 1, int(column) - 1
        elif letter == b"K":
            self.lines[self.row] = self.lines[self.row][:self.column]
        elif letter == b"J":
            self.lines[self.row] = self.lines[self.row][:self.column]
            self.lines[self.row + 1:] = [""] * (self.rows - self.row - 1)
        else:
            assert letter == b"m", f"unknown: {letter!r}"

    def _read(self, seconds):
        ready, _, _ = select.select([self.master], [], [], seconds)
        if not ready:
            return False
        try:
            got = os.read(self.master, 65536)
        except OSError:
            return False
        self.raw += got
        self._feed(got)
        return True

    def until(self, what):
        """Waits until `what` is true of the lines on the screen."""
        deadline = time.monotonic() + TIMEOUT_S
        while not what(self.lines):
            assert time.monotonic() < deadline, "\n".join(self.lines)
            assert self.process.poll() is None or self._read(0), f"it has ended: {self.raw[-2000:]!r}"
            self._read(1)
        return self.lines

    def end(self):
        """Waits for the end and gives the exit status. The terminal must be as it was."""
        code = self.process.wait(TIMEOUT_S)
        while self._read(0):
            pass
        assert not self.alternate and self.cursor, "the screen was not given back"
        assert termios.tcgetattr(self.slave) == self.before, "the settings were not given back"
        return code

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)
