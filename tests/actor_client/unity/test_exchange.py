"""Tests the encoding of actions for the player."""

import numpy as np
from rollcast.unity.communicator_objects import unity_message_pb2

from actor_client.policy.actions import Actions
from actor_client.unity.gateway import write_actions


def actions(continuous: list[list[float]] | None, discrete: list[list[int]] | None, count: int) -> Actions:
    """Returns what a policy chose; the raw draws are twice what the environment gets."""
    applied = None if continuous is None else np.array(continuous, np.float32)
    chosen = None if discrete is None else np.array(discrete, np.int32)
    return Actions(None if applied is None else 2 * applied, chosen, np.zeros((count, 1), np.float32), applied)


def test_both_kinds() -> None:
    """Each agent gets its axes, choices, and both as floats for old players."""
    reply = unity_message_pb2.UnityRLInputProto()
    write_actions(reply, "A?team=0", actions([[0.25, -1.0], [0.5, 1.0]], [[2, 1], [0, 0]], 2))
    first, second = reply.agent_actions["A?team=0"].value
    assert first.continuous_actions == [0.25, -1.0]
    assert first.discrete_actions == [2, 1]
    assert first.vector_actions_deprecated == [0.25, -1.0, 2.0, 1.0]
    assert second.continuous_actions == [0.5, 1.0]
    assert second.discrete_actions == [0, 0]
    assert second.vector_actions_deprecated == [0.5, 1.0, 0.0, 0.0]
    assert first.value == 0.0


def test_one_kind() -> None:
    """Kinds of actions that a behavior lacks are empty."""
    reply = unity_message_pb2.UnityRLInputProto()
    write_actions(reply, "C", actions([[0.25]], None, 1))
    write_actions(reply, "D", actions(None, [[3]], 1))
    assert reply.agent_actions["C"].value[0].discrete_actions == []
    assert reply.agent_actions["C"].value[0].vector_actions_deprecated == [0.25]
    assert reply.agent_actions["D"].value[0].continuous_actions == []
    assert reply.agent_actions["D"].value[0].vector_actions_deprecated == [3.0]


def test_the_same_bytes_as_the_stock_trainer() -> None:
    """The answer equals the recorded bytes of the stock trainer."""
    reply = unity_message_pb2.UnityRLInputProto()
    write_actions(reply, "Fake?team=0", actions([[0.25], [0.25]], [[2, 1], [2, 1]], 2))
    recorded = (
        "0a430a0b46616b653f7465616d3d3012340a180a0c0000803e000000400000803f32040000803e3a020201"
        "0a180a0c0000803e000000400000803f32040000803e3a020201"
    )
    assert reply.SerializeToString().hex() == recorded


def test_no_agents() -> None:
    """A behavior without agents that ask is left out."""
    reply = unity_message_pb2.UnityRLInputProto()
    write_actions(reply, "A?team=0", actions(None, [], 0))
    assert not reply.agent_actions
