# SPDX-License-Identifier: Apache-2.0
"""The page over a long run: how soon it shows something, how fluently it moves, what the server holds. Part of run.py."""
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "e2e" / "lib"))

MIB = 1 << 20
FRAMES = 90  # that one measurement of fluency takes

# Moves the view with every frame as a hand would, by events, and gives the milliseconds between frames.
MOVE = """new Promise(done => {
  const canvas = document.getElementById("main"), box = canvas.getBoundingClientRect(), times = [];
  const at = i => ({ clientX: box.left + box.width / 2 + 200 * Math.sin(i / 9), clientY: box.top + 99, buttons: 1, pointerId: 1, bubbles: true });
  canvas.setPointerCapture = () => {};
  const each = now => {
    times.push(now);
    const i = times.length;
    if (i > FRAMES) { done(times.slice(1).map((time, k) => time - times[k])); return; }
    if (ZOOM) canvas.dispatchEvent(new WheelEvent("wheel", { ...at(i), deltaY: i % 40 < 20 ? -100 : 100, cancelable: true }));
    else canvas.dispatchEvent(new PointerEvent(i === 1 ? "pointerdown" : "pointermove", at(i)));
    requestAnimationFrame(each);
  };
  requestAnimationFrame(each);
})"""


def memory(pid):
    """Bytes that a process has touched, and those of them that are not in files."""
    text = Path(f"/proc/{pid}/status").read_text()
    return [int(re.search(rf"^{name}:\s+(\d+) kB", text, re.M)[1]) * 1024 for name in ("VmHWM", "RssAnon")]


def fluency(browser, zoom):
    gaps = browser.run(MOVE.replace("FRAMES", str(FRAMES)).replace("ZOOM", "true" if zoom else "false"))
    browser.run('document.getElementById("main").dispatchEvent(new PointerEvent("pointerup", { bubbles: true, clientX: 1 }))')
    return 1000 * len(gaps) / sum(gaps)


def view(bench, events):
    """A training loop's trace in headless Chromium, from the command on."""
    from browser import Browser  # Chromium is wanted by this measurement alone

    _, out = bench.traced("simnpu", ["--log-level=error", "--max-disk=100%", "--call-stack=c"], "mix", "train", events, 0)
    browser = Browser(bench.place / "profile")
    start = time.time()
    server = subprocess.Popen([bench.tool, "view", "--no-browser", out], stderr=subprocess.PIPE)
    try:
        address = re.search(rb"http://\S+", server.stderr.readline())[0].decode()
        browser.open(address)
        picture = browser.wait('performance.getEntriesByName("picture").map(one => one.startTime + performance.timeOrigin)[0]') / 1000
        browser.wait("document.getElementById('note').textContent === ''")
        whole = time.time()
        note = f"{events // 1_000_000} M events"
        bench.add("view", "the first picture after the command", picture - start, "s", 2, note=note)
        bench.add("view", "the picture of the whole run", whole - start, "s", note="it grows until then")
        for tab, key in (("timeline", "1"), ("blocks", "2")):
            browser.key(key)
            browser.wait(f"location.hash.includes('tab={tab}')")
            browser.key("w")
            time.sleep(0.5)
            for zoom in (False, True):
                bench.add("view", f"{tab}, while {'zooming' if zoom else 'panning'}", fluency(browser, zoom), "frames/s", 30, at_least=True)
            browser.key("0")
        for key in ("3", "4"):
            browser.key(key)
            time.sleep(1)
        most, own = memory(server.pid)
        bench.add("view", "memory of the server, without its files", own / MIB, "MiB", 128, note="what the kernel cannot take back")
        bench.add("view", "with pages of its files", most / MIB, "MiB")
        assert not browser.errors, browser.errors
    finally:
        browser.close()
        server.terminate()
        server.wait()
        shutil.rmtree(out)
