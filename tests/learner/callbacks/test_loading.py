"""Callbacks by name."""

from pathlib import Path

import pytest

from learner.callbacks.loading import ENTRY_POINTS, load_callbacks
from learner.common.exits import UserError
from tests.learner.installed import install

MODULE = """
    class Good:
        def on_update(self, event):
            pass

    class Deaf:
        pass
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"good": "callbacks_of_a_test:Good", "deaf": "callbacks_of_a_test:Deaf"}
    site = install(tmp_path / "site", "callbacks_of_a_test", MODULE, {ENTRY_POINTS: points})
    monkeypatch.syspath_prepend(str(site))


def test_each_name_makes_one() -> None:
    """Of an entry point or of a module; a name that stands twice counts once."""
    made = load_callbacks(["good", "callbacks_of_a_test:Good", "good"])
    assert [name for name, _ in made] == ["good", "callbacks_of_a_test:Good"]
    assert {type(callback).__name__ for _, callback in made} == {"Good"}


def test_what_hears_nothing_is_refused() -> None:
    """A mistyped method would otherwise be silent for ever."""
    with pytest.raises(UserError, match="none of on_start, on_update, on_episode, on_checkpoint, on_end"):
        load_callbacks(["deaf"])


def test_attributes_that_raise_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a callback does when it is looked at is an error of the run file."""
    (tmp_path / "hidden_of_a_test.py").write_text(
        "class Hidden:\n    def __getattr__(self, name):\n        raise SystemExit(name)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError, match="which failed: SystemExit: on_start"):
        load_callbacks(["hidden_of_a_test:Hidden"])
