"""Tests that every message of the link can be encoded and is immutable."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from rollcast.chunks import GameRecord, GameResult
from rollcast.enums import AssignmentRole, HoldReason
from rollcast.v1 import policy_pb2

from learner.link.control import (
    Answer,
    Close,
    Closed,
    Failed,
    Finished,
    Freed,
    Request,
    RequestKind,
    Seen,
    SettingChange,
    Stopped,
    StopTurns,
)
from learner.link.footprint import EstimateMemory, Footprint, MemoryEstimate
from learner.link.matches import Match, Seat
from learner.link.opening import Begin, Check, Checked, GiveUp, Hello, Logged, NotOpened, Opened
from learner.link.to_front import (
    Assign,
    Cut,
    Done,
    EndEvaluation,
    Pace,
    Policy,
    Release,
    SetHold,
    Settled,
    StartMatch,
    Stats,
    ToFront,
)
from learner.link.to_trainers import Actor, Actors, Books, Declared, Experience, QueueFull, ToTrainers
from learner.link.turns import Follow, Over, Turn, TurnKind
from learner.shared.exits import ExitCode
from learner.shared.observe.address import BoundAddresses
from learner.shared.observe.behavior_state import BehaviorState, Field, GameView, Metric, TrainerStats
from learner.shared.observe.meters import RunMeters
from learner.shared.observe.milestones import Milestones
from learner.shared.observe.summary import BehaviorSummary
from learner.shared.observe.view import AwayView, GpuUse, LessonView, LockstepView, QuarantineView, RunState, RunView
from learner.shared.policies import PolicyKey
from learner.shared.settings.load import LoadedRun
from learner.shared.settings.options import RunOptions
from tests.coded_link import coded
from tests.learner.service.calls.samples import make_chunk, make_policy, make_spec
from tests.learner.service.ingest.parts import Parts

GAME = GameView("hex", "step 5", "random", "1-0", "a1\nb2")


def declared() -> Declared:
    """Returns a behavior as the service announces it."""
    parts = Parts()
    return parts.declared(parts.open().session).declared


def stats() -> Stats:
    """Returns a run with every field of a report."""
    own = Field("my_number", "A number of the trainer's own.", metric=Metric(kind="counter"))
    trainer = TrainerStats(3, 700, 9, 21.5, is_full=True, numbers={"my_number": 2.5, "ring_steps": 7}, fields=(own,))
    meters = RunMeters()
    meters.behavior("Walker").policy_lag.observe(np.array([0, 3]))
    meters.behavior("Walker").show_best(21.5, 640)
    meters.behavior("Walker").show_game(GAME)
    meters.declare_stats_writers([object()])
    return Stats(
        12.5,
        {"Walker": trainer},
        frozenset({"Walker"}),
        meters.counts(),
        (LessonView("mass", 1, 2, "heavy"),),
        LockstepView(2, round=7),
        last_error="the disk is full",
        gpu=GpuUse(1, 2, 3, 0.5),
    )


VIEW = RunView(
    "run",
    RunState.WAITING,
    1,
    5.0,
    "127.0.0.1:1",
    behaviors=(BehaviorState("Walker", game=GAME),),
    quarantined=(QuarantineView("red", "walker", 60.0, 1, "malformed"),),
    away=(AwayView("rig", 3, 61.0),),
)
SUMMARY = BehaviorSummary.of(
    BehaviorState("Walker", actor_books={"discarded": {"reset": 1}, "dropped": {}, "outstanding": 2}), Milestones()
)
OPTIONS = {"behaviors": {"Walker": {"trainer_type": "sac"}}, "rollcast": {"address": "127.0.0.1:0"}}
RECORD = GameRecord(7, "hex", 1, GameResult.DRAWN, ("a1", "b2"))
LOADED = LoadedRun(
    Path("run.yaml"), RunOptions.model_validate(OPTIONS), {"behaviors.Walker": "yaml"}, ("a warning",), {"a": "b:3"}
)
MESSAGES: tuple[Any, ...] = (
    Hello(LOADED, Path("results") / "run", resuming=True, initialize_from=None),
    Check(LOADED, Path("results") / "run", resuming=False, initialize_from=Path("results") / "other"),
    Checked(),
    Opened(
        2,
        3,
        "cpu",
        policy_pb2.Assignment(),
        {"ledger": {}},
        {"clocks": [1.5]},
        frozenset({"Walker"}),
    ),
    NotOpened(ExitCode.BAD_CHECKPOINT, "damaged", ("one", "two")),
    Begin(BoundAddresses("127.0.0.1:1", "127.0.0.1:2", tls=True)),
    GiveUp("no"),
    Follow(2, 3),
    Over(),
    Turn(5, 0, TurnKind.RELEASE, 7, frozenset({"session"})),
    Turn(6, 0, TurnKind.SET, settings='{"max_steps": 5}'),
    Logged("error", "trainer_failed", {"error": "no", "exception": "Traceback"}),
    declared(),
    Experience(0, 7, make_chunk(5, discarded={"reset": 2}, game_record=RECORD), "session", 3, 100, 12.5),
    QueueFull(0, 900, 1000),
    Books(4, {"ledger": {"Walker": {"received": 2**62}}, "sessions": []}),
    Settled(0, 7, 5, {"stale": 2}, Pace(3, 100, HoldReason.UPDATING, 8)),
    Done(0),
    Cut(4),
    Actors((Actor("session", "walker", 3, is_connected=True, agents={0: 4}, teams={0: (0, 1)}),), {0: 2**40}),
    Policy(make_policy(3), keep=True),
    Release("Walker"),
    SetHold(HoldReason.PAUSED, active=True),
    Assign(policy_pb2.Assignment(lockstep_round=4), frozenset({"session"})),
    StartMatch(Match(2, "session", episodes=5, versions={"Walker": (1, 3)}, is_deterministic=True)),
    EndEvaluation("session"),
    StartMatch(
        Match(
            7,
            "session",
            (
                Seat("Walker", 0, AssignmentRole.LEARN),
                Seat("Walker", 1, AssignmentRole.OPPONENT, PolicyKey(1, 0, b"\1" * 32)),
            ),
        )
    ),
    StartMatch(Match(8, "session", (Seat("Walker", 0, AssignmentRole.OPPONENT),), episodes=20, random_steps=2)),
    stats(),
    EstimateMemory(3, make_spec(), declared().settings),
    MemoryEstimate(3, Footprint(100, 40, network_bytes=7)),
    MemoryEstimate(4, refusal="too small", metadata={"behavior": "Walker"}),
    Request(5, RequestKind.SAVE),
    Request(6, RequestKind.SET, {"learning_rate": "1e-4"}, "ops"),
    Answer(5, path="results/run/run_state.pt"),
    Answer(6, changes=(SettingChange("Walker.target_kl", None, 0.5), SettingChange("lesson.mass", 1, 2))),
    StopTurns(),
    Seen(VIEW),
    Close("signal", VIEW, {"Walker": SUMMARY}, "no"),
    Stopped(),
    Freed(2**40),
    Closed(is_complete=True),
    Finished("max_steps"),
    Failed(ExitCode.TRAINER_FAILED, "the trainer failed: no"),
)


def test_all_messages_are_here() -> None:
    """Each kind of message has an example here."""
    assert {type(message) for message in MESSAGES} == {*get_args(ToTrainers), *get_args(ToFront)}


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_survives_the_way_between_two_processes(message: Any) -> None:
    """A message is equal after it was encoded and decoded."""
    arrived = coded(message)
    assert type(arrived) is type(message)
    for field in fields(message):
        ours, theirs = getattr(message, field.name), getattr(arrived, field.name)
        if field.name != "chunk":
            assert ours == theirs
            continue
        assert ours.columns.keys() == theirs.columns.keys()
        assert ours.game_record == theirs.game_record == RECORD
        for name, column in ours.columns.items():
            np.testing.assert_array_equal(column, theirs.columns[name])
        ours_told, theirs_told = (
            {each.name: getattr(chunk, each.name) for each in fields(chunk) if each.name != "columns"}
            for chunk in (ours, theirs)
        )
        assert ours_told == theirs_told
