"""Players' logs lie beside the run's other files, or where the user wants them; a read-only folder stops nobody."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from actor_client.exits import ActorError, ExitCode
from actor_client.unity.players.logfiles import log_place
from tests.actor_client.unity.players.test_rules import run_info


def test_logs_lie_where_ml_agents_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first actor's have the same names; those of others tell the actors apart."""
    monkeypatch.chdir(tmp_path)
    place = log_place(None, run_info())
    assert place.folder == tmp_path / "results" / "run" / "run_logs"
    assert not place.prefix
    assert not list(place.folder.iterdir())
    assert log_place(None, dataclasses.replace(run_info(), actor_index=2)).prefix == "2-"


@pytest.mark.parametrize("run_id", ["..", "../../etc", "/etc", "", "a/b", ".hidden"])
def test_a_learner_does_not_choose_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_id: str) -> None:
    """A run whose name is no plain word has no folder here."""
    monkeypatch.chdir(tmp_path)
    assert log_place(None, dataclasses.replace(run_info(), run_id=run_id)).folder is None
    assert not list(tmp_path.iterdir())


def test_a_folder_that_was_asked_for_must_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default the players go on without; asked for, it is one line."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").write_text("a file in the way")
    assert log_place(None, run_info()).folder is None
    with pytest.raises(ActorError, match="--log-dir results/x cannot be written to") as failure:
        log_place(Path("results/x"), run_info())
    assert failure.value.exit_code is ExitCode.USAGE
    assert log_place(Path("mine"), run_info()).folder == tmp_path / "mine"
