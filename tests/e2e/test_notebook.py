# SPDX-License-Identifier: Apache-2.0
"""%load_ext msmemscope and %%msmemscope in IPython's own shell: the shell that notebooks run cells in."""
import html
import json
import re
import shutil
from pathlib import Path

import pytest

import harness
import viewed
from scripts import python_path

SHELL = """
import os, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
def cell(text):
    print("==cell==", flush=True)
    result = shell.run_cell(text)
    sys.stdout.flush()
    return result
assert cell("%load_ext msmemscope").success
if os.environ.get("ASCEND_HOME_PATH"):
    assert cell("import npu").success
"""


@pytest.fixture
def notebook(msmemscope, dist, out, python):
    def run(text, preload=True, **more):
        path = out / "shell.py"
        path.write_text(SHELL + text, encoding="utf-8")
        env = {"TRUTH": out / "truth", "PYTHONPATH": python_path(dist), "IPYTHONDIR": out / "ipython", "NO_COLOR": "1",
               **more}
        if preload:
            env["LD_PRELOAD"] = dist / "lib64" / "libascend_kernel_hook.so"
        done = msmemscope.bare(*python, path, env=env, cwd=out)
        return harness.Run(done.argv, done.returncode, done.stdout, done.stderr, out / "results").check()
    return run


@pytest.mark.parametrize("form", ["csv", "db"])
def test_a_cell_shows_what_it_did_with_memory(notebook, form):
    """Of each cell its own figures: the peak in it, what it left, where. What lies between cells counts for none."""
    run = notebook(f"""
cell('''%%msmemscope --output=results --format={form} --call-stack=python
first = npu.alloc(1 << 20)
npu.free(npu.alloc(3 << 20))
''')
cell("between = npu.alloc(64 << 20)")
cell('''%%msmemscope
def work():
    return npu.alloc(2 << 20)
kept = [work() for _ in range(3)]
npu.free(first)
''')
""")
    _, _, _, first, between, second = run.stdout.split("==cell==\n")
    assert "msmemscope" not in between
    assert "peak 4.0 MiB (+4.0 MiB), left 1.0 MiB; 2 allocations, 1 frees" in first, run
    assert "1.0 MiB in 1 block" in first
    # 65 MiB are there; 6 more come, then one goes that is older than the cell.
    assert "peak 71.0 MiB (+6.0 MiB), left 5.0 MiB; 3 allocations, 1 frees" in second, run
    assert re.search(r"6\.0 MiB in 3 blocks  In\[1\]\(2\): work", second), run
    for text in (first, second):
        project = Path(text.rsplit("Files: ", 1)[1].strip())
        assert (run.out.parent / project / "report.txt").is_file()
    assert " events in " not in run.stderr, run


KERNEL = """
import tempfile
class Compiler(type(shell.compile)):  # names files as ipykernel does: by the text alone, in a temporary directory
    def get_code_name(self, raw_code, transformed_code, number):
        return f"{tempfile.gettempdir()}/ipykernel_{os.getpid()}/{hash(raw_code)}.py"
shell.compiler_class = Compiler
shell.compile = Compiler()
shell.execution_count = 1
assert shell.run_cell("%reload_ext msmemscope").success
"""


@pytest.mark.parametrize("kernel", ["", KERNEL], ids=["ipython", "ipykernel"])
def test_call_sites_are_named_by_their_cells(notebook, kernel):
    """Functions of an earlier cell too; a cell that runs again has its new number. Not the cell that calls the magic."""
    run = notebook(kernel + """
def execute(text):
    assert shell.run_cell(text, store_history=True).success
for _ in range(2):
    execute("def make():\\n    return npu.alloc(1 << 20)")
    execute("%%msmemscope --output=results --call-stack=python\\nimport os\\nkept = [make() for _ in range(3)]\\nown = npu.alloc(5 << 20)")
""")
    [project] = run.projects()
    stacks = [row.python_stack for row in project.rows() if row.event == "MALLOC"]
    assert len(stacks) == 8, run
    for at, stack in enumerate(stacks):
        cell = 1 + 2 * (at // 4)
        found = [line for line in stack if line.startswith("In[")]
        assert not any("ipykernel_" in line or "ipython-input" in line for line in stack), stack
        if at % 4 == 3:
            assert found == [f"In[{cell + 1}](3): <module>"], stack
        else:
            assert found[0] == f"In[{cell}](2): make" and found[-1] == f"In[{cell + 1}](2): <module>", stack


def test_a_cell_that_fails_ends_its_window(notebook):
    run = notebook("""
cell('''%%msmemscope --output=results
first = npu.alloc(1 << 20)
1 / 0
''')
cell("npu.alloc(1 << 22)")
""")
    assert "ZeroDivisionError" in run.stdout and "left 1.0 MiB; 1 allocations, 0 frees" in run.stdout, run
    project, = run.projects()
    assert [row.attr["size"] for row in project.rows() if row.event == "MALLOC"] == [1 << 20]


EXECUTE = """
import json
from IPython.utils.capture import capture_output
def execute(source):
    with capture_output() as captured:
        done = shell.run_cell(source)
    outputs = [{"output_type": "stream", "name": "stdout", "text": captured.stdout}] if captured.stdout else []
    outputs += [{"output_type": "display_data", "data": one.data, "metadata": {}} for one in captured.outputs]
    return {"cell_type": "code", "metadata": {}, "execution_count": done.execution_count, "source": source, "outputs": outputs}
cells = [execute(source) for source in json.load(open("cells.json"))]
json.dump({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}, open("done.ipynb", "w"))
"""
CELLS = [
    "import torch\nold = torch.empty(50 << 20, dtype=torch.uint8)",
    "%%msmemscope --output=results\nfirst = torch.empty(5 << 20, dtype=torch.uint8)",
    "between = torch.empty(3 << 20, dtype=torch.uint8)",
    "%%msmemscope\nkept = [torch.empty(1 << 20, dtype=torch.uint8) for _ in range(4)]\ndel first\ndel kept[3]",
    "%%msmemscope --call-stack=python\nimport msmemscope\nhistory = []\nfor _ in range(12):\n    history.append(torch.empty(1 << 20, dtype=torch.uint8))\n"
    "    msmemscope.step()",
    "%%msmemscope\nlast = torch.empty(1 << 20, dtype=torch.uint8)",
]


@pytest.fixture
def executed(notebook, out):
    """The cells of a notebook as executed on a machine without an accelerator: what a front end saves."""
    (out / "cells.json").write_text(json.dumps(CELLS), encoding="utf-8")
    notebook(EXECUTE, LD_LIBRARY_PATH=None, ASCEND_HOME_PATH=None)
    return json.loads((out / "done.ipynb").read_text(encoding="utf-8"))["cells"]


def page_of(cell):
    """(text, page) of a cell's result."""
    [shown] = [output["data"] for output in cell["outputs"] if output["output_type"] == "display_data"]
    [page] = re.findall(r'<iframe [^>]*srcdoc="([^"]*)"', shown["text/html"])
    assert len(shown["text/html"].encode()) <= 1_000_100
    return shown["text/plain"], html.unescape(page)


def test_a_notebook_contains_the_page_of_each_cell(executed, out, browser):
    """CPU tensors, as no device was named and there is none. Each page is of the cell's own window."""
    first, second = page_of(executed[1]), page_of(executed[3])
    assert "peak 55.0 MiB (+5.0 MiB), left 5.0 MiB; 1 allocations, 0 frees" in first[0], first[0]
    assert "CPU tensors too, because no NPU and no GPU was found here" in first[0]
    assert "peak 62.0 MiB (+4.0 MiB), left -2.0 MiB; 4 allocations, 2 frees" in second[0], second[0]
    (out / "page.html").write_text(second[1], encoding="utf-8")
    summary = viewed.answers(out / "page.html")["summary/0///"]
    [pool] = summary["pools"]
    assert (pool["pool"], pool["peak_bytes"]) == ("HOST", 62 << 20)
    # In its frame, as a converted notebook has it.
    (out / "notebook.html").write_text(f"<!DOCTYPE html><body>{executed[3]['outputs'][-1]['data']['text/html']}", encoding="utf-8")
    window = browser()
    window.open((out / "notebook.html").as_uri())
    window.enter_frame()
    assert window.wait("document.querySelector('#right .big')?.textContent") == "62.0 MiB"
    assert "Live" not in window.run("document.body.innerText") and window.run("document.querySelector('#findings').textContent") == \
        "Leaks are not judged: no steps.", "the process runs on, the page does not grow"


# What VS Code's sources put around an output (backLayerWebView.ts, notebook-renderers/src/index.ts): a frame, and a policy that a setting adds.
WEBVIEW_SANDBOX = "allow-same-origin allow-pointer-lock allow-scripts allow-downloads allow-forms"
WEBVIEW_POLICY = "default-src 'none'; script-src 'self' https://*.vscode-cdn.net 'unsafe-inline' 'unsafe-eval'; " \
    "style-src 'self' https://*.vscode-cdn.net 'unsafe-inline'; img-src 'self' https://*.vscode-cdn.net https: http: data:; " \
    "font-src 'self' https://*.vscode-cdn.net https:; connect-src https:; child-src https: data:;"


def webview(out, shown, policy):
    """A page with a frame that has an output as VS Code's webview does."""
    text = json.dumps(shown).replace("</", "<\\/")
    (out / "output.html").write_text(f"""<!DOCTYPE html><html><head><meta charset="UTF-8">
<meta http-equiv="Content-Security-Policy" content="{policy}"></head><body style="overflow: hidden"><div id="container"></div><script>
const policy = trustedTypes.createPolicy("notebookRenderer", {{ createHTML: value => value }}), element = document.createElement("div");
element.innerHTML = policy.createHTML({text});
document.getElementById("container").appendChild(element);
</script></body></html>""", encoding="utf-8")
    (out / "webview.html").write_text(f'<!DOCTYPE html><body><iframe sandbox="{WEBVIEW_SANDBOX}" src="output.html" '
                                      'style="width: 1200px; height: 760px"></iframe>', encoding="utf-8")
    return (out / "webview.html").as_uri()


def test_the_page_of_a_cell_has_the_leaks_of_its_own_steps(executed, out, browser):
    """The process runs on, and what the cell did is judged all the same; a later cell's page does not repeat it.
    The page runs under the rules that VS Code has for outputs too."""
    pages = [page_of(executed[at])[1] for at in (4, 5)]
    summaries = []
    for at, page in enumerate(pages):
        (out / f"page{at}.html").write_text(page, encoding="utf-8")
        summaries.append(viewed.answers(out / f"page{at}.html")["summary/0///"])
    [leak] = summaries[0]["leaks"]
    assert (leak["verdict"], leak["bytes_per_step"]) == ("leak", 1 << 20) and leak["place"].endswith("-> In[1]:4"), leak
    assert summaries[0]["judged"] and not summaries[0]["clean"]
    assert summaries[1]["leaks"] == [] and not summaries[1]["judged"] and not summaries[1]["clean"]
    [shown] = [output["data"]["text/html"] for output in executed[4]["outputs"] if output["output_type"] == "display_data"]
    for policy in (WEBVIEW_POLICY, ""):
        window = browser()
        window.open(webview(out, shown, policy))
        window.enter_frame()
        chip = window.wait("document.querySelector('#chips .bad')?.textContent")
        assert chip.startswith("LEAK +1.00 MiB/step") and chip.endswith("In[1]:4")
        window.press("button", "one => one.textContent === 'Blocks'")
        window.wait("[...document.querySelectorAll('button')].some(one => one.textContent === 'by address')")
        assert not window.errors, window.errors


def test_a_cell_runs_the_same_without_a_collector(notebook, dist, out):
    place = out / "alone"
    shutil.copytree(dist / "python", place)
    run = notebook("""
assert cell("%%msmemscope\\nx = 6 * 7").success
assert shell.user_ns["x"] == 42
assert cell("%unload_ext msmemscope").success
""", preload=False, PYTHONPATH=f"{place}:{python_path(dist).split(':', 1)[1]}")
    assert run.stderr.count("nothing is recorded") == 1
