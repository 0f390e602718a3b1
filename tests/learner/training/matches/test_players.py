"""Tests which players a run and the texts of --against name."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from learner.shared.exits import ExitCode, UserError
from learner.training.matches.players import Kind, Player, checkpoints, distinct, opponent, players_of_run, spread


def run(results: Path, name: str = "run", *steps: int) -> Path:
    """Makes a run with a model, a best one, and checkpoints."""
    folder = results / name
    (folder / "Board").mkdir(parents=True)
    (folder / "Board.onnx").write_bytes(b"last")
    (folder / "Board" / "best.onnx").write_bytes(b"best")
    for step in steps:
        (folder / "Board" / f"Board-{step}.onnx").write_bytes(b"%d" % step)
        (folder / "Board" / f"Board-{step}.pt").write_bytes(b"state")
    return folder


def test_checkpoints_are_spread_evenly(tmp_path: Path) -> None:
    """All checkpoints of a run play in the order of their steps; of too many, the first, the last, and some between them."""
    folder = run(tmp_path, "run", 1000, 200, 300, 40)
    assert list(checkpoints(folder, "Board")) == [40, 200, 300, 1000]
    assert [player.name for player in players_of_run(folder, "Board", 8)] == ["@40", "@200", "@300", "@1000"]
    assert spread(range(10), 4) == [0, 3, 6, 9]
    assert spread(range(10), 1) == [9]
    assert [player.step for player in players_of_run(folder, "Board", 2)] == [40, 1000]


def test_a_run_without_checkpoints_plays_with_its_model(tmp_path: Path) -> None:
    """The model of the end plays alone; a run without any model is an error that names where it was looked for."""
    folder = run(tmp_path)
    (player,) = players_of_run(folder, "Board", 8)
    assert (player.name, player.step, player.path) == ("run", None, folder / "Board.onnx")
    with pytest.raises(UserError, match="no exported model of 'Other'") as caught:
        players_of_run(folder, "Other", 8)
    assert caught.value.exit_code is ExitCode.BAD_CHECKPOINT


@pytest.mark.parametrize(
    ("text", "kind", "content"),
    [
        ("random", Kind.RANDOM, None),
        ("actor:my_game.scripts:Chaser", Kind.SCRIPT, None),
        ("@40", Kind.MODEL, b"40"),
        ("other@7", Kind.MODEL, b"7"),
        ("other@last", Kind.MODEL, b"last"),
        ("other@best", Kind.MODEL, b"best"),
    ],
)
def test_what_a_text_names(text: str, kind: Kind, content: bytes | None, tmp_path: Path) -> None:
    """Random, scripts of actors, and models of this run and of another one."""
    folder = run(tmp_path, "run", 40)
    run(tmp_path, "other", 7)
    found = opponent(text, "Board", tmp_path, folder)
    assert (found.name, found.kind) == (text, kind)
    assert (None if found.path is None else found.path.read_bytes()) == content
    assert found.script == ("my_game.scripts:Chaser" if kind is Kind.SCRIPT else "")


def test_a_file_is_named_by_its_path(tmp_path: Path) -> None:
    """A model's file has the name of the file, also with an @ in it; its identity is its content."""
    path = tmp_path / "a@b.onnx"
    path.write_bytes(b"40")
    found = opponent(str(path), "Board", tmp_path, run(tmp_path, "run", 40))
    assert found.name == "a@b"
    assert found.identity == opponent("@40", "Board", tmp_path, tmp_path / "run").identity


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nobody@5", "there is no run 'nobody'"),
        ("@41", "no such model of 'Board' \\(checkpoints with a model: 40\\)"),
        ("@first", "a step, last or best"),
        ("@" + "9" * 30, "a step, last or best"),
        ("missing.onnx", "no such file"),
        ("actor:center", "module:callable"),
        ("actor:a:b\x1b", "module:callable"),
    ],
)
def test_what_names_nothing_is_an_error(text: str, message: str, tmp_path: Path) -> None:
    """The message tells what was looked for and what can be named."""
    with pytest.raises(UserError, match=message) as caught:
        opponent(text, "Board", tmp_path, run(tmp_path, "run", 40))
    is_unknown = message.startswith("there is no run")
    assert caught.value.exit_code is (ExitCode.NOTHING_TO_RESUME if is_unknown else ExitCode.USAGE)


def test_equal_players_play_once_and_names_differ() -> None:
    """A file that is named twice is one player, which is told; two files of one name are told apart."""
    with capture_logs() as logs:
        found = distinct([Player("a", "1", Kind.MODEL), Player("a", "2", Kind.MODEL), Player("b", "1", Kind.MODEL)])
    assert [(line["event"], line["players"]) for line in logs] == [("same_players", ["b = a"])]
    assert [(player.name, player.identity) for player in found] == [("a", "1"), ("a (2)", "2")]
    with pytest.raises(UserError, match="this one has 1 different ones"):
        distinct([Player("a", "1", Kind.MODEL), Player("b", "1", Kind.MODEL)])
