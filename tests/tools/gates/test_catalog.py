"""Tests that all gates can be started."""

from __future__ import annotations

import itertools
import re
from collections import Counter

import gymnasium
import pytest

from learner.settings.load import load_run_options
from tests.tools.gates.catalog import GATES
from tests.tools.gates.gate import Arm, Gate
from tests.tools.gates.greedy import make, random_returns
from tests.tools.gates.imitation import RANDOM_RETURNS
from tests.tools.gates.training import behavior_of, learner_command
from tests.tools.players.tasks import TASKS

ARMS = [pytest.param(gate, arm, id=f"{gate.name}-{arm.name}") for gate in GATES for arm in gate.arms]


def test_names_are_words_for_the_command_line() -> None:
    """Names of gates and arms are unique and can be parts of file names."""
    assert max(Counter(gate.name for gate in GATES).values()) == 1
    for gate in GATES:
        names = [arm.name for arm in gate.arms]
        assert len(names) == len(set(names))
        assert all(re.fullmatch(r"[a-z_-]+", name) for name in (gate.name, *names)), names


@pytest.mark.parametrize(("gate", "arm"), ARMS)
def test_run_files_with_the_settings_of_their_arm_are_valid(gate: Gate, arm: Arm) -> None:
    """The arms' learner arguments fit their run files, and none is ignored."""
    command = learner_command(arm, 1, arm.run_file.parent / "none", arm.run_file)
    changes = [value for flag, value in itertools.pairwise(command) if flag == "--set"]
    assert f"behaviors.{behavior_of(arm.run_file)}.max_steps={arm.budget_steps}" in changes
    assert "{demo}" not in " ".join(command)
    loaded = load_run_options(arm.run_file, set_items=changes, environ={})
    assert loaded.options.behaviors[behavior_of(arm.run_file)].max_steps == arm.budget_steps
    assert loaded.warnings == ()


@pytest.mark.parametrize(
    "env", sorted({arm.env for gate in GATES for arm in gate.arms if arm.actor == "gym"} - TASKS.keys())
)
def test_environments_exist(env: str) -> None:
    """Each `--env` is an environment of gymnasium or of the gates, and can be stepped."""
    if ":" not in env:
        assert gymnasium.spec(env).id == env
        return
    environment = make(env, {})
    environment.reset(seed=1)
    environment.action_space.seed(1)
    assert len(environment.step(environment.action_space.sample())) == 5


def test_demonstrations_come_from_an_earlier_arm() -> None:
    """An arm that imitates names an earlier arm that records."""
    for gate in GATES:
        recorded: set[str] = set()
        for arm in gate.arms:
            assert arm.demonstrations is None or arm.demonstrations in recorded
            assert (arm.demonstrations is not None) == ("{demo}" in " ".join(arm.settings))
            recorded |= {arm.name} if arm.record else set()


@pytest.mark.parametrize("env", sorted(RANDOM_RETURNS))
def test_chance_is_what_imitation_says_it_is(env: str) -> None:
    """The returns of random actions in the rules are those of the environment."""
    returns = random_returns(env, {}, 100)
    mean = sum(returns) / len(returns)
    spread = (sum((value - mean) ** 2 for value in returns) / len(returns)) ** 0.5
    assert abs(mean - RANDOM_RETURNS[env]) < 4.0 * spread / 10.0
