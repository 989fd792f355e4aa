#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the pictures of the page in docs/pictures: records a small training twice, with other settings, and photographs `view`.

    make && build/venv/bin/python -c 'import torch' && python3 tools/pictures.py [DIRECTORY]

build/venv has PyTorch for the CPU; tests/realclients/environment.sh or `make test` makes it. Chromium is needed."""
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e" / "lib"))

from browser import Browser  # noqa: E402

TRAINING = """
import sys, torch, msmemscope
torch.manual_seed(0)
WIDTH = 256

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)
    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.Sequential(*[Block() for _ in range(6)])
        self.head = torch.nn.Linear(WIDTH, 64)
    def forward(self, x):
        return self.head(self.blocks(x))

history = []
def remember(batch):
    history.append(batch.clone())

net = Net()
sgd = "--sgd" in sys.argv
optimizer = torch.optim.SGD(net.parameters(), lr=0.1) if sgd else torch.optim.Adam(net.parameters())
size = 768 if sgd else 512
for step in range(12):
    msmemscope.step()
    batch = torch.randn(size, WIDTH)
    loss = torch.nn.functional.cross_entropy(net(batch), torch.randint(0, 64, (size,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if not sgd:
        remember(batch)
"""

# Name, runs, what the address bar says, light or dark.
PICTURES = [
    ("leak", ["adam"], "tab=timeline&by=place", "light"),
    ("decomposition", ["adam"], "tab=timeline&by=owner", "dark"),
    ("comparison", ["adam", "sgd"], "tab=compare&by=owner&with=1", "light"),
]
SIZE = (1200, 640)


def record(place):
    script = place / "train.py"
    script.write_text(TRAINING, encoding="utf-8")
    for name, words in (("adam", []), ("sgd", ["--sgd"])):
        subprocess.run([ROOT / "build/dist/bin/msmemscope", "-o", name, "--device=cpu", "--analysis=leaks,decompose", "--call-stack=python",
                        "--log-level=error", "--", ROOT / "build/venv/bin/python", "-W", "ignore", script, *words],
                       cwd=place, check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def photograph(place, target, name, runs, state, theme):
    server = subprocess.Popen([ROOT / "build/dist/bin/msmemscope", "view", "--no-browser", *runs], cwd=place, stderr=subprocess.PIPE)
    browser = Browser(place / "profile", *SIZE)
    try:
        browser.open(re.search(rb"http://\S+", server.stderr.readline())[0].decode() + "#" + state)
        browser.wait("performance.getEntriesByName('picture').length && document.getElementById('note').textContent === ''")
        if theme == "dark":
            browser.run("document.getElementById('theme').click()")
        browser.wait("document.querySelector('#right .row') !== null")
        browser.run("new Promise(done => setTimeout(done, 1500))")
        browser.picture(target / f"{name}.png")
        assert not browser.errors, browser.errors
    finally:
        browser.close()
        server.terminate()
        server.wait()
        shutil.rmtree(place / "profile", ignore_errors=True)


def main():
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "pictures"
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        record(Path(place))
        for name, runs, state, theme in PICTURES:
            photograph(Path(place), target, name, runs, state, theme)
            print(f"{target / name}.png  {(target / f'{name}.png').stat().st_size // 1024} KiB")


main()
