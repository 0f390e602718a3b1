"""The page's file: whole in itself, safe by its policy, part of the wheel. How it works is in `tests/browser`."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib import resources

import pytest

from learner.observe.history import COLUMNS
from learner.web.routes import content_policy, load_page

TEXT = load_page().body.decode()


def test_it_needs_nothing_else() -> None:
    """No address of another site is in it, and nothing is loaded from this one but data."""
    addresses = set(re.findall(r"https?://[^\s\"'<>)]+", TEXT))
    assert addresses == {"http://www.w3.org/2000/svg"}, "the name of a namespace, which nobody fetches"
    assert re.findall(r"<link[^>]*href=\"(?!data:)", TEXT) == []
    assert re.findall(r"\bsrc\s*=|@import|url\(|import\(|new Worker|eval\(|Function\(", TEXT) == []


def test_texts_never_become_markup() -> None:
    """Names of actors come from other machines: the script has no way to make markup out of a text."""
    sinks = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|srcdoc|DOMParser|createContextualFragment|setHTML"
    assert re.findall(sinks, TEXT) == []
    assert re.findall(r"\son[a-z]+\s*=\s*\"|javascript:|\sstyle=\"", TEXT) == [], "the policy would stop those"


def test_the_policy_lets_this_script_and_style_run_and_no_other() -> None:
    """Both are named by their hash, so that what somebody adds does not run."""
    policy = dict(part.split(" ", 1) for part in load_page().policy.split("; "))
    for kind in ("script", "style"):
        (block,) = re.findall(rf"<{kind}>(.*?)</{kind}>", TEXT, flags=re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(block.encode()).digest()).decode()
        assert policy[f"{kind}-src"] == f"'sha256-{digest}'"
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in load_page().policy


def test_a_page_without_script_may_run_none() -> None:
    """What is not there is not allowed."""
    assert "script-src 'none'; style-src 'none'" in content_policy("<p>nothing</p>")


def test_it_is_part_of_the_package() -> None:
    """It lies beside the module, so that the wheel has it."""
    assert resources.files("learner.web").joinpath("page.html").is_file()


def test_it_knows_the_columns() -> None:
    """The script asks for the columns that the history has."""
    (listed,) = re.findall(r"const COLUMNS = \[(.*?)\];", TEXT)
    assert re.findall(r"\"(\w+)\"", listed) == list(COLUMNS)


def test_everything_that_can_be_used_has_a_name() -> None:
    """Buttons, fields and regions are named for those who hear the page instead of seeing it."""
    assert '<html lang="en">' in TEXT
    assert re.findall(r"<input(?![^>]*(?:aria-label=|type=\"radio\"|id=\"token\"))[^>]*>", TEXT) == []
    assert '<label for="token">' in TEXT
    assert re.findall(r"<button[^>]*></button>", TEXT) == []
    named = re.findall(r"aria-(?:labelledby|describedby)=\"([\w-]+)\"", TEXT)
    assert named
    assert [name for name in named if f'id="{name}"' not in TEXT] == []
    identifiers = re.findall(r"\sid=\"([\w-]+)\"", TEXT)
    assert len(identifiers) == len(set(identifiers))


def luminance(color: str) -> float:
    """Returns the relative luminance of ``#rrggbb`` (WCAG 2.2)."""
    parts = [int(color[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Returns the contrast ratio of two colors (WCAG 2.2), 1 to 21."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [":root", ':root[data-theme="dark"]'])
def test_every_text_stands_out(theme: str) -> None:
    """In both looks each color of text has the contrast that small text needs, 4.5, and each curve 3."""
    (block,) = re.findall(rf"^{re.escape(theme)} {{(.*?)^}}", TEXT, flags=re.DOTALL | re.MULTILINE)
    colors = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})\b", block))
    texts = [(text, back) for text in ("text", "soft", "faint") for back in ("page", "card")]
    texts += [(name, "card") for name in ("good", "warn", "bad", "calm")] + [
        ("accent-text", "accent"),
        ("soft", "raised"),
    ]
    texts += [(name, f"{name}-back") for name in ("good", "warn", "bad", "calm")]
    weak = {pair: contrast(colors[pair[0]], colors[pair[1]]) for pair in texts}
    assert {pair: ratio for pair, ratio in weak.items() if ratio < 4.5} == {}
    curves = {name: contrast(colors[name], colors["card"]) for name in ("curve", "trained", "dropped", "lost")}
    assert {name: ratio for name, ratio in curves.items() if ratio < 3.0} == {}
