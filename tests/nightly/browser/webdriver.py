"""Drives Chromium by the few W3C WebDriver commands that the tests need.

The standard is https://www.w3.org/TR/webdriver2/; speaking it takes less code than a library that must be kept up.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

from tests.ports import reserve_ports

SECONDS: Final = 60.0
"""Time limit for events that must occur; a limit for hangs, not a measurement."""
CHROMIUM_FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",  # the tests may run as root in a container, where Chromium cannot make its own
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
)
_ELEMENT: Final = "element-6066-11e4-a52e-4f735466cecf"

T = TypeVar("T")


class BrowserError(AssertionError):
    """The browser could not execute a command."""


class Browser:
    """A browser window.

    Args:
        driver: Address of the WebDriver server.
        profile: An empty folder for what the browser keeps.
        arguments: Further flags for Chromium.
    """

    def __init__(self, driver: str, profile: Path, *arguments: str) -> None:
        options = {
            "args": [*CHROMIUM_FLAGS, f"--user-data-dir={profile}", *arguments],
            "binary": _found("chromium", "chromium-browser", "google-chrome"),
        }
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        answer = _call(f"{driver}/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"{driver}/session/{answer['sessionId']}"

    def close(self) -> None:
        """Ends the browser."""
        _call(self._session, method="DELETE")

    def open(self, url: str) -> None:
        """Goes to an address."""
        _call(f"{self._session}/url", {"url": url})

    @property
    def url(self) -> str:
        """Returns where it is."""
        return str(_call(f"{self._session}/url"))

    def resize(self, width: int, height: int) -> None:
        """Sets the size of the viewport in CSS pixels."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.developer("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, scheme: str) -> None:
        """Sets the color scheme that the system is said to have: ``dark`` or ``light``."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.developer("Emulation.setEmulatedMedia", {"features": features})

    def developer(self, command: str, parameters: dict[str, Any]) -> Any:
        """Sends a command of the developer tools."""
        return _call(f"{self._session}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def run(self, script: str, *arguments: Any) -> Any:
        """Runs JavaScript in the page and returns what it returns."""
        return _call(f"{self._session}/execute/sync", {"script": script, "args": list(arguments)})

    def text(self, selector: str) -> str:
        """Returns the text of the first element of a selector, hidden parts left out."""
        return str(self.run("return document.querySelector(arguments[0]).innerText", selector))

    def texts(self, selector: str) -> list[str]:
        """Returns the texts of all elements of a selector."""
        script = "return [...document.querySelectorAll(arguments[0])].map((each) => each.innerText)"
        return list(self.run(script, selector))

    def click(self, selector: str) -> None:
        """Clicks an element, which must be visible and not covered."""
        _call(f"{self._session}/element/{self._find(selector)}/click", {})

    def write(self, selector: str, text: str) -> None:
        """Types into an element."""
        _call(f"{self._session}/element/{self._find(selector)}/value", {"text": text})

    def press(self, *keys: str) -> None:
        """Presses keys in the focused element; the codes are those of the standard."""
        steps = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        keyboard = {"type": "key", "id": "keyboard", "actions": steps}
        _call(f"{self._session}/actions", {"actions": [keyboard]})

    def complaints(self) -> list[str]:
        """Returns what the browser's console had to complain about since the last call."""
        entries = _call(f"{self._session}/se/log", {"type": "browser"})
        return [str(entry["message"]) for entry in entries if entry["level"] in {"SEVERE", "WARNING"}]

    def wait_for(self, condition: Callable[[], T], what: str, *, seconds: float = SECONDS) -> T:
        """Waits until a condition holds, and returns its result."""
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}\n{self.text('body')[:3000]}"
            time.sleep(0.1)
        return found

    def _find(self, selector: str) -> str:
        found = _call(f"{self._session}/element", {"using": "css selector", "value": selector})
        return str(found[_ELEMENT])


@contextlib.contextmanager
def driver_in(folder: Path) -> Iterator[str]:
    """Starts a WebDriver server for a block and yields its address."""
    port = reserve_ports()
    with (folder / "chromedriver.log").open("wb") as output:
        process = subprocess.Popen(
            [_found("chromedriver"), f"--port={port}"], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_until_ready(process, address)
        yield address
    finally:
        process.terminate()
        process.wait(SECONDS)


def _wait_until_ready(process: subprocess.Popen[bytes], address: str) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        with contextlib.suppress(OSError, BrowserError):
            if _call(f"{address}/status")["ready"]:
                return
        assert process.poll() is None, "chromedriver ended at once"
        assert time.monotonic() < deadline, "chromedriver does not answer"
        time.sleep(0.05)


def _found(*names: str) -> str:
    for name in names:
        path = shutil.which(name)
        if path is not None:
            return path
    raise BrowserError(f"{names[0]} is not installed; on Debian: apt-get install chromium chromium-driver")


def _call(url: str, body: dict[str, Any] | None = None, method: str | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data=data, method=method, headers=headers)  # noqa: S310 - of a driver that was started here
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=SECONDS) as response:
            return json.loads(response.read())["value"]
    except urllib.error.HTTPError as error:
        said = json.loads(error.read())["value"]
        raise BrowserError(f"{said['error']}: {said['message']}") from None
