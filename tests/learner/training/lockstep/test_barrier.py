"""Tests the barrier: when rounds start and end, and what makes a run unrepeatable."""

from __future__ import annotations

import time
from collections.abc import Callable, MutableMapping
from typing import Any

import pytest
from rollcast.enums import HoldReason
from rollcast.trajectories import Chunk
from rollcast.v1 import policy_pb2
from structlog.testing import capture_logs

from learner.link.to_front import Assign, SetHold, ToFront
from learner.link.to_trainers import Experience, QueueFull
from learner.service.ingest.behaviors import Behavior
from learner.service.ingest.session import ActorSession
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.stats import StatsReporter
from learner.shared.settings.options import RunOptions
from learner.training.curriculum.lessons import no_lessons
from learner.training.lockstep.barrier import Lockstep
from learner.training.trainers.outcome_report import OutcomeReport
from learner.training.trainers.ppo.trainer import PPOTrainer
from learner.training.trainers.roster import Roster
from tests.learner.service.ingest.parts import NAME, Parts, make_chunk
from tests.learner.training.trainers.in_process import Bench, Published

SETTINGS = {
    "hyperparameters": {"batch_size": 8, "buffer_size": 10, "num_epoch": 1},
    "network_settings": {"hidden_units": 8, "num_layers": 1},
    "time_horizon": 64,
}


class Rig:
    """A barrier with real queues, books, sessions and trainer, and recorded messages."""

    def __init__(
        self,
        *,
        rollcast: dict[str, Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
        **lockstep: Any,
    ) -> None:
        block = {"actors": 2, "quota_steps": 4, "checkpoint_updates": 2, **lockstep}
        self.options = RunOptions.model_validate(
            {"behaviors": {NAME: SETTINGS}, "rollcast": {**(rollcast or {}), "lockstep": block}}
        )
        self.parts = Parts(self.options)
        self.trainers: dict[str, PPOTrainer] = {}
        self.told: list[tuple[policy_pb2.Assignment, frozenset[str]]] = []
        self.saved: list[int] = []
        self.holds: list[bool] = []
        self.spoiled: list[str] = []
        self.is_ending = False
        self.roster = Roster()
        settings = self.options.rollcast.lockstep
        assert settings is not None
        self.lockstep = Lockstep(
            settings,
            self.roster,
            no_lessons(),
            send=self._note,
            is_ending=lambda: self.is_ending,
            on_spoiled=self.spoiled.append,
            clock=clock,
        )

    def _note(self, command: ToFront) -> None:
        if isinstance(command, SetHold):
            assert command.reason is HoldReason.LOCKSTEP
            self.holds.append(command.active)
        else:
            assert isinstance(command, Assign)
            assert command.players is not None
            self.told.append((command.assignment, command.players))

    def join(self, name: str, agents: int = 1) -> ActorSession:
        """Adds an actor with its declaration; the first one creates the trainer."""
        session = self.parts.open(name).session
        behavior = self.parts.declared(session, agents=agents)
        if not self.trainers:
            parts = self.parts
            bench = Bench(parts.link, parts.behaviors, behavior, parts.ledger, StatsReporter(NAME))
            outcomes = OutcomeReport(behavior.index, parts.link.to_front.send)
            self.queue = bench.queue = self.lockstep.make_queue(behavior.declared, outcomes)
            trainer = PPOTrainer(bench.context(open_publisher=Published().open))
            trainer.start()
            self.trainers[NAME] = trainer
        return session

    def send(
        self, session: ActorSession, rows: int = 4, *, ends: bool = True, resident_bytes: int = 100, **changes: Any
    ) -> None:
        """Sends an actor's steps and the end of its round."""
        (behavior,) = self.parts.behaviors.all()
        version = self.trainers[NAME].version if self.trainers else 0
        session.acked_through += 1
        chunk = make_chunk(rows, sequence=session.acked_through, **{"base_version": version, **changes})
        self._put(behavior, chunk, session, resident_bytes)
        if ends:
            number = self.told[-1][0].lockstep_round if self.told else 1
            end = make_chunk(0, sequence=session.acked_through + 1, segments=0, lockstep_round=number)
            end.discarded = dict(chunk.discarded)  # cumulative, as in every chunk
            end.columns.clear()
            end.roles.clear()
            self._put(behavior, end, session)

    def _put(self, behavior: Behavior, chunk: Chunk, session: ActorSession, resident_bytes: int = 100) -> None:
        self.parts.ledger.enqueue(NAME, chunk.rows)
        behavior.queue.put(
            chunk,
            session_id=session.session_id,
            actor_index=session.actor_index,
            encoded_bytes=100,
            resident_bytes=resident_bytes,
            received_at=float(chunk.sequence),
        )

    def receive(self) -> None:
        """Passes the service's messages to the barrier."""
        self.roster.newest = self.parts.sessions.actors()
        for message in self.parts.link.to_trainers.receive():
            match message:
                case Experience():
                    self.queue.put(message)
                case QueueFull():
                    self.queue.note_full(message)

    def turn(self, *, is_ending: bool = False) -> None:
        """Makes one turn of the trainers."""
        self.is_ending = is_ending
        self.receive()
        self.lockstep.before_turn(self.trainers)
        for trainer in self.trainers.values():
            trainer.advance()
        self.turned()

    def turned(self) -> None:
        """Lets the barrier go on after a turn of the trainers."""
        self.lockstep.play(self.trainers, lambda _: self.saved.append(self.lockstep.view().round))

    def play(self, *sessions: ActorSession) -> None:
        """Lets actors play a round, and makes a turn."""
        for session in sessions:
            self.send(session)
        self.turn()

    @property
    def order(self) -> policy_pb2.Assignment:
        """Returns the last request."""
        return self.told[-1][0]

    @property
    def version(self) -> int:
        """Returns the number of completed updates."""
        return self.trainers[NAME].version


def left_out(rig: Rig) -> MutableMapping[str, Any]:
    """Makes a turn in which one actor is left out, and returns the line of the log."""
    with capture_logs() as logs:
        rig.turn()
    (line,) = [each for each in logs if each["event"] == "actor_left_out"]
    return line


def begun(**lockstep: Any) -> tuple[Rig, ActorSession, ActorSession]:
    """Returns a barrier whose first round has two actors."""
    rig = Rig(**lockstep)
    one, two = rig.join("one"), rig.join("two")
    rig.turn()
    return rig, one, two


def test_the_first_round_waits_for_all_actors() -> None:
    """The first round starts once all actors have declared, after the run is saved."""
    rig = Rig()
    rig.turn()
    one = rig.join("one")
    two = rig.parts.open("two").session
    rig.turn()
    assert (rig.told, rig.holds, rig.saved) == ([], [True], [])
    rig.parts.declared(two)
    rig.turn()

    assert rig.holds == [True, False]
    assert rig.saved == [0]
    ((order, players),) = rig.told
    assert players == {one.session_id, two.session_id}
    assert (order.lockstep_round, order.lockstep_quota_steps, order.lockstep_checkpoint) == (1, 4, 0)
    assert order.reset == policy_pb2.RESET_MODE_NOW
    assert [(part.behavior, part.lockstep_version) for part in order.behaviors] == [(NAME, 0)]


def test_an_update_takes_the_round_and_nothing_else() -> None:
    """An update starts when all actors have ended the round, and trains all of it."""
    rig, one, two = begun()
    rig.send(one, 40)
    rig.send(two, 4, ends=False)
    rig.turn()
    assert rig.version == 0
    rig.send(two, 3)
    rig.turn()
    assert rig.version == 1
    assert rig.trainers[NAME].steps_trained == 47
    assert rig.order.lockstep_round == 2
    assert rig.order.reset == policy_pb2.RESET_MODE_NONE
    assert [part.lockstep_version for part in rig.order.behaviors] == [1]
    assert rig.lockstep.view().is_reproducible


def test_environments_begin_anew_at_checkpoints() -> None:
    """After a number of rounds the run is saved, and environments are reset."""
    rig, one, two = begun()
    seen = []
    for _ in range(5):
        rig.play(one, two)
        order = rig.order
        resets = order.reset == policy_pb2.RESET_MODE_NOW
        seen.append((order.lockstep_round, order.lockstep_checkpoint, resets, rig.lockstep.is_boundary))
    assert seen == [
        (2, 0, False, False),
        (3, 2, True, True),
        (4, 2, False, False),
        (5, 4, True, True),
        (6, 4, False, False),
    ]
    assert rig.saved == [0, 2, 4]


def test_a_lost_actor_spoils_the_run_and_the_others_go_on() -> None:
    """A lost actor's steps are trained, the run is marked with its name, and a new one joins the next round."""
    rig, one, two = begun()
    rig.send(one, 4)
    rig.send(two, 3, ends=False)
    rig.turn()
    with capture_logs() as logs:
        rig.parts.sessions.close(two, [])
        rig.turn()
    assert next(line["event"] for line in logs if line["log_level"] == "warning") == "not_reproducible"
    assert rig.spoiled == ["actor 1 (two) was lost, in round 1"]
    assert rig.trainers[NAME].steps_trained == 7
    assert rig.told[-1][1] == {one.session_id}

    three = rig.join("three")
    assert three.actor_index == 1
    rig.play(one)
    assert rig.version == 2
    assert rig.told[-1][1] == {one.session_id, three.session_id}
    rig.play(one)
    assert rig.version == 2, "it is waited for"
    rig.parts.sessions.close(three, [])
    rig.turn()
    assert len(rig.spoiled) == 1


def test_a_run_without_actors_waits() -> None:
    """Without actors the round ends with what arrived, and the next one waits for an actor."""
    rig, one, two = begun()
    for session in (one, two):
        rig.parts.sessions.close(session, [])
    rig.turn()
    assert (rig.version, len(rig.told), rig.holds[-1]) == (0, 1, True)
    late = rig.join("late")
    rig.turn()
    assert rig.told[-1][1] == {late.session_id}
    assert rig.holds[-1] is False


def test_steps_of_strangers_have_a_fate() -> None:
    """Steps of actors outside the round are dropped and counted."""
    rig, one, two = begun()
    rig.parts.sessions.close(two, [])
    stranger = rig.join("stranger")
    rig.send(stranger, 5, ends=False)
    rig.play(one)
    books = rig.parts.ledger.books(NAME)
    assert dict(books.dropped) == {"lockstep": 5}
    assert (books.trained, books.queued) == (4, 0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"base_version": 9}, "another version"), ({"discarded": {"env_error": 3}}, "environments of actor 0 failed")],
)
def test_what_another_run_would_not_repeat_spoils_it(changes: dict[str, Any], reason: str) -> None:
    """Steps of another version, and failed environments, mark the run; the steps are trained."""
    rig, one, two = begun()
    rig.send(one, **changes)
    rig.send(two)
    rig.turn()
    assert rig.version == 1
    (told,) = rig.spoiled
    assert reason in told


def test_a_restart_goes_on_from_the_checkpoint() -> None:
    """After a restart rounds continue from the checkpoint with its seeds."""
    rig, one, two = begun()
    for _ in range(2):
        rig.play(one, two)
    state = rig.lockstep.state_dict()
    again = Rig()
    again.lockstep.load_state_dict(state)
    again.join("one")
    again.join("two")
    again.turn()
    assert (again.order.lockstep_round, again.order.lockstep_checkpoint) == (3, 2)
    assert again.order.reset == policy_pb2.RESET_MODE_NOW
    assert again.saved == []
    assert again.lockstep.is_boundary


def test_a_run_that_began_without_it_is_not_reproducible() -> None:
    """A run state from free training marks the run as unrepeatable."""
    rig = Rig()
    rig.lockstep.load_state_dict({})
    assert not rig.lockstep.view().is_reproducible
    with pytest.raises(KeyError):
        rig.lockstep.load_state_dict({"round": 3})


def test_a_round_that_does_not_fit_the_queue_is_refused() -> None:
    """A round that exceeds the queue is refused with the settings to raise."""
    rig = Rig(quota_steps=10**6, rollcast={"queue_bytes": 2**22, "max_chunk_bytes": 2**20, "target_chunk_bytes": 2**18})
    rig.join("one")
    rig.join("two")
    with pytest.raises(UserError, match="queue_bytes") as caught:
        rig.turn()
    assert caught.value.exit_code is ExitCode.RUN_FILE


def test_a_round_that_turns_out_too_large_is_refused() -> None:
    """A round whose chunks turn out too large for the queue ends the run if one actor alone makes them."""
    rig, one, two = begun()
    (behavior,) = rig.parts.behaviors.all()
    rig.play(one)
    rig.parts.sessions.close(two, ())
    assert not behavior.queue.has_room(10**12, one.actor_index)
    with pytest.raises(UserError, match="queue_bytes"):
        rig.turn()


def test_an_actor_that_fills_the_queue_is_left_out() -> None:
    """The actor that takes most of a full queue is left out with a warning, and the others go on without it."""
    rig, one, two = begun()
    (behavior,) = rig.parts.behaviors.all()
    for _ in range(5):  # five chunks of few bytes that unpack to a quarter of the queue each
        fits = behavior.queue.has_room(behavior.queue.capacity_bytes // 4, two.actor_index)
        if fits:
            rig.send(two, 1, ends=False, resident_bytes=behavior.queue.capacity_bytes // 4)
    assert not fits
    rig.send(one)
    line = left_out(rig)
    assert (line["actor"], line["reason"]) == ("two", "too_large")
    assert rig.version == 1, "the round ended without it"
    assert rig.lockstep.view().left_out == {"late": 0, "too_large": 1}
    assert rig.spoiled
    rig.send(two, 4, ends=False)
    rig.play(one)
    assert rig.version == 2
    assert rig.told[-1][1] == {one.session_id}
    books = rig.parts.ledger.books(NAME)
    assert books.balanced
    assert books.dropped["lockstep"] == 8


def test_more_agents_than_declared_count_from_the_next_round_on() -> None:
    """An actor that raises its agents in a round gets its part of the next one by their new number."""
    rig = Rig(quota_steps=None)
    one, two = rig.join("one"), rig.join("two")
    rig.turn()
    assert rig.order.lockstep_quota_steps == 5, "2 agents, and buffer_size is 10"
    one.accounts[0].agents = 3  # as its chunks say
    rig.send(one, 15)
    rig.send(two, 5)
    rig.turn()
    assert (rig.version, rig.order.lockstep_quota_steps) == (1, 3), "4 agents"
    assert rig.told[-1][1] == {one.session_id, two.session_id}
    assert rig.spoiled == []


def test_announced_agents_without_steps_do_not_shorten_rounds() -> None:
    """An actor that announces very many agents gets one short round, and is left out; the others' rounds are whole again."""
    rig = Rig(quota_steps=None)
    one, two = rig.join("one"), rig.join("two")
    rig.turn()
    two.accounts[0].agents = 2**10
    rig.send(one, 5)
    rig.send(two, 5)
    rig.turn()
    assert rig.order.lockstep_quota_steps == 1
    rig.send(one, 1)
    rig.send(two, 1)
    line = left_out(rig)
    assert (line["actor"], line["reason"]) == ("two", "too_large")
    assert "1024 agents" in line["why"]
    assert rig.order.lockstep_quota_steps == 10
    assert rig.told[-1][1] == {one.session_id}


def test_agents_for_which_no_round_has_room_do_not_end_the_run() -> None:
    """If a raised number of agents makes a round too large for the queue, its actor is left out."""
    rig, one, two = begun()
    two.accounts[0].agents = 2**30
    rig.send(one)
    rig.send(two)
    line = left_out(rig)
    assert (line["actor"], line["reason"], line["round"]) == ("two", "too_large", 2)
    assert rig.version == 1, "its steps of the round were trained"
    assert rig.told[-1][1] == {one.session_id}


def test_an_actor_that_never_ends_its_round_is_left_out() -> None:
    """After others waited for the setting's time, rounds go on without it, until it opens another session."""
    now = [0.0]
    rig = Rig(max_wait_seconds=25, clock=lambda: now[0])
    one, two = rig.join("one"), rig.join("two")
    rig.turn()
    rig.send(two, 2, ends=False)
    for _ in range(10):  # none has ended its round: both may be slow
        now[0] += 10
        rig.turn()
    rig.play(one)
    now[0] += 3600  # a pause, in which there are no turns, counts as one long turn
    rig.turn()
    now[0] += 10
    rig.turn()
    assert (rig.version, rig.spoiled) == (0, [])
    now[0] += 10
    line = left_out(rig)
    assert (line["actor"], line["reason"], line["round"]) == ("two", "late", 1)
    assert rig.version == 1
    assert rig.lockstep.view().left_out == {"late": 1, "too_large": 0}
    assert rig.told[-1][1] == {one.session_id}

    rig.parts.sessions.close(two, ())
    again = rig.join("two")
    rig.play(one)
    assert rig.told[-1][1] == {one.session_id, again.session_id}


def test_no_round_begins_at_the_end() -> None:
    """At the end of a run no round starts, and the trained round counts."""
    rig, one, two = begun()
    for session in (one, two):
        rig.send(session)
    rig.turn(is_ending=True)
    assert rig.version == 1
    assert len(rig.told) == 1
    assert rig.lockstep.view().round == 1


def test_the_round_that_ends_training_is_no_checkpoint() -> None:
    """The round that reaches max_steps is no checkpoint, because its steps are not trained."""
    rig, one, two = begun(checkpoint_updates=1)
    rig.play(one, two)
    assert rig.saved == [0, 1]
    rig.send(one)
    rig.send(two)
    rig.receive()
    rig.lockstep.before_turn(rig.trainers)
    rig.queue.close()
    rig.turned()
    assert rig.saved == [0, 1]
    assert not rig.lockstep.is_boundary
    assert len(rig.told) == 2, "there is nothing to train any more"
