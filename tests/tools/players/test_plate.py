"""Tests the rules of the plate without a trainer's side."""

from __future__ import annotations

from collections.abc import Callable

from rollcast.unity.communicator_objects import agent_pb2, unity_message_pb2

from tests.tools.players.plate import BEHAVIOR, BRIEF_STEPS, PLACES, STEPS, Plate

Info = agent_pb2.AgentInfoProto


class Table:
    """Plays one group with a rule that chooses each agent's action."""

    def __init__(self, steps: int = STEPS) -> None:
        self.scores: list[tuple[float, int]] = []
        self.task = Plate(3, lambda _behavior, _decisions, total, length: self.scores.append((total, length)), steps)
        self.task.reset(1)

    def play(self, choose: Callable[[int, Info], int]) -> list[Info]:
        """Takes one step and returns the agents that ended before it."""
        output = unity_message_pb2.UnityOutputProto()
        self.task.write(output)
        infos = output.rl_output.agentInfos[BEHAVIOR].value
        reply = unity_message_pb2.UnityRLInputProto()
        for slot, info in enumerate(one for one in infos if not one.done):
            action = choose(slot, info)
            answer = reply.agent_actions[BEHAVIOR].value.add()
            answer.discrete_actions.append(action)
            answer.vector_actions_deprecated.append(action)
        self.task.act(reply)
        return [info for info in infos if info.done]


def place(info: Info) -> int:
    """Returns where an agent stands."""
    return list(info.observations[0].float_data.data[:PLACES]).index(1.0)


def test_one_leaves_and_the_others_win() -> None:
    """The first agent opens the gate and ends without reward; the group gets 1 for each of the others."""
    table = Table()
    ended: list[Info] = []
    while not table.scores:
        ended += table.play(lambda _, info: 0 if info.id == 3 and place(info) else 2)
    ended += table.play(lambda *_: 1)
    assert table.scores[0][0] == 2.0
    assert ended[0].id == 3
    assert (ended[0].group_reward, ended[0].max_step_reached) == (0.0, False)
    assert sum(info.group_reward for info in ended[1:]) >= 2.0
    assert len(ended) == 3


def test_nobody_wins_while_the_gate_is_closed() -> None:
    """Agents that keep away from the plate are interrupted together, without a reward."""
    table = Table()
    for _ in range(STEPS):
        assert table.play(lambda *_: 2) == []
    assert table.scores == [(0.0, STEPS)]
    ended = table.play(lambda *_: 1)
    assert [info.max_step_reached for info in ended] == [True] * 3
    assert {info.group_id for info in ended} == {1}


def test_a_brief_episode_is_long_enough() -> None:
    """Within the shorter limit, a group that knows the way wins twice, and one that waits is interrupted."""
    table = Table(BRIEF_STEPS)
    for _ in range(6):
        table.play(lambda _, info: 0 if info.id == 3 and place(info) else 2)
    for _ in range(BRIEF_STEPS):
        table.play(lambda *_: 1)
    assert [score for score, _ in table.scores] == [2.0, 0.0]
    assert table.scores[0][1] <= 6
    assert table.scores[1][1] == BRIEF_STEPS
