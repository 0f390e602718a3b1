"""Tests the summary of a run, on disk and on the screen."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from learner.shared.observe.behavior_state import ActorNumbers, BehaviorState
from learner.shared.observe.milestones import Milestones
from learner.shared.observe.summary import (
    PROGRESS_FILE,
    BehaviorSummary,
    Summary,
    best_returns,
    finite,
    progress_document,
    read_small_json,
    write_progress,
    write_summary,
)
from learner.shared.observe.terminal import render_summary
from learner.shared.observe.view import RunState, RunView
from tests.learner.shared.observe.views import behavior


def summary_of(name: str, *, mean_return: float | None = 312.4, reached: bool = True) -> BehaviorSummary:
    """Returns the summary of a behavior that took its first step 30 seconds before its target and 40 before the end.

    In the last 8 of them no actor was there.
    """
    now = [0.0]
    milestones = Milestones(lambda: now[0])
    milestones.note_steps(8)
    now[0] = 30.0
    milestones.note_steps(90_000)
    if reached:
        milestones.note_target()
    now[0] = 32.0
    milestones.note_activity(is_idle=False)
    now[0] = 40.0
    milestones.note_steps(98_500)
    milestones.note_activity(is_idle=True)
    actors = ActorNumbers(discarded={"generation": 60}, dropped={}, outstanding=40)
    view = replace(behavior(name, mean_return=mean_return), env_steps_taken=98_500, actor_books=actors)
    return replace(BehaviorSummary.of(view, milestones), onnx_path=str(Path("results") / f"{name}.onnx"))


def test_one_behavior_stands_at_the_top(tmp_path: Path) -> None:
    """With one behavior each number is a top-level key with its unit."""
    path = write_summary(tmp_path, Summary("run-1", 2, "target_return", {"CartPole": summary_of("CartPole")}))
    assert path == tmp_path / "summary.json"
    content = json.loads(path.read_text())
    assert content == {
        "run_id": "run-1",
        "generation": 2,
        "stop_reason": "target_return",
        "behavior": "CartPole",
        "env_steps_taken": 98_500,
        "env_steps_trained": 98_304,
        "wall_seconds": 40.0,
        "active_seconds": 32.0,
        "seconds_to_target": 30.0,
        "env_steps_to_target": 90_000,
        "env_steps_per_second": 98_500 / 40,
        "env_steps_per_active_second": 98_500 / 32,
        "episodes": 480,
        "mean_return_100": 312.4,
        "target_return": 475.0,
        "policy_version": 24,
        "ledger": {
            "received": 98_400,
            "trained": 98_304,
            "dropped": {"stale": 90, "bad_action": 6},
            "duplicate": 0,
            "queued": 0,
            "lost": {},
            "unknown": 0,
        },
        "actor_books": {"discarded": {"generation": 60}, "dropped": {}, "outstanding": 40},
        "onnx_path": "results/CartPole.onnx",
    }


def test_several_behaviors(tmp_path: Path) -> None:
    """With several behaviors the first is at the top, and ``behaviors`` has all by name."""
    behaviors = {name: summary_of(name, reached=name == "B") for name in ("A", "B")}
    content = json.loads(write_summary(tmp_path, Summary("run", 1, "signal", behaviors)).read_text())
    assert content["behavior"] == "A"
    assert content["seconds_to_target"] is None
    assert list(content["behaviors"]) == ["A", "B"]
    assert content["behaviors"]["B"]["seconds_to_target"] == 30.0
    assert content["behaviors"]["A"] == {key: content[key] for key in content["behaviors"]["A"]}


def test_a_run_without_actors(tmp_path: Path) -> None:
    """A run without actors has a summary with its end."""
    summary = Summary("run", 1, "max_wall_seconds", {})
    content = json.loads(write_summary(tmp_path, summary).read_text())
    assert content == {"run_id": "run", "generation": 1, "stop_reason": "max_wall_seconds"}
    assert "no actor connected" in render_summary(summary)
    assert "no actor declared a behavior" in render_summary(replace(summary, actors_opened=1))


def test_a_stopped_run_tells_how_to_continue_and_names_are_text() -> None:
    """The first line names --resume if the run was stopped and something was trained; markup in names is shown as text."""
    shown = render_summary(Summary("run", 1, "signal", {"[red]x\x1b[2J": summary_of("A")}))
    assert "[red]x\\x1b[2J" in shown
    assert "to continue it, add --resume to the same command" in " ".join(shown.split())
    for ended in (Summary("run", 1, "signal", {}), Summary("run", 1, "max_steps", {"A": summary_of("A")})):
        assert "--resume" not in render_summary(ended)


def test_it_says_how_far_a_run_is(tmp_path: Path) -> None:
    """Progress has state, steps and returns of each behavior, and the best return over restarts."""
    behaviors = (BehaviorState("Walker", env_steps_trained=500, mean_return_100=3.0), BehaviorState("Idle"))
    view = RunView("run", RunState.TRAINING, 2, 10.0, "127.0.0.1:1", behaviors=behaviors)
    write_progress(tmp_path, progress_document(view, {"Walker": 7.5}, 1000.0))
    found = read_small_json(tmp_path / PROGRESS_FILE)
    assert (found["state"], found["generation"], found["time_seconds"]) == ("training", 2, 1000.0)
    walker = found["behaviors"]["Walker"]
    assert (walker["env_steps_trained"], walker["mean_return"], walker["best_return"]) == (500, 3.0, 7.5)
    assert best_returns(tmp_path) == {"Walker": 7.5}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"\xff", b"[" * 100_000, b'{"behaviors": 3}', b'{"behaviors": {"a": 1}}']
)
def test_a_damaged_file_says_nothing(tmp_path: Path, content: bytes) -> None:
    """A damaged file counts as missing."""
    (tmp_path / PROGRESS_FILE).write_bytes(content)
    assert best_returns(tmp_path) == {}


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    """A pipe in the place of the file counts as missing."""
    os.mkfifo(tmp_path / PROGRESS_FILE)
    assert read_small_json(tmp_path / PROGRESS_FILE) == {}


@pytest.mark.parametrize(
    ("value", "expected"),
    [(3, 3.0), (0.5, 0.5), (True, None), ("3", None), (None, None), (float("nan"), None), (10**400, None)],
)
def test_numbers_from_files(value: object, expected: float | None) -> None:
    """Only finite numbers of a file are accepted."""
    assert finite(value) == expected
    assert json.dumps(expected)


def test_each_behavior_is_a_block_without_long_lines(tmp_path: Path) -> None:
    """A block has the numbers that matter, with the reasons of steps that were not trained; the end names the file."""
    names = [f"Striker{index}" for index in range(8)]
    file = tmp_path / "summary.json"
    said = render_summary(Summary("run", 2, "max_steps", {name: summary_of(name) for name in names}), file)
    *lines, last = said.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[:10] == [
        "run run, generation 2, ended: max_steps is reached",
        "Striker0",
        "  steps     98,304 trained in 40.0 s   2,462/s",
        "  dropped   96 (stale 90, bad_action 6)",
        "  given up  60 (generation 60)",
        "  at actors 40",
        "  return    312.4 of 475.0   480 episodes",
        "  target    reached after 30.0 s, 90,000 steps",
        "  model     results/Striker0.onnx",
        "Striker1",
    ]
    assert [line for line in lines if line in names] == names
    assert last == f"every number: {file}"
