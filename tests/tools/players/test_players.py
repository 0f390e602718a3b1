"""Tests that players follow the rules of Unity's wire in every task."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from PIL import Image
from rollcast.unity.communicator_objects import unity_message_pb2

from tests.tools.players.answering import Answering, Message, listening
from tests.tools.players.build import main as build
from tests.tools.players.cartpole import advance
from tests.tools.players.cli import NO_TRAINER, REFUSED, WRONG_REPLY, main
from tests.tools.players.pendulum import Pendulum
from tests.tools.players.pictures import encode_png
from tests.tools.players.side_channel import ENGINE, PARAMETERS, STATISTICS, record, records
from tests.tools.players.tasks import TASKS


def _play(answering: Answering, *arguments: str) -> int:
    with listening(answering) as port:
        return main(["--mlagents-port", str(port), *arguments])


def _lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("task", sorted(TASKS))
def test_every_task_plays(task: str, tmp_path: Path) -> None:
    """Each behavior is declared once, agents start and end, and random actions are accepted."""
    answering = Answering()
    decisions = "8000" if task in {"everything", "scenes"} else "900"
    options = ("--task", task, "--agents", "4", "--decisions", decisions, "--episodes", str(tmp_path / "all"))
    code = _play(answering, *options)
    assert code == 0
    told = [
        brain.brain_name
        for message in answering.messages
        for brain in message.unity_output.rl_initialization_output.brain_parameters
    ]
    used = {name for message in answering.messages for name in message.unity_output.rl_output.agentInfos}
    assert sorted(told) == sorted(used)
    assert {line["behavior"] for line in _lines(tmp_path / "all")} == used
    assert answering.messages[-1].header.status == 400


def test_carts_move_as_gymnasiums() -> None:
    """Equal pushes lead to the states of gymnasium's CartPole to float32 rounding."""
    env = gymnasium.make("CartPole-v1").unwrapped
    observation, _ = env.reset(seed=3)
    state = np.array([env.state], np.float64)  # type: ignore[attr-defined]
    for push in (0, 1, 1, 0, 1):
        state = advance(state, np.array([push]))
        observation, *_ = env.step(push)
    np.testing.assert_allclose(state[0], observation, rtol=1e-5)


def test_pendulums_move_as_gymnasiums() -> None:
    """Equal torques lead to the observations and rewards of gymnasium's Pendulum."""
    env = gymnasium.make("Pendulum-v1")
    ours = Pendulum(1)
    ours.begin(0, np.random.default_rng(5))
    env.reset(seed=3)
    env.unwrapped.state = np.array([ours._angle[0], ours._speed[0]])  # type: ignore[attr-defined]
    for torque in (0.3, -1.0, 0.9, 0.0):
        outcome = ours.advance(np.array([0]), np.array([[torque]]), np.zeros((1, 0), np.int64))
        observation, reward, *_ = env.step(np.array([2.0 * torque], np.float32))
        np.testing.assert_allclose(list(ours.observe(0)[0].float_data.data), observation, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(outcome.rewards[0], float(reward), rtol=1e-4)


def test_ends_are_told_as_unity_tells_them() -> None:
    """An agent's end with its last reward precedes the start under its id."""
    answering = Answering()
    _play(answering, "--task", "cartpole", "--agents", "2", "--decisions", "400")
    ends = 0
    for message in answering.messages[2:-1]:
        infos = message.unity_output.rl_output.agentInfos["CartPole?team=0"].value
        ended = [info for info in infos if info.done]
        assert list(infos[: len(ended)]) == ended
        assert [info.id for info in infos[len(ended) :]] == [0, 1]
        assert all(info.reward == 1.0 for info in ended)
        assert all(info.reward == 0.0 for info in infos[len(ended) :] if info.id in {gone.id for gone in ended})
        ends += len(ended)
    assert ends > 10


def test_groups_end_together_and_are_told() -> None:
    """Agents of a group have its number, and all end before any starts again."""
    answering = Answering()
    _play(answering, "--task", "groups", "--agents", "4", "--decisions", "400")
    infos = [
        info
        for message in answering.messages[2:]
        for info in message.unity_output.rl_output.agentInfos["Groups?team=0"].value
    ]
    assert {(info.id, info.group_id) for info in infos} == {(0, 1), (1, 1), (2, 2), (3, 2)}
    assert any(info.group_reward for info in infos)
    assert all(info.max_step_reached for info in infos if info.done)


def test_agents_that_come_and_go_have_new_ids() -> None:
    """No id is used again after its end, and not every agent asks each time."""
    answering = Answering()
    _play(answering, "--task", "comers", "--agents", "4", "--decisions", "400")
    ended: set[int] = set()
    sizes = set()
    for message in answering.messages[2:-1]:
        infos = message.unity_output.rl_output.agentInfos["Comers?team=0"].value
        ended |= {info.id for info in infos if info.done}
        asking = {info.id for info in infos if not info.done}
        assert not asking & ended
        sizes.add(len(asking))
    assert len(ended) > 10
    assert len(sizes) > 1


def test_a_reset_ends_no_episode(tmp_path: Path) -> None:
    """After a RESET all agents start again without ends."""

    def reset(message: Message, answer: Message) -> None:
        if len(answering.messages) == 6:
            answer.unity_input.Clear()
            answer.unity_input.rl_input.command = unity_message_pb2.RESET

    answering = Answering(reset)
    _play(answering, "--decisions", "80", "--events", str(tmp_path / "events"))
    infos = answering.messages[6].unity_output.rl_output.agentInfos["CartPole?team=0"].value
    assert [(info.id, info.done, info.reward) for info in infos] == [(agent, False, 0.0) for agent in range(8)]
    assert [line["event"] for line in _lines(tmp_path / "events")] == ["greeted", "reset", "reset"]


def test_what_is_told_is_written_down(tmp_path: Path) -> None:
    """The file of events has seed, versions, parameters and engine settings."""
    parameter = struct.pack("<i4sif", 4, b"mass", 0, 1.5)
    data = record(PARAMETERS, parameter) + record(ENGINE, struct.pack("<if", 2, 20.0))
    _play(Answering(seed=17, side_channel=data), "--decisions", "80", "--events", str(tmp_path / "events"))
    greeted, told, _ = _lines(tmp_path / "events")
    assert (greeted["seed"], greeted["api"], greeted["package"]) == (17, "1.5.0", "1.1.0")
    assert told["told"] == [{"parameter": "mass", "value": 1.5}, {"engine": 2, "values": [20.0]}]


def test_statistics_are_sent() -> None:
    """Each message has a record of each kind."""
    answering = Answering()
    _play(answering, "--decisions", "80", "--statistics")
    sent = list(records(answering.messages[4].unity_output.rl_output.side_channel))
    assert [channel for channel, _ in sent] == [STATISTICS] * 4
    assert sent[0][1] == struct.pack("<i18sfi", 18, b"Scripted/Decisions", 16.0, 1)


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


@pytest.mark.parametrize("change", [_one_too_few, _out_of_range, _nothing, _no_deprecated])
def test_wrong_replies_are_told(change: Callable[[Message, Message], None]) -> None:
    """A reply that Unity could not use ends the player with its own exit code."""
    assert _play(Answering(change), "--decisions", "80") == WRONG_REPLY


def test_refusals_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """A greeting with another status ends the player with the status."""

    def refuse(message: Message, answer: Message) -> None:
        answer.header.status, answer.header.message = 400, "versions differ"

    assert _play(Answering(refuse)) == REFUSED
    assert "versions differ" in capsys.readouterr().out


def test_nothing_that_listens_is_told() -> None:
    """A player whose first call fails does not retry."""
    with listening(Answering()) as port:
        pass
    assert main(["--mlagents-port", str(port)]) == NO_TRAINER


def test_png_files_are_pngs() -> None:
    """Pillow reads the PNG files."""
    pixels = np.random.default_rng(1).integers(0, 255, (7, 5, 3), np.uint8)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(encode_png(pixels)))), pixels)


def test_a_second_build_in_the_same_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A build is not overwritten; one line names the folder and what to change."""
    assert build([str(tmp_path)]) == 0
    with pytest.raises(SystemExit) as ended:
        build([str(tmp_path)])
    assert ended.value.code == 2
    line = f"error: {tmp_path} already has a build Build: choose another folder or another --name\n"
    assert capsys.readouterr().err == line
    assert build([str(tmp_path), "--name", "Other"]) == 0
