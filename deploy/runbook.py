"""Writes RUNBOOK.md as the page that Prometheus serves, so that the link in an alert leads to its heading on any installation."""

import re
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt

FOLDER: Final = Path(__file__).parent
SOURCE: Final = FOLDER / "RUNBOOK.md"
PAGE: Final = FOLDER / "prometheus" / "consoles" / "runbook.html"
_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
    "table{border-collapse:collapse}td,th{border-bottom:1px solid #8884;padding:.3rem .6rem;text-align:left;vertical-align:top}"
    "pre,code{background:#8882;border-radius:4px;padding:.1rem .3rem}pre{padding:.6rem;overflow:auto}pre code{background:none}"
    "h2:target{background:#fc04}"
)


def page(text: str) -> str:
    """Returns a page of HTML for a text in Markdown, with the headings' anchors; files of the repository are no links there.

    Raises:
        ValueError: The text has what Prometheus would read as a template.
    """
    if "{{" in text:
        raise ValueError("Prometheus would expand {{")
    text = re.sub(r"\[([^\]]+)\]\((?!#|https?:)[^)]+\)", r"\1", text)
    body = MarkdownIt("commonmark").enable("table").render(text)
    body = re.sub(r"<h2>(\w+)</h2>", lambda match: f'<h2 id="{match[1].lower()}">{match[1]}</h2>', body)
    title = text.partition("\n")[0].removeprefix("# ")
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>'
    return f"<!doctype html>\n<!-- Written by deploy/runbook.py from RUNBOOK.md. -->\n{head}\n<style>{_STYLE}</style>\n{body}"


def main() -> None:
    """Writes the page."""
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(SOURCE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
