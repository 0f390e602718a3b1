"""``rollcast-learner check-config``: shows what a run would be started with, and where each value came from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import TextIO

from learner.exits import ExitCode
from learner.settings.base import Path, Tree, Value
from learner.settings.load import LoadedRun, load_run_options
from learner.settings.lockstep import explanation
from learner.settings.resolved import effective_document
from learner.settings.unsupported import unsupported

_INDENT = "  "


def check_config(
    path: FilePath | None,
    *,
    output: TextIO,
    errors: TextIO,
    as_json: bool = False,
    cli: Mapping[str, object] | None = None,
    set_items: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> ExitCode:
    """Writes the resolved settings to ``output``: a tree with sources, or the bare tree as JSON.

    Warnings, what lock-step means, and what is not built yet, so that a run with these settings would be refused, go to
    ``errors``.

    Returns:
        OK: the settings can be read.

    Raises:
        UserError: the settings cannot be read; ``details`` has every problem if there are several.
    """
    loaded = load_run_options(path, cli=cli, set_items=set_items, environ=environ)
    missing = unsupported(loaded.options)
    if as_json:
        json.dump(effective_document(loaded), output, indent=2)
        output.write("\n")
    else:
        output.write(render_tree(loaded))
    errors.writelines(f"warning: {line}\n" for line in loaded.warnings)
    errors.writelines(f"note: {line}\n" for line in explanation(loaded.options))
    errors.writelines(f"serve would refuse: {line}\n" for line in missing)
    return ExitCode.OK


def render_tree(loaded: LoadedRun) -> str:
    """Returns the settings as an indented tree; beside each value stands its source."""
    rows = list(_rows(effective_document(loaded), loaded.sources, ()))
    width = min(max((len(text) for text, _ in rows), default=0), 72)
    lines = [f"{text:<{width}}  # {source}" if source else text for text, source in rows]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _rows(tree: Tree, sources: Mapping[str, str], path: Path) -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        here = (*path, key)
        margin = _INDENT * len(path)
        if isinstance(value, dict) and value:
            yield f"{margin}{key}:", ""
            yield from _rows(value, sources, here)
        else:
            yield f"{margin}{key}: {_shown(value)}", sources.get(".".join(here), "")


def _shown(value: Value) -> str:
    """Returns a value as it could be written in the run file."""
    return json.dumps(value, ensure_ascii=False) if not isinstance(value, str) or not value else value
