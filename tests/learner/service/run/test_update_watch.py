"""Tests that a run which collects and is not updated says why within a minute."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from learner.service.run.update_watch import UpdateWatch
from learner.shared.observe.behavior_state import BehaviorState, empty_books
from learner.shared.settings.trainer import TrainerSettings
from tests.clock import Clock

PPO = {"hyperparameters": {"buffer_size": 250, "batch_size": 64}, "time_horizon": 100_000}
SAC = {"trainer_type": "sac", "hyperparameters": {"batch_size": 64, "buffer_init_steps": 5000}}


def told(
    settings: dict[str, Any], *, seconds: int = 39, held: float = 0, received: float = 0, **books: Any
) -> list[Any]:
    """Returns what is logged in some seconds in which actors take 20 steps each.

    Args:
        settings: Settings of the behavior.
        seconds: Seconds.
        held: Share of the steps that actors hold.
        received: Share of the steps that the learner receives.
        books: Further books.
    """
    clock = Clock()
    watch, model = UpdateWatch(clock), TrainerSettings.model_validate({"trainer_type": "ppo", **settings})
    with capture_logs() as logs:
        for second in range(seconds):
            taken = 20 * second
            dropped = {reason: int(share * taken) for reason, share in books.get("dropped", {}).items()}
            ledger = {**empty_books(), "received": int(received * taken), "dropped": dropped}
            state = BehaviorState("Ball", books=ledger, **{"env_steps_taken": taken, **books.get("state", {})})  # type: ignore[arg-type]
            watch.look(state, model, int(held * taken), trains=books.get("trains", True))
            clock.now += 1.0
    return [(entry["log_level"], entry["reason"]) for entry in logs if entry["event"] == "no_update_yet"]


@pytest.mark.parametrize(
    ("case", "level", "said"),
    [
        ({"settings": PPO, "held": 1}, "warning", "lower time_horizon"),
        ({"settings": PPO, "held": 0.9, "received": 0.1}, "warning", "after time_horizon 100000 steps"),
        ({"settings": PPO, "received": 1, "dropped": {"stale": 1}}, "warning", "were dropped (stale 400)"),
        (
            {"settings": {**PPO, "hyperparameters": {"buffer_size": 10240}}, "received": 1},
            "info",
            "400 of the 10240 steps",
        ),
        ({"settings": SAC, "received": 1}, "info", "400 of the 5000 steps for an update (buffer_init_steps)"),
        ({"settings": PPO, "received": 1}, "info", "the update takes long"),
    ],
)
def test_the_reason_is_told_within_a_minute(case: dict[str, Any], level: str, said: str) -> None:
    """Once, with the key that hinders; a warning where waiting does not help."""
    ((found, reason),) = told(**case)
    assert found == level
    assert said in reason


def test_it_is_told_again_at_growing_intervals() -> None:
    """In an hour a few times."""
    assert len(told(PPO, held=1, seconds=3600)) == 8


@pytest.mark.parametrize(
    "case",
    [
        {"trains": False},
        {"state": {"env_steps_taken": 0}},
        {"seconds": 19},
    ],
    ids=["paused", "nobody steps", "soon"],
)
def test_nothing_is_told_of_runs_that_wait(case: dict[str, Any]) -> None:
    """Pauses, missing actors and the first seconds need no reason."""
    assert told(PPO, held=1, **case) == []
