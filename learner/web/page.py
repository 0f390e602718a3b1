"""The status page, and the policy under which a browser runs it."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from importlib import resources
from typing import Final

_INLINE: Final = {kind: re.compile(rf"<{kind}>(.*?)</{kind}>", flags=re.DOTALL) for kind in ("script", "style")}


@dataclass(frozen=True, slots=True)
class Page:
    """The page as it is sent.

    Attributes:
        body: one HTML file that needs nothing else.
        policy: its Content-Security-Policy: only the script and style that were there when the learner started run,
            nothing is loaded from anywhere, and texts cannot become markup (Trusted Types).
    """

    body: bytes
    policy: str


def load_page() -> Page:
    """Reads the page that this package brings."""
    text = resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    return Page(text.encode(), content_policy(text))


def content_policy(html: str) -> str:
    """Returns the policy that lets exactly the inline script and style of a page run."""
    allowed = {
        kind: " ".join(f"'sha256-{_digest(block)}'" for block in pattern.findall(html)) or "'none'"
        for kind, pattern in _INLINE.items()
    }
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {allowed['script']}",
            f"style-src {allowed['style']}",
            "img-src data:",  # the icon
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _digest(block: str) -> str:
    return base64.b64encode(hashlib.sha256(block.encode()).digest()).decode()
