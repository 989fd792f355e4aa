# SPDX-License-Identifier: Apache-2.0
"""A running `msmemscope view`, and the browser that looks at it.

    view       view(path, ...): a Viewed
    browser    browser(width=1440, height=900): a Browser, closed at the end of the test
"""
import base64
import json
import re
import urllib.error
import urllib.parse
import urllib.request
import zlib

import pytest

from browser import Browser


def answers(path, beginnings=("",)):
    """What a report carries: {"what/process/pool/by/of": answer}, and "about"; of keys that start with one of these words."""
    text = path.read_text(encoding="utf-8")
    [data] = re.findall(r'<script type="application/json" id="answers">(.*?)</script>', text, re.DOTALL)
    return {key: json.loads(zlib.decompress(base64.b64decode(one))) if isinstance(one, str) and key != "about" else one
            for key, one in json.loads(data).items() if key.startswith(beginnings)}


class Viewed:
    def __init__(self, msmemscope, *words):
        self.started = msmemscope.start("view", *words, "--no-browser", output=False)
        line = self.started.process.stderr.readline().decode()
        self.address = re.fullmatch(r"msmemscope: open (http://127\.0\.0\.1:\d+/\?token=[0-9a-f]{32}) .*\n", line)[1]
        self.base, self.token = self.address.split("/?token=")

    def get(self, path, token=None, **headers):
        request = urllib.request.Request(f"{self.base}{path}", headers={
            "X-Msmemscope-Token": self.token if token is None else token, **{name.replace("_", "-"): value for name, value in headers.items()}})
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, reply.headers, reply.read()

    def ask(self, what, **question):
        return json.loads(self.get(f"/api/{what}?{urllib.parse.urlencode(question)}")[2])

    def refused(self, path, **options):
        with pytest.raises(urllib.error.HTTPError) as refusal:
            self.get(path, **options)
        return refusal.value.code


@pytest.fixture
def view(msmemscope):
    return lambda *words: Viewed(msmemscope, *words)


@pytest.fixture
def browser(tmp_path):
    opened = []

    def open_one(**size):
        opened.append(Browser(tmp_path / f"profile{len(opened)}", **size))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()
