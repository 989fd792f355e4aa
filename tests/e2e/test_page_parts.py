# SPDX-License-Identifier: Apache-2.0
"""Parts of the page that need no server, as the modules that they are: page/parts.js has the claims, a browser runs them."""
import functools
import http.server
import threading
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
WEB = HERE.parents[1] / "src" / "viewer" / "web"


class Files(http.server.SimpleHTTPRequestHandler):
    extensions_map = {".js": "text/javascript", ".html": "text/html"}

    def translate_path(self, path):
        name = Path(path).name
        return str({"/web/": WEB, "/page/": HERE / "page"}.get(path[:-len(name)], HERE / "nothing") / name)

    def log_message(self, *_):
        pass


@pytest.fixture
def files():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_every_claim_holds(files, browser):
    page = browser()
    page.open(f"{files}/page/empty.html")
    page.wait("document.readyState === 'complete' && location.protocol === 'http:'")
    results = page.run("import('/page/parts.js').then(parts => parts.run())")
    assert len(results) >= 20
    assert [(name, error) for name, error in results if error is not None] == []
