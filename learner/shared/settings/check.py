"""``rollcast check-config``: shows the resolved settings of a run and the source of each value."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import TextIO

from learner.shared.exits import ExitCode
from learner.shared.settings.base import Path, SettingsModel, Tree, Value
from learner.shared.settings.load import LoadedRun, effective_document, load_run_options
from learner.shared.settings.rules import explanation, unsupported

_INDENT = "  "


def check_config(
    path: FilePath | None,
    *,
    output: TextIO,
    errors: TextIO,
    as_json: bool = False,
    explain: bool = False,
    missing: Callable[[LoadedRun], Sequence[str]] = lambda _: (),
    cli: Mapping[str, object] | None = None,
    set_items: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> ExitCode:
    """Writes the resolved settings to ``output``: a tree with sources and, if ``explain``, meanings, or the bare tree as JSON.

    Warnings, the effects of lock-step, and problems that would prevent the run (features not built yet or, by
    ``missing``, missing parts) are written to ``errors``.

    Returns:
        OK: The settings can be read.

    Raises:
        UserError: The settings cannot be read; ``details`` has every problem if there are several.
    """
    loaded = load_run_options(path, cli=cli, set_items=set_items, environ=environ)
    refused = [*unsupported(loaded.options), *missing(loaded)]
    if as_json:
        json.dump(effective_document(loaded), output, indent=2)
        output.write("\n")
    else:
        output.write(render_tree(loaded, explain=explain))
    errors.writelines(f"warning: {line}\n" for line in loaded.warnings)
    errors.writelines(f"note: {line}\n" for line in explanation(loaded.options))
    errors.writelines(f"serve would refuse: {line}\n" for line in refused)
    return ExitCode.OK


def render_tree(loaded: LoadedRun, *, explain: bool = False) -> str:
    """Returns the settings as an indented tree, with the source of each value and, if requested, its meaning."""
    notes = _meanings(loaded) if explain else loaded.sources
    rows = list(_rows(effective_document(loaded), notes, ()))
    width = min(max((len(text) for text, _ in rows), default=0), 72)
    lines = [f"{text:<{width}}  # {note}" if note else text for text, note in rows]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _meanings(loaded: LoadedRun) -> dict[str, str]:
    """Returns the source and the meaning of each value, and the meaning of each block, by dotted paths."""
    notes = dict(loaded.sources)
    for path, meaning in _described(loaded.options, ()):
        place = ".".join(path)
        notes[place] = f"{notes[place]}; {meaning}" if place in notes else meaning
    return notes


def _described(block: object, path: Path) -> Iterator[tuple[Path, str]]:
    """Yields the meaning of each field below a block."""
    if isinstance(block, Mapping):
        for key, item in block.items():
            yield from _described(item, (*path, str(key)))
    elif isinstance(block, SettingsModel):
        for key, field in type(block).model_fields.items():
            if field.description:
                yield (*path, key), field.description
            yield from _described(getattr(block, key), (*path, key))


def _rows(tree: Tree, notes: Mapping[str, str], path: Path) -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        here = (*path, key)
        margin = _INDENT * len(path)
        if isinstance(value, dict) and value:
            yield f"{margin}{key}:", notes.get(".".join(here), "")
            yield from _rows(value, notes, here)
        else:
            yield f"{margin}{key}: {_shown(value)}", notes.get(".".join(here), "")


def _shown(value: Value) -> str:
    """Returns a value in the run file's notation."""
    return json.dumps(value, ensure_ascii=False) if not isinstance(value, str) or not value else value
