"""Tests how a message's agents become decisions and terminals."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollcast.unity.communicator_objects import agent_pb2, unity_message_pb2

from actor_client.unity.mailbox import BadPlayerData
from actor_client.unity.steps import BehaviorStep, form_of
from tests.actor_client.unity.agents import (
    BEHAVIOR,
    CHANNELS_FIRST,
    CHANNELS_LAST,
    ENTITIES,
    agent,
    brain,
    floats,
    form,
    over_the_wire,
    packed,
    pixels,
    png,
)


def walker(number: int, *values: float, **fields: Any) -> agent_pb2.AgentInfoProto:
    """Returns an agent with these numbers."""
    return agent(floats(values or (1.0, 2.0)), id=number, **fields)


def finite(step: BehaviorStep) -> bool:
    """Returns whether every number of a step is finite."""
    both = (step.decisions, step.terminals)
    numbers = [values for batch in both for values in (batch.rewards, batch.group_rewards, *batch.observations)]
    return all(bool(np.isfinite(values).all()) for values in numbers)


def test_a_behavior_begins() -> None:
    """A form has the id with its two parts, and the spec."""
    found = form_of("Walker?team=3", brain(2), [walker(0, group_id=1)], "3.0.0")
    assert (found.behavior_id, found.name, found.team) == ("Walker?team=3", "Walker", 3)
    assert found.spec.name == "Walker"
    assert found.spec.grouped
    assert found.spec.action.continuous_size == 2


def test_decisions_and_terminals() -> None:
    """Agents are sorted into decisions and terminals, in the order of the message."""
    infos = over_the_wire(
        walker(7, 1.0, 2.0, reward=0.5, group_id=2, group_reward=4.0),
        walker(3, 3.0, 4.0, reward=-1.0, done=True, max_step_reached=True, group_id=1, group_reward=2.0),
        walker(5, 5.0, 6.0, reward=2.0, action_mask=[True, False, False, False, True]),
        walker(9, 7.0, 8.0, done=True),
    )
    step = form(*infos).read(infos)
    decisions, terminals = step.decisions, step.terminals
    assert step.faults == ()
    assert decisions.ids.tolist() == [7, 5]
    assert decisions.ids.dtype == decisions.group_ids.dtype == np.int64
    assert decisions.observations[0].tolist() == [[1.0, 2.0], [5.0, 6.0]]
    assert decisions.rewards.tolist() == [0.5, 2.0]
    assert decisions.rewards.dtype == decisions.group_rewards.dtype == np.float32
    assert decisions.group_ids.tolist() == [2, 0]
    assert decisions.group_rewards.tolist() == [4.0, 0.0]
    assert decisions.masks is not None
    assert decisions.masks.tolist() == [[1, 1, 1, 1, 1], [0, 1, 1, 1, 0]]
    assert decisions.faulty is None
    assert terminals.ids.tolist() == [3, 9]
    assert terminals.observations[0].tolist() == [[3.0, 4.0], [7.0, 8.0]]
    assert terminals.interrupted.tolist() == [True, False]
    assert terminals.rewards.tolist() == [-1.0, 0.0]
    assert terminals.group_ids.tolist() == [1, 0]
    assert terminals.group_rewards.tolist() == [2.0, 0.0]
    assert terminals.faulty is None


def test_only_one_kind() -> None:
    """A kind without agents is an empty batch with the spec's shapes."""
    asking, ended = [walker(0), walker(1)], [walker(0, done=True)]
    first, second = form(*asking).read(asking), form(*ended).read(ended)
    none = form(*asking).read([])
    assert [len(first.terminals.ids), len(second.decisions.ids), len(none.decisions.ids)] == [0, 0, 0]
    for batch in (first.terminals, second.decisions, none.decisions):
        assert batch.observations[0].shape == (0, 2)
        assert batch.observations[0].dtype == np.float32
        assert batch.rewards.shape == batch.group_rewards.shape == batch.group_ids.shape == (0,)
    assert second.decisions.masks is None


def test_an_agent_that_asks_twice() -> None:
    """An agent that asks twice in a message gets one action."""
    infos = [walker(1), walker(4), walker(4)]
    with pytest.raises(BadPlayerData, match=r"'Walker\?team=0', agent 4: requests two decisions in one message"):
        form(*infos).read(infos)


def test_an_agent_that_ended_twice() -> None:
    """Only the first of two ends counts, and the other one is reported."""
    infos = [walker(4, done=True, reward=1.0), walker(5, done=True), walker(4, done=True, reward=2.0)]
    step = form(*infos).read(infos)
    assert step.terminals.ids.tolist() == [4, 5]
    assert step.terminals.rewards.tolist() == [1.0, 0.0]
    assert step.faults == (f"behavior '{BEHAVIOR}': 1 agents ended twice in one message; the first end counts",)


def test_observations_of_every_kind() -> None:
    """Observations of all kinds keep their order and types."""
    values, image = np.random.default_rng(1).random((6, 5, 3), np.float32), pixels(6, 5)
    seen = (
        floats([1.0, 2.0, 3.0], name="Body"),
        floats(np.ones((4, 2)), ENTITIES, name="Enemies"),
        packed(png(image), (6, 5, 3), [0, 1, 2], CHANNELS_LAST, name="Eye"),
        floats([0.0, 1.0], name="Goal", goal=True),
        floats(values, CHANNELS_LAST, name="Grid"),
    )
    infos = over_the_wire(*(agent(*seen, id=number) for number in range(3)))
    found = form(*infos).read(infos).decisions.observations
    assert [(array.shape, array.dtype.name) for array in found] == [
        ((3, 3), "float32"),
        ((3, 4, 2), "float32"),
        ((3, 3, 6, 5), "uint8"),
        ((3, 2), "float32"),
        ((3, 3, 6, 5), "float32"),
    ]
    assert np.array_equal(found[2][1], image.transpose(2, 0, 1))
    assert np.array_equal(found[4][2], values.transpose(2, 0, 1))


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (walker(6, reward=float("nan")), "NaN or infinity in the reward of agent 6"),
        (walker(6, group_reward=float("-inf")), "NaN or infinity in the group reward of agent 6"),
        (walker(6, 1.0, float("inf")), "NaN or infinity in observation Sensor of agent 6"),
        (
            walker(6, float("nan"), 1.0, reward=float("nan")),
            "NaN or infinity in the reward, observation Sensor of agent 6",
        ),
    ],
)
def test_rows_that_are_not_finite(bad: agent_pb2.AgentInfoProto, words: str) -> None:
    """Rows with NaN are reported by behavior, part and agent, marked, and set to 0."""
    good = walker(1)
    step = form(good).read([good, bad])
    assert step.decisions.faulty is not None
    assert step.decisions.faulty.tolist() == [False, True]
    assert finite(step)
    (line,) = step.faults
    assert line.startswith(f"behavior '{BEHAVIOR}': {words}")
    bad.done = True
    step = form(good).read([bad, good])
    assert step.terminals.faulty is not None
    assert step.terminals.faulty.tolist() == [True]
    assert step.decisions.faulty is None
    assert finite(step)


def test_a_player_that_stays_broken_says_little() -> None:
    """A thousand messages with NaN make ten lines, and a wrong mask one."""
    infos = [walker(1, reward=float("nan"), action_mask=[True])]
    behavior = form(*infos)
    lines = [line for _ in range(1000) for line in behavior.read(infos).faults]
    assert len([line for line in lines if "NaN" in line]) == 10
    assert [line for line in lines if "NaN" not in line] == [
        f"behavior '{BEHAVIOR}': agent 1: its mask has 1 entries for 5 choices, so all are allowed"
    ]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (agent(id=3), "agent 3: 0 observations; the behavior began with 1"),
        (agent(floats([1.0]), floats([2.0]), id=3), "agent 3: 2 observations; the behavior began with 1"),
        (walker(3, 1.0, 2.0, 3.0), "agent 3: observation Sensor has shape [3]; the behavior began with [2]"),
        (agent(floats([1.0], shape=[2]), id=3), "agent 3: observation Sensor has 1 values"),
        (agent(packed(b"", [2]), id=3), "agent 3: observation Sensor has compression 1"),
        (walker(3, 1.0, done=True), "agent 3: observation Sensor has shape [1]"),
    ],
)
def test_agents_that_cannot_be_read(bad: agent_pb2.AgentInfoProto, words: str) -> None:
    """The error names behavior, agent and observation in one line."""
    with pytest.raises(BadPlayerData, match=re.escape(f"behavior '{BEHAVIOR}', {words}")) as caught:
        form(walker(1)).read([walker(1), bad])
    assert str(caught.value).isprintable()


def test_a_player_of_before_api_version_1_3() -> None:
    """A player before API version 1.3 sends no names and no properties, and channels last."""
    image = pixels(6, 5)
    info = agent(packed(png(image), (6, 5, 3), (), (), name=""), floats([1.0], (), name=""), id=1)
    old = brain()
    old.ClearField("action_spec")
    old.vector_action_size_deprecated.append(4)
    behavior = form_of("Old", old, [info], "1.0.8")
    assert [one.name for one in behavior.spec.observations] == ["obs_0", "obs_1"]
    assert behavior.spec.action.discrete_branches == (4,)
    assert np.array_equal(behavior.read([info]).decisions.observations[0][0], image.transpose(2, 0, 1))


RECORDED = (
    "0a0308c8011292010a7312710a0b46616b653f7465616d3d3012620a2f5a0501000000016a260a0102220a0a080000000000000000320101"
    "4212566563746f7253656e736f725f73697a65320a2f3d0000003f50016a260a0102220a0a08000000000000803f3201014212566563746f"
    "7253656e736f725f73697a6532121b2a193a0b46616b653f7465616d3d3040014a08080110021a020302"
)
"""A message that the stock trainer understood: two agents, one of them with a mask, and what their behavior can do."""


def test_a_recorded_message() -> None:
    """A recorded message is read as the stock trainer did."""
    output = unity_message_pb2.UnityMessageProto.FromString(bytes.fromhex(RECORDED)).unity_output
    infos: Sequence[agent_pb2.AgentInfoProto] = output.rl_output.agentInfos["Fake?team=0"].value
    behavior = form_of("Fake?team=0", output.rl_initialization_output.brain_parameters[0], infos, "3.0.0")
    decisions = behavior.read(infos).decisions
    assert (behavior.spec.action.continuous_size, behavior.spec.action.discrete_branches) == (1, (3, 2))
    assert behavior.spec.observations[0].name == "VectorSensor_size2"
    assert decisions.ids.tolist() == [0, 1]
    assert decisions.rewards.tolist() == [0.0, 0.5]
    assert decisions.observations[0].tolist() == [[0.0, 0.0], [0.0, 1.0]]
    assert decisions.masks is not None
    assert decisions.masks.tolist() == [[0, 1, 1, 1, 0], [1, 1, 1, 1, 1]]


INFOS = st.builds(
    agent_pb2.AgentInfoProto,
    reward=st.floats(width=32),
    done=st.booleans(),
    max_step_reached=st.booleans(),
    id=st.integers(-(2**31), 2**31 - 1) | st.integers(0, 3),
    action_mask=st.lists(st.booleans(), max_size=6),
    group_id=st.integers(-(2**31), 2**31 - 1) | st.integers(0, 2),
    group_reward=st.floats(width=32),
    observations=st.lists(st.builds(floats, st.lists(st.floats(width=32), min_size=2, max_size=2)), min_size=1)
    .map(lambda found: found[:1])
    .flatmap(lambda found: st.sampled_from([found, found, found, [], [*found, *found]])),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(INFOS, max_size=5))
def test_anything_is_a_step_or_one_line(infos: list[agent_pb2.AgentInfoProto]) -> None:
    """Random agents become a valid step or an error of one line."""
    behavior, line = form(walker(0)), ""
    try:
        step = behavior.read(infos)
        ids, ended = step.decisions.ids.tolist(), step.terminals.ids.tolist()
        assert ids == [info.id for info in infos if not info.done]
        assert sorted(ended) == sorted({info.id for info in infos if info.done})
        assert len(set(ids)) == len(ids)
        assert finite(step)
        if step.decisions.masks is not None:
            assert step.decisions.masks[:, :3].any(axis=1).all()
            assert step.decisions.masks[:, 3:].any(axis=1).all()
        assert all(text.isprintable() for text in step.faults)
    except BadPlayerData as error:
        line = str(error)
    assert line.isprintable()


def test_values_do_not_change_later() -> None:
    """Arrays do not change when the message is freed or the next one is read."""
    infos = over_the_wire(walker(0, 1.0, 2.0), walker(1, 3.0, 4.0))
    behavior = form(*infos)
    first = behavior.read(infos).decisions.observations[0]
    del infos
    behavior.read(over_the_wire(walker(0, 9.0, 9.0), walker(1, 9.0, 9.0)))
    assert first.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_properties_of_pictures_of_every_package() -> None:
    """The same game built with an old and a new package has one spec."""
    old = form(agent(packed(png(pixels(6, 5)), (6, 5, 3), [0, 1, 2], CHANNELS_LAST)), version="2.0.1")
    new = form(agent(packed(png(pixels(6, 5)), (3, 6, 5), [0, 1, 2], CHANNELS_FIRST)), version="3.0.0")
    assert old.spec == new.spec
