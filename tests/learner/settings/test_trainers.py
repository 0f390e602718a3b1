"""Tests the settings of several trainer processes."""

from __future__ import annotations

import pytest

from learner.settings.options import RunOptions
from learner.settings.rules import unsupported


@pytest.mark.parametrize(
    ("trainer", "trainers", "is_refused"), [("sac", 2, True), ("sac", 1, False), ("ppo", 2, False)]
)
def test_sac_trains_in_one_process(trainer: str, trainers: int, is_refused: bool) -> None:
    """A trainer with a replay memory is refused by name, and the message names the others."""
    document = {"behaviors": {"A": {"trainer_type": trainer}}, "rollcast": {"trainers": trainers}}
    found = unsupported(RunOptions.model_validate(document))
    assert [line.split("; ")[0] for line in found] == (
        ["behaviors.A.trainer_type: sac trains in one process"] if is_refused else []
    )
