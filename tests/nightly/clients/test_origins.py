"""Tests in a browser which pages may be clients of a gateway."""

from __future__ import annotations

import http.server
from pathlib import Path

import pytest

from tests.actor_client.clients.web.stand_in import serving_in_thread
from tests.nightly.browser.webdriver import Browser, driver_in
from tests.servers import serving

PAGE = """<!doctype html><link rel="icon" href="data:,"><title>Another page</title><p id="said"></p><script>
const gateway = location.hash.slice(1), name = "a-name-of-this-page";
const hello = JSON.stringify({ hello: { name: "page" } });
const opened = () => new Promise((resolve) => {
  const socket = new WebSocket(`ws://${gateway}/v1/play`, "rollcast.v1.json");
  socket.onopen = () => socket.send(hello);
  socket.onmessage = () => resolve("socket answers");
  socket.onerror = () => resolve("socket refused");
});
const asked = async (method, headers) => {
  try {
    const options = { method, headers, body: method === "POST" ? hello : undefined };
    const answer = await fetch(`http://${gateway}/v1/play/${name}`, options);
    return `${method} ${answer.status}`;
  } catch { return `${method} refused`; }
};
(async () => {
  const json = { "Content-Type": "application/json" };
  const all = [await opened(), await asked("POST", json), await asked("POST", { "Content-Type": "text/plain" }), await asked("DELETE", {})];
  document.getElementById("said").textContent = all.join(", ");
})();
</script>"""


class Page(http.server.BaseHTTPRequestHandler):
    """Serves a page that tries to be a client of the gateway that its address names."""

    def do_GET(self) -> None:
        """Sends the page."""
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE.encode())

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.mark.parametrize(
    ("is_allowed", "said"),
    [
        (False, "socket refused, POST refused, POST refused, DELETE refused"),
        (True, "socket answers, POST 200, POST 415, DELETE 204"),
    ],
)
def test_a_page_of_another_server(tmp_path: Path, is_allowed: bool, said: str) -> None:
    """A page of another server reaches nothing, unless the gateway allows its origin: then it plays as the own page does."""
    with serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)) as page:
        origins = (f"http://{page}",) if is_allowed else ()
        with serving_in_thread(origins=origins) as (stand_in, address), driver_in(tmp_path) as driver:
            window = Browser(driver, tmp_path / "profile")
            try:
                window.open(f"http://{page}/#{address}")
                window.wait_for(lambda: window.text("#said"), "the page has tried everything")
                assert window.text("#said") == said
            finally:
                window.close()
            assert bool(stand_in.conversations) is is_allowed
