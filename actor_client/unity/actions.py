"""A policy's actions as the player reads them."""

from communicator_objects import unity_message_pb2

from actor_client.policy.actions import Actions


def write_actions(reply: unity_message_pb2.UnityRLInputProto, behavior_id: str, actions: Actions) -> None:
    """Adds the actions of one behavior to an answer; nothing if there are none, since players index what is there.

    Field 1 repeats both kinds as floats, continuous ones first, for players before API version 1.3.

    Args:
        reply: The answer to the player.
        behavior_id: As the player names it.
        actions: Of n agents, in the order of the agents that asked.
    """
    count = len(actions.log_prob)
    if not count:
        return
    nothing: list[list[int]] = [[]] * count
    continuous = nothing if actions.environment_continuous is None else actions.environment_continuous.tolist()
    discrete = nothing if actions.discrete is None else actions.discrete.tolist()
    values = reply.agent_actions[behavior_id].value
    for axes, choices in zip(continuous, discrete, strict=True):
        values.add(vector_actions_deprecated=axes + choices, continuous_actions=axes, discrete_actions=choices)
