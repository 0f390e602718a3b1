"""Compares how run files resolve with ML-Agents' own code, over generated values and notations."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from learner.shared.exits import UserError
from learner.shared.settings.load import load_run_options
from tests.nightly.stock.forms import run_files
from tests.tools.bench.environments import ML_AGENTS

COUNT = 1000
DIFFERENCES = {
    "it counts as|the default counts": "numbers that cannot be used here count as the nearest, and no numbers as the default",
    "is read as false": "the texts 'false' and 'no' are no; ML-Agents reads any text as yes",
    "its words are taken": "a text in place of a list is its words, not its letters",
    "encoding_size": "hidden_units is a whole number; ML-Agents copies what is written, and fails when it builds the network",
    "load_model": "load_model: true resumes, as --load does; ML-Agents ignores it in a file",
}
"""What our warnings, or paths of differing values, contain, and why the value differs."""
REFUSALS = {
    r"run_id|initialize_from": "names that leave the results folder, or name none",
    r"environment_parameters\.m": "values without a number that could be sent to a player, and intervals that are none",
    r"has neither behaviors nor default_settings|reward_signals: is empty": "ML-Agents starts, and fails at the first agent",
}
"""What our errors contain, and why ML-Agents accepts the file although it cannot run."""


class Compared(NamedTuple):
    """One run file, and both answers; a refusal, or the resolved tree."""

    written: str
    text: str
    ours: dict[str, Any] | str
    warnings: tuple[str, ...]
    theirs: dict[str, Any] | str


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> list[Compared]:
    """Resolves all run files on both sides."""
    folder = tmp_path_factory.mktemp("stock")
    ML_AGENTS.ensure(folder / "pip.log")
    found = []
    made = list(run_files(COUNT, seed=1))
    for number, (_, text) in enumerate(made):
        (folder / f"{number}.yaml").write_text(text, encoding="utf-8", newline="")
    paths = [folder / f"{number}.yaml" for number in range(len(made))]
    resolver = Path(__file__).with_name("resolver.py")
    lines = "".join(f"{path}\n" for path in paths)
    told = subprocess.run(
        [ML_AGENTS.python, resolver], input=lines, capture_output=True, text=True, check=True, timeout=600
    )
    for (written, text), path, line in zip(made, paths, told.stdout.splitlines(), strict=True):
        answer = json.loads(line)
        try:
            loaded = load_run_options(path)
        except UserError as error:
            ours: dict[str, Any] | str = "; ".join([error.message, *error.details])
            warnings: tuple[str, ...] = ()
        else:
            ours, warnings = loaded.options.model_dump(mode="json"), loaded.warnings
        found.append(Compared(written, text, ours, warnings, answer.get("resolved") or str(answer["refused"])))
    return found


def different(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Yields where two trees differ; keys that only Rollcast has do not count."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in theirs:
            yield from different(ours.get(key), theirs[key], f"{path}.{key}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(ours) == len(theirs):
        for place, pair in enumerate(zip(ours, theirs, strict=True)):
            yield from different(*pair, f"{path}[{place}]")
    elif ours != theirs:
        yield f"{path}: {ours!r}, and in ML-Agents {theirs!r}"


def test_what_mlagents_accepts_is_accepted(compared: list[Compared]) -> None:
    """No file is refused that ML-Agents accepts, save for what it cannot run."""
    refused = [one for one in compared if isinstance(one.ours, str) and isinstance(one.theirs, dict)]
    unlisted = [(one.written, one.ours) for one in refused if not re.search("|".join(REFUSALS), str(one.ours))]
    assert unlisted == []
    assert sum(isinstance(one.theirs, dict) for one in compared) > COUNT / 3


def test_what_is_accepted_resolves_alike(compared: list[Compared]) -> None:
    """Values are equal, or differ as listed."""
    unlisted = []
    for one in compared:
        if isinstance(one.ours, dict) and isinstance(one.theirs, dict):
            found = list(different(one.ours, one.theirs))
            told = " ".join([*one.warnings, *found])
            if found and not re.search("|".join(DIFFERENCES), told):
                unlisted.append((one.written, found))
    assert unlisted == []
    assert len(DIFFERENCES) + len(REFUSALS) <= 10
