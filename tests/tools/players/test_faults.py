"""Tests that faults occur once and that a build starts as Unity's do."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.players.answering import Answering, listening
from tests.tools.players.build import make_build
from tests.tools.players.cli import main
from tests.tools.players.faults import BALLAST_BYTES, EXIT_CODE, FAULTS
from tests.tools.players.side_channel import UNKNOWN, records

AT = 80
"""Decisions, of 8 agents each: the fault is in message 12 (two greetings, and ten without it)."""
ENDS = {"exit": EXIT_CODE, "segmentation-fault": -signal.SIGSEGV, "killed": -signal.SIGKILL}


def _play(fault: str | None, task: str = "cartpole") -> Answering:
    answering = Answering()
    with listening(answering) as port:
        options = ["--task", task, "--decisions", str(2 * AT)]
        options += ["--fault", fault, "--fault-at", str(AT)] if fault else []
        assert main(["--mlagents-port", str(port), *options]) == 0
    return answering


@pytest.mark.parametrize("fault", sorted(ENDS))
def test_players_end_as_told(fault: str, tmp_path: Path) -> None:
    """A build exits with the fault's code or signal, and its restart has no fault."""
    once = tmp_path / "once"
    build = make_build(tmp_path / "build", "--fault", fault, "--fault-at", str(AT), "--fault-once", str(once))
    codes = []
    for _ in range(2):
        answering = Answering()
        with listening(answering) as port:
            arguments = ["-nographics", "-batchmode", "--mlagents-port", str(port), "-logFile", str(tmp_path / "log")]
            command = [f"{build}.x86_64", *arguments, "--decisions", str(2 * AT)]
            codes.append(subprocess.run(command, cwd=tmp_path, timeout=60, check=False).returncode)
    assert codes == [ENDS[fault], 0]
    assert "it left" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("fault", sorted(FAULTS.keys() - ENDS.keys() - {"hang"}))
def test_messages_are_spoilt_once(fault: str) -> None:
    """One message is corrupted, and the player continues."""
    task = "png" if fault == "no-png" else "hybrid"
    spoilt, sound = _play(fault, task).messages, _play(None, task).messages
    assert len(spoilt) == len(sound)
    assert [number for number, pair in enumerate(zip(spoilt, sound, strict=True)) if pair[0] != pair[1]] == [12]


def test_nan_is_one() -> None:
    """The first agent's reward is NaN."""
    infos = _play("nan-reward").messages[12].unity_output.rl_output.agentInfos["CartPole?team=0"].value
    assert [math.isnan(info.reward) for info in infos[:2]] == [True, False]


def test_ballast_is_heavy() -> None:
    """The message has 50 MiB for an unknown channel."""
    (channel, payload), *_ = records(_play("ballast").messages[12].unity_output.rl_output.side_channel)
    assert (channel, len(payload)) == (UNKNOWN, BALLAST_BYTES)


def test_a_hanging_player_hangs(tmp_path: Path) -> None:
    """A hanging player sends no more messages and does not end."""
    answering = Answering()
    with listening(answering) as port:
        command = [sys.executable, "-m", "tests.tools.players", "--mlagents-port", str(port), "--fault", "hang"]
        with subprocess.Popen(command, cwd=Path(__file__).parents[3]) as player:
            with pytest.raises(subprocess.TimeoutExpired):
                player.wait(2)
            player.kill()
    assert len(answering.messages) == 2
