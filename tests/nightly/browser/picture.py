"""Takes the picture of the status page in the README: `python -m tests.nightly.browser.picture URL deploy/status-page.png`.

Start a run first, with evaluations and three actors, and take the picture near its end::

    rollcast serve cartpole.yaml --set rollcast.evaluation.interval_steps=8000 --set rollcast.target_return=498
    rollcast act gym --env CartPole-v1 --num-envs 4 --name worker-1

Text is drawn with the fonts of the machine: the picture has those of Debian's package fonts-dejavu, which `.ci/install browser`
installs with Chromium.
"""

from __future__ import annotations

import base64
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.nightly.browser.webdriver import Browser, driver_in

SIZE: Final = (1280, 814)


def take(url: str, file: Path) -> None:
    """Writes the page of a running learner, with its curves, as a PNG."""
    with tempfile.TemporaryDirectory() as name, driver_in(Path(name)) as driver:
        browser = Browser(driver, Path(name) / "profile")
        try:
            browser.prefer("light")
            browser.resize(*SIZE)
            browser.open(url)
            curves = "return document.querySelectorAll('path.curve').length"
            browser.wait_for(lambda: browser.run(curves) >= 6, "the curves")
            picture = browser.developer("Page.captureScreenshot", {"format": "png"})["data"]
        finally:
            browser.close()
    file.write_bytes(base64.b64decode(picture))


if __name__ == "__main__":
    take(sys.argv[1], Path(sys.argv[2]))
