"""Tests how a client's message becomes arrays, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollcast.chunks import GameResult
from rollcast.enums import ObservationKind
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec
from rollcast.tensors import encode
from rollcast.v1 import client_pb2

from actor_client.clients.messages import BadClientData, parsed
from actor_client.clients.steps import ClientReader, Part, split_behavior_id
from tests.playing import BALL, ENDED, INTERRUPTED, report

MIXED = BehaviorSpec(
    "Mixed",
    (
        ObservationSpec("near", np.dtype(np.float32), (2,)),
        ObservationSpec("half", np.dtype(np.float16), (1,)),
        ObservationSpec("count", np.dtype(np.uint8), (2, 1)),
        ObservationSpec("kind", np.dtype(np.int32), (1,), ObservationKind.CATEGORICAL, categories=(3,)),
        ObservationSpec("on", np.dtype(np.bool_), (1,)),
    ),
    ActionSpec(continuous_size=1, discrete_branches=(2, 3)),
)
SIZE = 7


def read(*steps: client_pb2.AgentSteps, spec: BehaviorSpec = BALL) -> list[Part]:
    """Returns what a reader makes of a message."""
    return ClientReader({spec.name: spec}).read(steps)


def fault_of(*steps: client_pb2.AgentSteps, spec: BehaviorSpec = BALL) -> str:
    """Returns why a message is refused."""
    with pytest.raises(BadClientData) as caught:
        read(*steps, spec=spec)
    return str(caught.value)


def test_agents_that_ask() -> None:
    """Lists that are left out hold their defaults."""
    (part,) = read(report([3, 5], [0.5, -1.0], rewards=[1.0, 2.0]))
    assert part.asking.ids.tolist() == [3, 5]
    assert part.asking.observations[0].tolist() == [[0.5], [-1.0]]
    assert part.asking.rewards.tolist() == [1.0, 2.0]
    assert (part.asking.group_ids.tolist(), part.asking.group_rewards.tolist()) == ([0, 0], [0.0, 0.0])
    assert (part.asking.masks, part.asking.faulty, part.results) == (None, None, None)
    assert not len(part.ended.ids)


def test_an_end_and_a_beginning_in_one_message() -> None:
    """An agent ends and begins, in one entry or in two."""
    one = report(
        [0, 1, 0], [1.0, 2.0, 3.0], rewards=[7.0, 8.0, 9.0], states=[ENDED, INTERRUPTED, 0], outcomes=[3, 0, 0]
    )
    two = [
        report([0, 1], [1.0, 2.0], rewards=[7.0, 8.0], states=[ENDED, INTERRUPTED], outcomes=[3, 0]),
        report([0], [3.0], rewards=[9.0]),
    ]
    for steps in ([one], two):
        (part,) = read(*steps)
        assert part.ended.ids.tolist() == [0, 1]
        assert part.ended.observations[0].tolist() == [[1.0], [2.0]]
        assert part.ended.interrupted.tolist() == [False, True]
        assert part.ended.rewards.tolist() == [7.0, 8.0]
        assert part.results is not None
        assert part.results.tolist() == [GameResult.WON, GameResult.UNKNOWN]
        assert (part.asking.ids.tolist(), part.asking.rewards.tolist()) == ([0], [9.0])


def test_teams_and_behaviors_are_apart() -> None:
    """One part for each behavior id; `Name` is `Name?team=0`."""
    parts = read(report(), report(behavior="Ball?team=1"), report([1], behavior="Ball?team=0"))
    assert [(part.form.behavior_id, part.form.team, part.asking.ids.tolist()) for part in parts] == [
        ("Ball", 0, [0, 1]),
        ("Ball?team=1", 1, [0]),
    ]
    assert split_behavior_id("Ball?team=7") == ("Ball", 7)


def test_numbers_become_the_observations_of_the_behavior() -> None:
    """The numbers of an agent fill its observations in turn, each in its own type."""
    values = [0.5, 1.5, 0.25, 7, 255, 2, 1]
    (part,) = read(report(values=values, behavior="Mixed", allowed=[1, 0, 1, 1, 0]), spec=MIXED)
    found = part.asking.observations
    assert [each.dtype for each in found] == [each.dtype for each in MIXED.observations]
    assert [each.tolist() for each in found] == [[[0.5, 1.5]], [[0.25]], [[[7], [255]]], [[2]], [[True]]]
    assert part.asking.masks is not None
    assert part.asking.masks.tolist() == [[1, 0, 1, 1, 0]]
    tensors = [encode(each) for each in found]
    steps = client_pb2.AgentSteps(behavior="Mixed", agents=[0], observations=tensors)
    (same,) = read(steps, spec=MIXED)
    assert all(np.array_equal(one, other) for one, other in zip(found, same.asking.observations, strict=True))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e20])
def test_numbers_that_no_network_takes(bad: float) -> None:
    """Their agents are faulty, and the numbers 0; other agents are as they were."""
    (part,) = read(report([0, 1], [bad, 2.0]))
    assert part.asking.faulty is not None
    assert part.asking.faulty.tolist() == [True, False]
    assert part.asking.observations[0].tolist() == [[0.0], [2.0]]
    if not math.isfinite(bad):
        (part,) = read(report([0, 1], [1.0, 2.0], rewards=[0.0, bad], states=[0, ENDED]))
        assert part.ended.faulty is not None
        assert (part.ended.faulty.tolist(), part.ended.rewards.tolist()) == ([True], [0.0])


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ([report(behavior="Cube")], "'Cube' was not declared in hello, which has Ball"),
        ([report(behavior="Ball?team=x")], "its team is not a number from 0 to"),
        ([report(behavior="Ball?team=99999999999")], "its team is not a number from 0 to"),
        ([report([], [])], "an entry has 0 agents"),
        ([report([-1])], "agent -1 is negative"),
        ([report([0, 0], [0.0, 0.0])], "agent 0 asks for two actions in one message"),
        ([report(), report()], "agent 0 asks for two actions in one message"),
        ([report([0, 0], [0.0, 0.0], states=[ENDED, ENDED])], "agent 0 ends twice in one message"),
        ([report([0, 0], [0.0, 0.0], states=[0, ENDED])], "agent 0 asks before its episode ends"),
        ([report([0, 1])], "values has 1 entries, but 2 agents need 2"),
        ([report(values=[0.0] * 3)], "values has 3 entries, but 1 agents need 1"),
        ([report(values=[])], "neither values nor observations"),
        ([report(observations=[encode(np.zeros((1, 1), np.float32))])], "both values and observations"),
        ([report(rewards=[1.0, 2.0])], "rewards has 2 entries, but 1 agents need 1"),
        ([report(states=[0, 0])], "states has 2 entries"),
        ([report(states=[7])], "states has the unknown value 7"),
        ([report(groups=[-3])], "group -3 is negative"),
        ([report(groups=[1, 2])], "groups has 2 entries"),
        ([report(group_rewards=[1.0, 2.0])], "group_rewards has 2 entries"),
        ([report(outcomes=[9], states=[ENDED])], "outcomes has the unknown value 9"),
        ([report(allowed=[True])], "allowed has 1 entries, but 1 agents with 2 each need 2"),
        ([report(allowed=[False, False])], "allowed of agent 0 allows no choice of branch 0"),
        ([report(range(16385), [0.0] * 16385)], "an entry has 16385 agents; 1 to 16384 are allowed"),
    ],
)
def test_what_is_refused(steps: Sequence[client_pb2.AgentSteps], says: str) -> None:
    """The one line names the behavior and the field, and says what would be right."""
    fault = fault_of(*steps)
    assert says in fault
    assert "\n" not in fault
    assert fault.startswith("behavior '")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({3: 256}, "observation count has the value 256; uint8 needs whole numbers from 0 to 255"),
        ({3: 0.5}, "observation count has the value 0.5"),
        ({3: math.nan}, "observation count has the value nan"),
        ({5: 3}, "observation kind has category 3 in element 0; 0 to 2 are declared"),
        ({5: -1}, "observation kind has category -1"),
        ({6: 2}, "observation on has the value 2; bool needs whole numbers from 0 to 1"),
    ],
)
def test_numbers_that_an_observation_cannot_have(changed: dict[int, float], says: str) -> None:
    """Whole numbers are whole and in their range, and categories among those that were declared."""
    values = [changed.get(place, 0.0) for place in range(SIZE)]
    assert says in fault_of(report(values=values, behavior="Mixed"), spec=MIXED)


def test_tensors_of_another_form() -> None:
    """Number, dtype, shape and length of tensors are those of the behavior."""

    def tensors(*arrays: Any) -> client_pb2.AgentSteps:
        return client_pb2.AgentSteps(behavior="Ball", agents=[0], observations=[encode(each) for each in arrays])

    one = np.zeros((1, 1), np.float32)
    assert "2 observations are given; the behavior has 1" in fault_of(tensors(one, one))
    assert "observation state is float64[1, 1]; float32[1, 1] is needed" in fault_of(tensors(one.astype(np.float64)))
    assert "observation state is float32[2, 1]" in fault_of(tensors(np.zeros((2, 1), np.float32)))
    cut = tensors(one)
    cut.observations[0].data = b"123"
    assert "3 bytes of data, but type and shape need 4" in fault_of(cut)
    bomb = tensors(one)
    bomb.observations[0].shape[:] = [1, 2**32]
    assert "bytes; at most" in fault_of(bomb)


def test_a_client_has_a_limited_number_of_behavior_ids() -> None:
    """Ever new teams are refused at some number."""
    reader = ClientReader({"Ball": BALL})
    for team in range(1024):
        reader.read([report(behavior=f"Ball?team={team}")])
    with pytest.raises(BadClientData, match="more than 1024 behavior ids"):
        reader.read([report(behavior="Ball?team=1024")])


def test_bytes_that_are_no_message() -> None:
    """They are refused, and so is a message of very many small parts, before it is parsed."""
    with pytest.raises(BadClientData, match="3 bytes are not a PlayRequest"):
        parsed(b"\xff\xff\xff")
    with pytest.raises(BadClientData, match="more than 65536 fields"):
        parsed(b"\x12\x00" * 100_000)


floats = st.floats(width=32)
steps = st.builds(
    client_pb2.AgentSteps,
    behavior=st.sampled_from(["Ball", "Ball?team=1", "Ball?team=", "", "x" * 200, "\x00"]),
    agents=st.lists(st.integers(-1, 3), max_size=4),
    values=st.lists(floats, max_size=4),
    observations=st.lists(
        st.builds(
            lambda dtype, shape, data: client_pb2.AgentSteps().observations.add(dtype=dtype, shape=shape, data=data),
            st.integers(0, 13),
            st.lists(st.integers(0, 3), max_size=3),
            st.binary(max_size=16),
        ),
        max_size=2,
    ),
    rewards=st.lists(floats, max_size=4),
    states=st.lists(st.integers(-1, 4), max_size=4),
    allowed=st.lists(st.booleans(), max_size=8),
    groups=st.lists(st.integers(-1, 2), max_size=4),
    group_rewards=st.lists(floats, max_size=4),
    outcomes=st.lists(st.integers(-1, 5), max_size=4),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(steps, max_size=3))
def test_whatever_comes_is_read_or_refused(message: list[client_pb2.AgentSteps]) -> None:
    """What is read has the form that the rollout needs; everything else is refused in one line."""
    try:
        parts = read(*message)
    except BadClientData as error:
        parts, said = [], str(error)
        assert said.isprintable()
    for part in parts:
        for batch in (part.asking, part.ended):
            count = len(batch.ids)
            assert len(set(batch.ids.tolist())) == count
            assert batch.observations[0].shape == (count, 1)
            assert np.isfinite(batch.observations[0]).all()
            assert np.isfinite(batch.rewards).all()
            assert np.isfinite(batch.group_rewards).all()
            assert (batch.group_ids >= 0).all()
        masks = part.asking.masks
        assert masks is None or (masks.shape == (len(part.asking.ids), 2) and masks.any(axis=1).all())
