# SPDX-License-Identifier: Apache-2.0
"""Headless Chromium, spoken to over a pipe by its own protocol: one page, JSON messages that end with a NUL."""
import base64
import json
import os
import select
import shutil
import subprocess
import time

TIMEOUT_S = 60


class Browser:
    def __init__(self, profile, width=1440, height=900):
        path = shutil.which("chromium")
        assert path, "chromium is missing: run tools/install-packages.sh test"
        read_theirs, self._write = os.pipe()
        self._read, write_theirs = os.pipe()
        self._bytes, self._number = b"", 0
        self.errors = []  # what the page complained about
        self._frame = None  # session of the frame that expressions are about

        def as_3_and_4():
            # Both are out of the way first: one of them may be 3 or 4 itself.
            theirs = os.dup(read_theirs), os.dup(write_theirs)
            spare = [os.dup(fd) for fd in theirs]
            os.dup2(spare[0], 3)
            os.dup2(spare[1], 4)

        self._process = subprocess.Popen(
            [path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
             f"--user-data-dir={profile}", f"--window-size={width},{height}", "--hide-scrollbars", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=as_3_and_4, close_fds=False)
        os.close(read_theirs)
        os.close(write_theirs)
        page = next(one for one in self._ask("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self._session = None
        self._session = self._ask("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def _next(self, deadline):
        while b"\0" not in self._bytes:
            ready, _, _ = select.select([self._read], [], [], max(0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            got = os.read(self._read, 1 << 20)
            assert got, "the browser is gone"
            self._bytes += got
        message, self._bytes = self._bytes.split(b"\0", 1)
        return json.loads(message)

    def _ask(self, method, session=None, **params):
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session or getattr(self, "_session", None):
            message["sessionId"] = session or self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            answer = self._next(deadline)
            if answer.get("method") == "Runtime.exceptionThrown" or \
                    answer.get("params", {}).get("entry", {}).get("level") == "error":
                self.errors.append(answer["params"])
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def open(self, address):
        self._ask("Page.navigate", url=str(address))

    def enter_frame(self):
        """From now on expressions are about the document of the page's sandboxed frame, which has a process of its own."""
        deadline = time.monotonic() + TIMEOUT_S
        page, self._session = self._session, None
        while not (frames := [one for one in self._ask("Target.getTargets")["targetInfos"] if one["type"] == "iframe"]):
            assert time.monotonic() < deadline, "the page has no frame"
            time.sleep(0.02)
        self._frame = self._ask("Target.attachToTarget", targetId=frames[0]["targetId"], flatten=True)["sessionId"]
        self._session = page

    def run(self, script):
        """The value of an expression on the page; promises are waited for."""
        result = self._ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True, session=self._frame)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, script):
        """Waits until an expression is true, and returns it."""
        deadline = time.monotonic() + TIMEOUT_S
        while not (value := self._run_or_none(script)):
            assert time.monotonic() < deadline, f"never true: {script}"
            time.sleep(0.02)
        return value

    def _run_or_none(self, script):
        """As run(); None while the page is on its way to another address."""
        try:
            return self.run(script)
        except AssertionError as error:
            if "Inspected target navigated or closed" not in str(error):
                raise
            return None

    def press(self, selector, test):
        """Clicks the first of these elements for which the test, a function of JavaScript, is true: as soon as there is one."""
        self.wait(f"(() => {{ const one = [...document.querySelectorAll('{selector}')].find({test}); one?.click(); return one !== undefined; }})()")

    def click(self, x, y, shift=False):
        for kind in ("mousePressed", "mouseReleased"):
            self._ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1, modifiers=8 if shift else 0)

    def wheel(self, x, y, delta):
        self._ask("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=delta)

    def key(self, text):
        for kind in ("keyDown", "keyUp"):
            self._ask("Input.dispatchKeyEvent", type=kind, key=text, text=text if kind == "keyDown" and len(text) == 1 else "")

    def picture(self, path):
        path.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot")["data"]))

    def close(self):
        self._process.kill()
        self._process.wait()
        os.close(self._read)
        os.close(self._write)
