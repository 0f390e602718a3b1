"""Tests the specs derived from a behavior's first agents."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollcast import limits
from rollcast.enums import DimensionProperty, ImageLayout, ObservationKind, ObservationRole
from rollcast.specs import BehaviorSpec
from rollcast.unity.communicator_objects import behavior_pb2, observation_pb2

from actor_client.unity.mailbox import BadPlayerData
from actor_client.unity.steps import behavior_spec, parse_behavior_id
from tests.actor_client.unity.agents import (
    BEHAVIOR,
    CHANNELS_FIRST,
    CHANNELS_LAST,
    ENTITIES,
    agent,
    brain,
    floats,
    packed,
    pixels,
    png,
)

NONE, MOVES, SIZED = (
    DimensionProperty.NONE,
    DimensionProperty.TRANSLATIONAL_EQUIVARIANCE,
    DimensionProperty.VARIABLE_SIZE,
)


def spec_of(*observations: observation_pb2.ObservationProto, version: str = "3.0.0", **fields: Any) -> BehaviorSpec:
    """Returns the spec of a behavior whose first agent has these observations."""
    return behavior_spec(BEHAVIOR, brain(2), [agent(*observations, **fields)], version)


@pytest.mark.parametrize(
    ("behavior_id", "expected"),
    [
        ("Walker?team=0", ("Walker", 0)),
        ("Walker?team=12", ("Walker", 12)),
        ("Walker", ("Walker", 0)),
        ("My Brain?other=1", ("My Brain", 0)),
        ("Läufer?other=1&team=3", ("Läufer", 3)),
        (f"Walker?team={2**31 - 1}", ("Walker", 2**31 - 1)),
    ],
)
def test_names_and_teams(behavior_id: str, expected: tuple[str, int]) -> None:
    """The id is a name with an optional team as a query; the default team is 0."""
    assert parse_behavior_id(behavior_id) == expected


@pytest.mark.parametrize(
    "behavior_id",
    [
        *("", "?team=1", "../x?team=0", "a/b", ".hidden", "a\nb", "x" * 129),
        *("A?team=-1", "A?team=one", "A?team=²", f"A?team={2**31}", "A?" + "team=1&" * 100_000),
    ],
)
def test_bad_behavior_ids(behavior_id: str) -> None:
    """An invalid name or team is an error of one line."""
    with pytest.raises(BadPlayerData) as caught:
        parse_behavior_id(behavior_id)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


VECTOR, LIST = ObservationKind.VECTOR, ObservationKind.ENTITIES


@pytest.mark.parametrize(
    ("shape", "properties", "expected"),
    [
        ((4,), (1,), (VECTOR, (NONE,))),
        ((4,), (64,), (VECTOR, ())),  # properties that nobody knows say nothing
        ((20, 6), ENTITIES, (LIST, (SIZED, NONE))),
        ((4, 6), (1, 1), (VECTOR, (NONE, NONE))),
        ((4, 6), (1,), (VECTOR, ())),
        ((4, 6), (), (VECTOR, ())),
        ((3, 4, 5), (1, 1, 1), (VECTOR, (NONE, NONE, NONE))),
    ],
)
def test_floats_are_numbers_or_lists_of_entities(shape: Any, properties: Any, expected: tuple[Any, Any]) -> None:
    """Floats become float32 numbers; two axes, the first of variable size, become entities."""
    (found,) = spec_of(floats(np.zeros(shape), properties, name="VectorSensor")).observations
    assert (found.kind, found.dimension_properties) == expected
    assert (found.name, found.shape, found.scale) == ("VectorSensor", shape, 0.0)
    assert found.dtype == np.float32
    assert found.role is ObservationRole.DEFAULT
    (goal,) = spec_of(floats(np.zeros(shape), properties, goal=True)).observations
    assert goal.role is ObservationRole.GOAL


@pytest.mark.parametrize(
    ("shape", "properties", "version", "expected"),
    [
        ((3, 8, 9), CHANNELS_FIRST, "3.0.0", (3, 8, 9)),
        ((8, 9, 3), CHANNELS_LAST, "2.0.1", (3, 8, 9)),
        # What the properties say counts more than the version.
        ((8, 9, 3), CHANNELS_LAST, "3.0.0", (3, 8, 9)),
        ((3, 8, 9), CHANNELS_FIRST, "2.3.0-exp.3", (3, 8, 9)),
        # Nothing said: the version tells.
        ((8, 9, 3), (), "1.0.8", (3, 8, 9)),
        ((8, 9, 3), (0, 0, 0), "2.3.0-exp.3", (3, 8, 9)),
        ((3, 8, 9), (0, 0, 0), "3.0.0-exp.1", (3, 8, 9)),
        ((3, 8, 9), (), "4.1.0", (3, 8, 9)),
        # No version either: the axis that can be channels.
        ((8, 9, 3), (), "", (3, 8, 9)),
        ((1, 8, 9), (), "unknown", (1, 8, 9)),
        ((8, 9, 10), (), "", (8, 9, 10)),
    ],
)
@pytest.mark.parametrize("compressed", [False, True])
def test_pictures_have_their_channels_first(
    shape: tuple[int, ...], properties: tuple[int, ...], version: str, expected: tuple[int, ...], compressed: bool
) -> None:
    """Either order of axes becomes [C, H, W], by properties, version or shape."""
    observation = packed(b"", shape, (), properties) if compressed else floats(np.zeros(shape), properties)
    (found,) = spec_of(observation, version=version).observations
    assert (found.kind, found.layout, found.shape) == (ObservationKind.IMAGE, ImageLayout.CHW, expected)
    assert found.dtype == (np.uint8 if compressed else np.float32)
    assert found.scale == (255.0 if compressed else 0.0)
    assert found.dimension_properties == (NONE, MOVES, MOVES)


def test_names_follow_from_the_sensors() -> None:
    """Names keep the characters that the wire allows, and equal names get numbers in the order of sensors."""
    names = ["a b", "a_b", "a_b", "", "Stacked Sensor (3)", "é" * 70, "é" * 70, ""]
    spec = spec_of(*(floats(np.zeros(1), name=name) for name in names))
    assert [observation.name for observation in spec.observations] == [
        "a_b",
        "a_b_2",
        "a_b_3",
        "obs_3",
        "Stacked_Sensor__3_",
        "_" * 64,
        "_" * 62 + "_2",
        "obs_7",
    ]


def test_groups_are_told_by_the_first_message() -> None:
    """One agent with a group makes the behavior one with groups."""
    alone, mate = agent(floats(np.zeros(1))), agent(floats(np.zeros(1)), id=1, group_id=7)
    assert behavior_spec(BEHAVIOR, brain(1), [alone, mate], "3.0.0").grouped
    assert not behavior_spec(BEHAVIOR, brain(1), [alone, alone], "3.0.0").grouped


def test_actions_of_both_kinds() -> None:
    """Axes, branches and their descriptions are kept."""
    told = brain(2, (3, 4), action_descriptions=["x", "y", "jump", "fire"])
    found = behavior_spec(BEHAVIOR, told, [agent(floats(np.zeros(1)))], "3.0.0").action
    assert (found.continuous_size, found.discrete_branches) == (2, (3, 4))
    assert found.descriptions == ("x", "y", "jump", "fire")


@pytest.mark.parametrize("descriptions", [["x"], ["x" * 500, "y"]])
def test_descriptions_that_do_not_fit_are_left_out(descriptions: list[str]) -> None:
    """Invalid descriptions are left out."""
    told = brain(2, action_descriptions=descriptions)
    assert behavior_spec(BEHAVIOR, told, [agent(floats(np.zeros(1)))], "3.0.0").action.descriptions == ()


@pytest.mark.parametrize(
    ("kind", "sizes", "expected"),
    [(behavior_pb2.continuous, [2], (2, ())), (behavior_pb2.discrete, [3, 2], (0, (3, 2)))],
)
def test_actions_of_old_players(kind: Any, sizes: list[int], expected: tuple[int, tuple[int, ...]]) -> None:
    """Before API version 1.3, a behavior has one kind of actions in other fields."""
    told = behavior_pb2.BrainParametersProto(
        vector_action_size_deprecated=sizes, vector_action_space_type_deprecated=kind, brain_name="Old"
    )
    found = behavior_spec("Old", told, [agent(floats(np.zeros(1)))], "1.0.8").action
    assert (found.continuous_size, found.discrete_branches) == expected


@pytest.mark.parametrize(
    "told",
    [
        brain(),
        brain(-1),
        brain(0, (3, -2)),
        brain(0, (3, 0)),
        brain(limits.MAX_CONTINUOUS_ACTIONS + 1),
        brain(2**31 - 1),
        brain(0, [2] * (limits.MAX_BRANCHES + 1)),
        brain(0, [2**31 - 1]),
        behavior_pb2.BrainParametersProto(),
        behavior_pb2.BrainParametersProto(
            vector_action_size_deprecated=[1, 2], vector_action_space_type_deprecated=behavior_pb2.continuous
        ),
    ],
)
def test_actions_that_cannot_be_trained(told: behavior_pb2.BrainParametersProto) -> None:
    """Missing, negative, empty or huge sizes are an error of one line with the behavior's name."""
    with pytest.raises(BadPlayerData, match=re.escape(repr(BEHAVIOR))) as caught:
        behavior_spec(BEHAVIOR, told, [agent(floats(np.zeros(1)))], "3.0.0")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("observation", "words"),
    [
        (floats([], shape=[0]), "axes of at least 1"),
        (floats([], shape=[-4]), "axes of at least 1"),
        (floats(1.0), "axes of at least 1"),
        (floats([], shape=[1] * 12), "axes"),
        (floats([], shape=[2**31 - 1, 2**31 - 1]), "bytes"),
        (packed(png(pixels(2, 2)), (4,), (), (1,)), "not that of an image"),
        (observation_pb2.ObservationProto(shape=[4], compression_type=9), "compression 9 is unknown"),  # type: ignore[arg-type]
    ],
)
def test_observations_that_cannot_be_trained(observation: observation_pb2.ObservationProto, words: str) -> None:
    """Invalid shapes and compressions are an error of one line."""
    with pytest.raises(BadPlayerData, match=words) as caught:
        spec_of(observation)
    assert "\n" not in str(caught.value)


def test_a_behavior_has_agents_and_some_observations() -> None:
    """A behavior without agents, and agents with no observations or too many, are an error."""
    with pytest.raises(BadPlayerData, match="without agents"):
        behavior_spec(BEHAVIOR, brain(1), [], "3.0.0")
    for count in (0, limits.MAX_OBSERVATIONS + 1, 5000):
        with pytest.raises(BadPlayerData, match="observations"):
            spec_of(*[floats(np.zeros(1))] * count)


OBSERVATIONS = st.builds(
    observation_pb2.ObservationProto,
    shape=st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(0, 8), max_size=10),
    compression_type=st.integers(-1, 3),
    dimension_properties=st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(0, 4), max_size=10),
    observation_type=st.integers(-1, 5),
    name=st.text(max_size=80),
)
BRAINS = st.builds(
    brain,
    st.integers(-(2**31), 2**31 - 1) | st.integers(0, 3),
    st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(1, 3), max_size=4),
    action_descriptions=st.lists(st.text(max_size=8), max_size=4),
)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=30), BRAINS, st.lists(OBSERVATIONS, max_size=4), st.text(max_size=12))
def test_anything_is_a_spec_or_one_line(
    behavior_id: str,
    told: behavior_pb2.BrainParametersProto,
    observations: list[observation_pb2.ObservationProto],
    version: str,
) -> None:
    """Random input becomes a valid spec or an error of one line."""
    line = ""
    try:
        found = behavior_spec(behavior_id, told, [agent(*observations)], version)
        assert BehaviorSpec.from_message(found.to_message()) == found
    except BadPlayerData as error:
        line = str(error)
    assert line.isprintable()
    assert len(line) < 1500
