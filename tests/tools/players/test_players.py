"""Tests that players follow the rules of Unity's wire in every task, and that faults occur once."""

from __future__ import annotations

import io
import json
import signal
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rollcast.unity.communicator_objects import agent_pb2, unity_message_pb2

from tests.tools.players.answering import Answering, Message, listening
from tests.tools.players.build import main as build
from tests.tools.players.build import make_build
from tests.tools.players.cli import NO_TRAINER, REFUSED, WRONG_REPLY, main
from tests.tools.players.faults import EXIT_CODE, FAULTS
from tests.tools.players.pictures import encode_png
from tests.tools.players.plate import BEHAVIOR, BRIEF_STEPS, PLACES, STEPS, Plate
from tests.tools.players.side_channel import ENGINE, PARAMETERS, record
from tests.tools.players.tasks import TASKS

Info = agent_pb2.AgentInfoProto
AT = 80
"""Decisions, of 8 agents each: a fault is in message 12 (two greetings, and ten without it)."""
ENDS = {"exit": EXIT_CODE, "segmentation-fault": -signal.SIGSEGV}


def play(answering: Answering, *arguments: str) -> int:
    """Plays and returns the exit code."""
    with listening(answering) as port:
        return main(["--mlagents-port", str(port), *arguments])


def lines(path: Path) -> list[dict[str, object]]:
    """Reads a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("task", sorted(TASKS))
def test_every_task_plays(task: str, tmp_path: Path) -> None:
    """Each behavior is declared once, agents start and end, and random actions are accepted."""
    answering = Answering()
    decisions = "8000" if task in {"everything", "scenes"} else "900"
    options = ("--task", task, "--agents", "4", "--decisions", decisions, "--episodes", str(tmp_path / "all"))
    assert play(answering, *options) == 0
    told = [
        brain.brain_name
        for message in answering.messages
        for brain in message.unity_output.rl_initialization_output.brain_parameters
    ]
    used = {name for message in answering.messages for name in message.unity_output.rl_output.agentInfos}
    assert sorted(told) == sorted(used)
    assert {line["behavior"] for line in lines(tmp_path / "all")} == used
    assert answering.messages[-1].header.status == 400


def infos(answering: Answering, task: str) -> list[list[Info]]:
    """Plays a task of one behavior and returns its agents in each message."""
    assert play(answering, "--task", task.lower(), "--agents", "4", "--decisions", "400") == 0
    messages = answering.messages[2:-1]
    return [list(message.unity_output.rl_output.agentInfos[f"{task}?team=0"].value) for message in messages]


def test_ends_are_told_as_unity_tells_them() -> None:
    """An agent's end precedes the start under its id; groups end together, and who comes and goes has new ids."""
    for found in infos(Answering(), "CartPole"):
        ended = [info for info in found if info.done]
        assert found[: len(ended)] == ended
        assert [info.id for info in found[len(ended) :]] == [0, 1, 2, 3]
        assert all(info.reward == 1.0 for info in ended)
    grouped = [info for found in infos(Answering(), "Groups") for info in found]
    assert {(info.id, info.group_id) for info in grouped} == {(0, 1), (1, 1), (2, 2), (3, 2)}
    assert any(info.group_reward for info in grouped)
    assert all(info.max_step_reached for info in grouped if info.done)
    gone: set[int] = set()
    for found in infos(Answering(), "Comers"):
        gone |= {info.id for info in found if info.done}
        assert not gone & {info.id for info in found if not info.done}
    assert len(gone) > 10


def test_what_is_told_is_written_down(tmp_path: Path) -> None:
    """After a RESET agents start again without ends; the file of events has seed, versions, parameters and engine settings."""

    def reset(message: Message, answer: Message) -> None:
        if len(answering.messages) == 6:
            answer.unity_input.Clear()
            answer.unity_input.rl_input.command = unity_message_pb2.RESET

    data = record(PARAMETERS, struct.pack("<i4sif", 4, b"mass", 0, 1.5)) + record(ENGINE, struct.pack("<if", 2, 20.0))
    answering = Answering(reset, seed=17, side_channel=data)
    play(answering, "--decisions", "80", "--events", str(tmp_path / "events"))
    found = answering.messages[6].unity_output.rl_output.agentInfos["CartPole?team=0"].value
    assert [(info.id, info.done, info.reward) for info in found] == [(agent, False, 0.0) for agent in range(8)]
    greeted, told, *resets = lines(tmp_path / "events")
    assert (greeted["seed"], greeted["api"], greeted["package"]) == (17, "1.5.0", "1.1.0")
    assert told["told"] == [{"parameter": "mass", "value": 1.5}, {"engine": 2, "values": [20.0]}]
    assert [line["event"] for line in resets] == ["reset", "reset"]


def _one_too_few(message: Message, answer: Message) -> None:
    if actions := answer.unity_input.rl_input.agent_actions:
        del next(iter(actions.values())).value[-1]


def _out_of_range(message: Message, answer: Message) -> None:
    for actions in answer.unity_input.rl_input.agent_actions.values():
        actions.value[0].discrete_actions[0] = 2


def _nothing(message: Message, answer: Message) -> None:
    answer.unity_input.rl_input.agent_actions.clear()


def _no_deprecated(message: Message, answer: Message) -> None:
    for actions in answer.unity_input.rl_input.agent_actions.values():
        actions.value[0].ClearField("vector_actions_deprecated")


def _refuse(message: Message, answer: Message) -> None:
    answer.header.status = 400


@pytest.mark.parametrize(
    ("change", "code"),
    [
        *((change, WRONG_REPLY) for change in (_one_too_few, _out_of_range, _nothing, _no_deprecated)),
        (_refuse, REFUSED),
    ],
)
def test_wrong_replies_end_the_player(change: Callable[[Message, Message], None], code: int) -> None:
    """A reply that Unity could not use ends the player with its own exit code, as a refusal does."""
    assert play(Answering(change), "--decisions", "80") == code


def test_nothing_that_listens_is_told() -> None:
    """A player whose first call fails does not retry."""
    with listening(Answering()) as port:
        pass
    assert main(["--mlagents-port", str(port)]) == NO_TRAINER


def test_png_files_are_pngs() -> None:
    """Pillow reads the PNG files."""
    pixels = np.random.default_rng(1).integers(0, 255, (7, 5, 3), np.uint8)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(encode_png(pixels)))), pixels)


@pytest.mark.parametrize("fault", sorted(ENDS))
def test_players_end_as_told(fault: str, tmp_path: Path) -> None:
    """A build exits with the fault's code or signal, and its restart has no fault."""
    once = tmp_path / "once"
    made = make_build(tmp_path / "build", "--fault", fault, "--fault-at", str(AT), "--fault-once", str(once))
    codes = []
    for _ in range(2):
        with listening(Answering()) as port:
            arguments = ["-nographics", "-batchmode", "--mlagents-port", str(port), "-logFile", str(tmp_path / "log")]
            command = [f"{made}.x86_64", *arguments, "--decisions", str(2 * AT)]
            codes.append(subprocess.run(command, cwd=tmp_path, timeout=300, check=False).returncode)
    assert codes == [ENDS[fault], 0]
    with pytest.raises(SystemExit):
        build([str(tmp_path / "build")])


@pytest.mark.parametrize("fault", sorted(FAULTS.keys() - ENDS.keys() - {"hang"}))
def test_messages_are_spoilt_once(fault: str) -> None:
    """One message is corrupted, and the player continues."""
    spoilt, sound = Answering(), Answering()
    options = ("--task", "hybrid", "--decisions", str(2 * AT))
    assert play(spoilt, *options, "--fault", fault, "--fault-at", str(AT)) == play(sound, *options) == 0
    pairs = enumerate(zip(spoilt.messages, sound.messages, strict=True))
    assert [number for number, (one, other) in pairs if one != other] == [12]


class Table:
    """Plays one group of the plate with a rule that chooses each agent's action."""

    def __init__(self, steps: int = STEPS) -> None:
        self.scores: list[tuple[float, int]] = []
        self.task = Plate(3, lambda _behavior, _decisions, total, length: self.scores.append((total, length)), steps)
        self.task.reset(1)

    def play(self, choose: Callable[[Info], int]) -> list[Info]:
        """Takes one step and returns the agents that ended before it."""
        output = unity_message_pb2.UnityOutputProto()
        self.task.write(output)
        found = output.rl_output.agentInfos[BEHAVIOR].value
        reply = unity_message_pb2.UnityRLInputProto()
        for info in (one for one in found if not one.done):
            action = choose(info)
            answer = reply.agent_actions[BEHAVIOR].value.add()
            answer.discrete_actions.append(action)
            answer.vector_actions_deprecated.append(action)
        self.task.act(reply)
        return [info for info in found if info.done]


def _knows(info: Info) -> int:
    """Moves the first agent to the plate and the others to the gate."""
    place = list(info.observations[0].float_data.data[:PLACES]).index(1.0)
    return 0 if info.id == 3 and place else 2


def test_one_agent_leaves_the_plate_and_the_others_win() -> None:
    """The first agent opens the gate and ends without reward; the group gets 1 for each of the others."""
    table = Table(BRIEF_STEPS)
    ended: list[Info] = []
    while not table.scores:
        ended += table.play(_knows)
    ended += table.play(lambda _: 1)
    assert table.scores[0][0] == 2.0
    assert table.scores[0][1] <= 6
    assert (ended[0].id, ended[0].group_reward, ended[0].max_step_reached) == (3, 0.0, False)
    assert len(ended) == 3


def test_nobody_wins_while_the_gate_is_closed() -> None:
    """Agents that keep away from the plate are interrupted together, without a reward."""
    table = Table()
    for _ in range(STEPS):
        assert table.play(lambda _: 2) == []
    assert table.scores == [(0.0, STEPS)]
    assert [info.max_step_reached for info in table.play(lambda _: 1)] == [True] * 3
