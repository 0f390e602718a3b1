"""Tests the checks of `evaluate` before it serves."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rollcast.extras import install

from learner.cli.cli import build_parser
from learner.link.matches import match_numbers
from learner.link.to_trainers import Actor
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.meters import RunMeters
from learner.shared.observe.stats import StatsReporter
from learner.shared.runfolder.snapshots import SnapshotFiles
from learner.shared.settings.options import RunOptions
from learner.shared.settings.service import EvaluationSettings, ServiceSettings
from learner.start import evaluate_run
from learner.start.evaluate_run import EvaluationRequest, OfflineEvaluation, Report
from learner.start.own_actor import ActorRequest, OwnActor
from learner.training.matches.game_records import GameRecords
from learner.training.matches.opponents import EvaluationOpponents
from learner.training.trainers.ppo.trainer import PPOTrainer
from tests.learner.service.ingest.parts import NAME, Parts
from tests.learner.starts import SETTINGS
from tests.learner.training.trainers.in_process import Bench


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--video", "videos"], "--video needs an actor that evaluate starts: add --env"),
        (["--video-every", "3"], "--video-every needs an actor that evaluate starts: add --env"),
        (["--actor-args", "--num-envs", "2"], "--actor-args needs an actor that evaluate starts: add --env"),
        (
            ["--env", "CartPole-v1", "--video-every", "3"],
            "--video-every needs a folder for the videos: add --video DIR",
        ),
        (["--pettingzoo"], "--pettingzoo needs an actor that evaluate starts: add --env"),
        (["--env", "X", "--pettingzoo", "--video", "videos"], "--video films environments of Gymnasium"),
    ],
)
def test_flags_of_an_own_actor_need_their_partners(flags: list[str], line: str) -> None:
    """Flags that need another flag are refused."""
    parsed = build_parser().parse_args(["evaluate", "nowhere", *flags])
    with pytest.raises(UserError, match=line) as caught:
        parsed.run(parsed)
    assert caught.value.exit_code is ExitCode.USAGE


@pytest.mark.parametrize("address", [None, "127.0.0.1:7"])
def test_an_own_actor_needs_no_identity(address: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --address only this machine reaches the learner, in plain text, whatever files the run was served with."""
    (tmp_path / "configuration.yaml").write_text(
        "default_settings: {trainer_type: ppo}\n"
        "rollcast: {address: 10.0.0.5:7, certs: certs, tls_client_ca: ca.pem, trainer_address: 10.0.0.5:8}\n"
    )
    asked: list[EvaluationRequest] = []

    def play(request: EvaluationRequest) -> Report:
        asked.append(request)
        return Report("", "", is_complete=True)

    monkeypatch.setattr(evaluate_run, "evaluate", play)
    flags = [] if address is None else ["--address", address]
    parsed = build_parser().parse_args(["evaluate", str(tmp_path), "--env", "CartPole-v1", *flags])
    parsed.run(parsed)
    service = asked[0].loaded.options.rollcast
    assert service.address == (address or "127.0.0.1:0")
    assert (service.identity_files.cert is None) == (address is None)
    assert service.identity_files.identifies_clients == (address is not None)


def test_the_command_of_an_own_actor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command of the own actor connects to this machine, plays the behavior, and ends with further arguments."""
    request = ActorRequest("mine:Maze", "Maze", Path("videos"), 2, "json", ("--frame-stack", "4"))
    for address, called in (("0.0.0.0:7", "127.0.0.1:7"), ("[::]:7", "[::1]:7"), ("10.0.0.5:7", "10.0.0.5:7")):
        command = request.command(address)
        assert command[command.index("--learner") + 1] == called
    assert command[-8:] == ["--behavior", "Maze", "--video", "videos", "--video-every", "2", "--frame-stack", "4"]
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=re.escape(install("actor,gym"))) as caught:
        OwnActor(request, ServiceSettings(), lambda: False)
    assert caught.value.exit_code is ExitCode.MISSING_EXTRA


@pytest.mark.parametrize("log_format", ["auto", "console", "json", "mlagents"])
def test_the_actor_of_an_evaluation_gets_a_format_that_it_has(log_format: str) -> None:
    """A run of rollcast unity has the format of mlagents-learn in its settings, which actors lack."""
    request = ActorRequest("mine:Maze", None, None, 1, log_format, ())
    words = request.command("127.0.0.1:1")
    given = words[words.index("--log-format") + 1]
    assert given == ("auto" if log_format == "mlagents" else log_format)


def test_opponents_are_those_of_the_measured_behavior(tmp_path: Path) -> None:
    """A run of two behaviors has a trainer of each, and the chosen one meets the opponents, whichever came last."""
    names = (NAME, "Other")
    options = RunOptions.model_validate({"behaviors": {name: {**SETTINGS, "self_play": {}} for name in names}})
    parts = Parts(options)
    session = parts.open("a").session
    trainers = {}
    for name in names:
        behavior = parts.declared(session, name)
        bench = Bench(parts.link, parts.behaviors, behavior, parts.ledger, StatsReporter(name))
        trainers[name] = PPOTrainer(bench.context())
        trainers[name].start()
    unread: Any = SimpleNamespace(load=lambda _: None)
    request = EvaluationRequest(tmp_path, unread, "last", 4, 1, NAME, None, 0, against=("random",))
    opponents = EvaluationOpponents(
        EvaluationSettings(opponents=request.against, episodes=4),
        tmp_path,
        SnapshotFiles(tmp_path),
        GameRecords(None, RunMeters()),
    )
    evaluation = OfflineEvaluation(request, unread, unread, opponents)
    for trainer in trainers.values():
        evaluation.trainer_added(trainer)
    index = trainers[NAME].context.behavior.index
    actor = Actor("a", "a", 0, is_connected=True, agents={}, teams={index: (0, 1)})
    opponents.prepare({NAME: trainers[NAME]})
    found = opponents.begin({NAME: trainers[NAME]}, match_numbers(1), episodes=1, is_deterministic=False)
    (match,) = found.deal(opponents.present([actor], {index: NAME}))
    assert [seat.behavior for seat in match.seats] == [NAME, NAME]
