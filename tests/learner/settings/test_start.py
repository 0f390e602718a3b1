"""resume and initialize_from are settled: the command line wins, else resume does."""

from __future__ import annotations

import pytest

from learner.settings.base import Value
from learner.settings.load import load_run_options

from .conftest import WriteRun


@pytest.mark.parametrize(
    ("file", "cli", "expected"),
    [
        ("{resume: true, initialize_from: old}", {}, (True, None, 1)),
        ("{resume: true}", {"initialize_from": "old"}, (False, "old", 1)),
        ("{initialize_from: old}", {"resume": True}, (True, None, 1)),
        ("{}", {"resume": True, "initialize_from": "old"}, (True, None, 1)),
        ("{resume: auto, initialize_from: old}", {}, ("auto", None, 1)),
        ("{resume: false, initialize_from: old}", {}, (False, "old", 0)),
        ('{resume: "no", initialize_from: old}', {}, (False, "old", 1)),
        ("{load_model: true}", {}, (True, None, 1)),
        ("{}", {"load": True}, (True, None, 1)),
    ],
)
def test_a_run_starts_from_one_thing(
    write_run: WriteRun, file: str, cli: dict[str, Value], expected: tuple[object, ...]
) -> None:
    """What is dropped, and every old name, is told in a warning."""
    path = write_run(f"behaviors: {{A: }}\ncheckpoint_settings: {file}\n")
    loaded = load_run_options(path, cli=cli)
    settings = loaded.options.checkpoint_settings
    assert expected == (settings.resume, settings.initialize_from, len(loaded.warnings))
