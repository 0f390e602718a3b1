"""Tests users' functions as opponents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec

from actor_client.exits import ActorError, ExitCode
from actor_client.rollout.agents.scripts import ScriptedOpponent

MODULE = "tests.actor_client.rollout.agents.test_scripts"
STATE = ObservationSpec("state", np.dtype("float32"), (2,))
GOAL = ObservationSpec("goal", np.dtype("int64"), (1,))
HYBRID = BehaviorSpec("Game", (STATE, GOAL), ActionSpec(1, (2, 3)))
CHOICE = BehaviorSpec("Game", (STATE,), ActionSpec(discrete_branches=(3,)))
SEEN = np.arange(8, dtype=np.float32).reshape(4, 2)


def steer(observations: dict[str, Any], masks: Any) -> Any:
    """Moves by the state, and chooses by the goal and the masks."""
    return np.concatenate([observations["state"][:, :1], observations["goal"], masks[:, 2:].argmax(1)[:, None]], axis=1)


class Counts:
    """Chooses the number of its calls."""

    def __init__(self) -> None:
        self.calls = -1

    def __call__(self, observations: Any, masks: Any) -> Any:
        """Counts a call."""
        assert masks is None
        self.calls += 1
        return [self.calls] * len(observations)


class Broken:
    """Cannot be made."""

    def __init__(self) -> None:
        raise KeyError("no book of openings")


class Settings:
    """Things that are no scripts."""

    depth = 3


def leave(observations: Any, masks: Any) -> Any:
    """Tries to end the program."""
    raise SystemExit(0)


def short(observations: Any, masks: Any) -> Any:
    """Forgets an agent."""
    return [0] * (len(observations) - 1)


def wild(observations: Any, masks: Any) -> Any:
    """Chooses what does not exist."""
    return [5] * len(observations)


def unsure(observations: Any, masks: Any) -> Any:
    """Chooses nothing."""
    return [np.nan] * len(observations)


def last(observations: Any, masks: Any) -> Any:
    """Chooses the last branch, allowed or not."""
    return [2] * len(observations)


def test_actions_are_those_of_the_function() -> None:
    """A function gets all observations by name and the masks, and its rows become axes and choices."""
    masks = np.array([[1, 1, 0, 1, 0]] * 4, np.uint8)
    goals = np.array([[0], [1], [0], [1]])
    actions = ScriptedOpponent(f"{MODULE}:steer").act(HYBRID, [SEEN, goals], masks)
    assert actions.continuous is not None
    assert actions.environment_continuous is not None
    assert actions.discrete is not None
    assert actions.continuous.tolist() == actions.environment_continuous.tolist() == SEEN[:, :1].tolist()
    assert actions.discrete.tolist() == [[goal, 1] for goal in (0, 1, 0, 1)]
    assert actions.log_prob.shape == (4, 3)


def test_a_class_is_made_once() -> None:
    """A class is made once and keeps its state; with one branch, one number per agent is enough."""
    script = ScriptedOpponent(f"{MODULE}:Counts")
    found = [script.act(CHOICE, [SEEN], None).discrete for _ in range(3)]
    assert [each.tolist() for each in found if each is not None] == [[[number]] * 4 for number in range(3)]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere:chase", "module nowhere cannot be imported: ModuleNotFoundError"),
        (f"{MODULE}:chase", f"module {MODULE} has no chase"),
        (f"{MODULE}:Settings.depth", "Settings.depth is int; a callable that returns actions is needed"),
        (
            f"{MODULE}:Broken",
            "failed: KeyError: 'no book of openings' (tests/actor_client/rollout/agents/test_scripts.py:",
        ),
    ],
)
def test_what_is_no_script(name: str, said: str) -> None:
    """A script that does not exist, or cannot be made, ends the actor before it connects."""
    with pytest.raises(ActorError) as caught:
        ScriptedOpponent(name)
    assert caught.value.message.startswith(f"--opponent {name}")
    assert said in caught.value.message
    assert ("line" in caught.value.traceback) == ("Broken" in name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("leave", "failed: SystemExit: 0 (tests/actor_client/rollout/agents/test_scripts.py:"),
        ("short", "returned actions of the shape [3], but the shape is [4, 1]"),
        ("wild", "returned the choices [5.0, 5.0, 5.0, 5.0] of branch 0, but choices are whole numbers from 0 to 2"),
        ("unsure", "returned NaN or infinity, but actions are finite"),
        ("last", "returned the choices [2.0, 2.0, 2.0, 2.0] of branch 0, but the masks forbid one of them"),
    ],
)
def test_what_is_no_action(name: str, said: str) -> None:
    """A script that fails or returns no actions ends the actor with its name and the reason."""
    script = ScriptedOpponent(f"{MODULE}:{name}")
    with pytest.raises(ActorError) as caught:
        script.act(CHOICE, [SEEN], np.array([[1, 1, 0]] * 4, np.uint8))
    assert caught.value.exit_code is ExitCode.OPPONENT_FAILED
    assert caught.value.message.startswith(f"--opponent {MODULE}:{name} ")
    assert said in caught.value.message
