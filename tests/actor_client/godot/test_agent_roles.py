"""Tests what agents see and do, and which behaviors they get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from rollcast.enums import ImageLayout, ObservationKind

from actor_client.connection.session import RunInfo
from actor_client.envs.errors import UnsupportedSpace
from actor_client.exits import ActorError
from actor_client.godot.agent_roles import Part, PolicyRoles, agents_of
from actor_client.godot.messages import GameFault
from actor_client.policy.actions import Actions
from actor_client.rollout.link import ChunkLimits
from actor_client.settings.agents import split_rule
from tests.tools.godot_game import CartPole, Mixed

LIMITS = ChunkLimits(1 << 18, 1 << 22, 0.05, 0)


def described(*policies: str, task: type[CartPole] = CartPole, **changes: Any) -> dict[str, Any]:
    """Returns the message of a game with an agent of each policy."""
    agents = len(policies)
    return {
        "type": "env_info",
        "n_agents": agents,
        "agent_policy_names": list(policies),
        "observation_space": [task.observation_space] * agents,
        "action_space": [task.action_space] * agents,
    } | changes


def cast(message: Mapping[str, Any], *rules: str, run: Sequence[str] = (), teams: Sequence[str] = ()) -> list[Part]:
    """Returns the parts of a game."""
    info = RunInfo("first", 1, 0, 7, tuple(run), LIMITS, 10.0)
    return PolicyRoles([split_rule(each) for each in rules], [split_rule(each) for each in teams], info).parts(
        agents_of(message)
    )


def test_spaces_become_those_of_the_plug_ins_trainer() -> None:
    """Vectors are float32, pictures bytes with channels last, categories integers; numbers may have a decimal point."""
    message = described("shared_policy", task=Mixed)
    message["action_space"][0] = Mixed.action_space | {"gear": {"size": 4.0, "action_type": "discrete"}}
    (part,) = cast(message)
    camera, vector, room = part.spec.observations
    assert (camera.name, str(camera.dtype), camera.shape) == ("camera_2d", "uint8", (20, 24, 3))
    assert camera.layout is ImageLayout.HWC
    assert (vector.name, str(vector.dtype), vector.shape) == ("obs", "float32", (2,))
    assert vector.bounds is None
    assert (room.name, room.kind, room.categories) == ("room", ObservationKind.CATEGORICAL, (3,))
    action = part.spec.action
    assert (action.continuous_size, action.discrete_branches, action.continuous_low) == (3, (2, 4), (-1.0,) * 3)


def test_observations_and_actions_are_those_of_the_plug_ins_trainer() -> None:
    """Pictures are read from their digits; actions are in the game's order, and within -1 and 1."""
    (part,) = cast(described("shared_policy", "shared_policy", task=Mixed))
    picture = bytes(place % 256 for place in range(20 * 24 * 3))
    seen = [{"camera_2d": picture.hex(), "obs": [0.5, None], "room": 2.0}] * 2
    camera, vector, room = part.observations.encode(seen)
    assert camera.shape == (2, 20, 24, 3)
    assert camera[0].tobytes() == picture
    assert vector[1, 0] == 0.5
    assert np.isnan(vector[1, 1])
    assert room.tolist() == [[2], [2]]
    axes = np.array([[0.5, -7.0, 0.25], [np.nan, 0.0, 9.0]], np.float32)
    choices = np.array([[1, 3], [0, 2]], np.int32)
    made = part.actions.make(Actions(axes, choices, np.zeros((2, 5), np.float32), axes))
    assert made == [
        {"steer": [0.5, -1.0], "jump": 1, "gear": 3, "gas": [0.25]},
        {"steer": [0.0, 0.0], "jump": 0, "gear": 2, "gas": [1.0]},
    ]
    assert list(made[0]) == list(Mixed.action_space)
    assert type(made[0]["gear"]) is int


def test_one_space_is_that_of_all_agents_of_an_older_plug_in() -> None:
    """An older plug-in sends a single space, and no names of policies."""
    message = described("", "", "", observation_space=CartPole.observation_space, action_space=CartPole.action_space)
    del message["agent_policy_names"]
    (part,) = cast(message)
    assert (part.spec.name, part.agents) == ("shared_policy", [0, 1, 2])


@pytest.mark.parametrize(
    ("policies", "rules", "run", "names"),
    [
        (("shared_policy",), (), (), ["shared_policy"]),
        (("shared_policy",), (), ("Ball",), ["Ball"]),
        (("shared_policy",), ("Pole",), ("Ball", "Pole"), ["Pole"]),
        (("chaser", "runner"), (), (), ["chaser", "runner"]),
        (("chaser", "runner"), (), ("runner", "chaser", "other"), ["chaser", "runner"]),
        (("chaser",), (), ("runner", "chaser"), ["chaser"]),
        (("chaser_1", "chaser_2"), ("chaser_*=Ch",), ("Ch", "Ru"), ["Ch"]),
    ],
)
def test_agents_get_behaviors_by_their_policies(
    policies: Sequence[str], rules: Sequence[str], run: Sequence[str], names: Sequence[str]
) -> None:
    """The rules decide; without them a game's only policy is the run's only behavior, and several have their own names."""
    assert sorted(part.spec.name for part in cast(described(*policies), *rules, run=run)) == names


def test_teams_of_a_behavior_are_parts_of_their_own() -> None:
    """Agents of two policies may be two teams of one behavior, each at its places in the messages."""
    parts = cast(described("red", "blue", "red"), "Player", teams=["blue=1"])
    assert [(part.behavior_id, part.agents) for part in parts] == [("Player?team=0", [0, 2]), ("Player?team=1", [1])]


@pytest.mark.parametrize(
    ("policies", "rules", "run", "said"),
    [
        (("chaser",), ("run*=R",), (), "no --behavior matches the policy 'chaser'"),
        (("chaser", "runner"), (), ("runner",), "'chaser' is no behavior of run first"),
        (("shared_policy",), (), ("A", "B"), "run first has the behaviors A, B; choose with --behavior"),
        (("a/b",), (), (), "separate parts of a path"),
    ],
)
def test_a_policy_without_a_behavior_ends_the_actor(
    policies: Sequence[str], rules: Sequence[str], run: Sequence[str], said: str
) -> None:
    """The error names the policy and the flag."""
    with pytest.raises(ActorError, match=said):
        cast(described(*policies), *rules, run=run)


@pytest.mark.parametrize(
    "change",
    [
        {"observation_space": [CartPole.observation_space, Mixed.observation_space]},
        {"action_space": [CartPole.action_space, {"shove": {"size": 2, "action_type": "discrete"}}]},
        {"action_space": [CartPole.action_space, {"push": {"size": 3, "action_type": "discrete"}}]},
    ],
)
def test_agents_of_one_behavior_have_equal_spaces(change: Mapping[str, Any]) -> None:
    """Others cannot share a policy, and a restarted game must have those of the first."""
    with pytest.raises(UnsupportedSpace, match="agents of one behavior need equal ones"):
        cast(described("a", "b", **change), "Both")


@pytest.mark.parametrize(
    "change",
    [
        *({"n_agents": count} for count in (0, -1, 1.5, True, "2", None, 10**9, float("nan"), [1])),
        *({"agent_policy_names": names} for names in (7, [1, 2], ["a"], {"a": 1})),
        *({"observation_space": space} for space in (None, [], [{}, 1], {}, {"obs": 4}, {"obs": {"size": [4]}})),
        *(
            {"observation_space": {"obs": {"size": size, "space": "box"}}}
            for size in (4, [], [0], [-1], [1.5], [2] * 9, [10**6, 10**6], ["4"], [10**30], None)
        ),
        {"observation_space": {"obs": {"size": [4], "space": "text"}}},
        {"observation_space": {"obs": {"size": [4], "space": "discrete"}}},
        {"observation_space": {f"obs{place}": {"size": [1], "space": "box"} for place in range(65)}},
        {"action_space": {"a": {"size": 1, "action_type": "dance"}}},
        {"observation_space": {f"obs{place}": {"size": [10**7], "space": "box"} for place in range(64)}},
        {"action_space": {f"a{place}": {"size": 4096, "action_type": "continuous"} for place in range(9)}},
        {"action_space": {"a": {"size": 10**7, "action_type": "continuous"}}},
        {"action_space": {"a": [1]}},
    ],
)
def test_a_description_of_another_form_is_refused(change: Mapping[str, Any]) -> None:
    """It is the game's fault, in one short line, and nothing large is made for it."""
    with pytest.raises(GameFault) as fault:
        cast(described("a", "b", **change))
    assert len(str(fault.value)) < 300


def test_a_game_without_actions_cannot_be_declared() -> None:
    """What the protocol of actors does not allow is refused before the learner is asked."""
    with pytest.raises(UnsupportedSpace, match="neither continuous nor discrete actions"):
        cast(described("a", action_space={}))


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ({"camera_2d": "", "obs": [1, 2], "room": 0}, "has 0 bytes, .*without a window nothing is drawn: add --viz"),
        ({"camera_2d": "00" * 7, "obs": [1, 2], "room": 0}, r"has 7 bytes, and its shape \[20, 24, 3\] 1440"),
        ({"camera_2d": "xy" * 1440, "obs": [1, 2], "room": 0}, "differs from its space: non-hexadecimal"),
        ({"camera_2d": [0] * 1440, "obs": [1, 2], "room": 0}, "differs from its space"),
        (
            {"camera_2d": "00" * 1440, "obs": [1, 2, 3], "room": 0},
            r"observation obs has shape \[3\]; its space has \[2\]",
        ),
        ({"camera_2d": "00" * 1440, "obs": [1, [2]], "room": 0}, "differs from its space"),
        ({"camera_2d": "00" * 1440, "obs": {"a": 1}, "room": 0}, "differs from its space"),
        ({"camera_2d": "00" * 1440, "obs": ["a", "b"], "room": 0}, "differs from its space"),
        ({"camera_2d": "00" * 1440, "obs": [1, 2], "room": [0, 1]}, "differs from its space|has shape"),
        ({"camera_2d": "00" * 1440, "obs": [1, 2]}, "sent observations without 'room'"),
        ({"obs": [1, 2], "room": 0}, "sent observations without 'camera_2d'"),
        ([1, 2], "differs from its space"),
        (None, "differs from its space"),
    ],
)
def test_an_observation_of_another_form_is_refused(seen: Any, said: str) -> None:
    """It is the game's fault, in one line."""
    (part,) = cast(described("a", task=Mixed))
    with pytest.raises(GameFault, match=said):
        part.observations.encode([seen])
