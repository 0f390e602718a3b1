"""Connects the streams of all sessions with the trainers: pace, holds, policies, declarations, the end of a session."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

import structlog
from rollcast.enums import HoldReason
from rollcast.errors import Draining, StreamSuperseded
from rollcast.text import in_one_line
from rollcast.v1 import policy_pb2, trajectory_pb2

from learner.link.channel import Link
from learner.link.control import Closed, Ending, Failed, Finished, Stopped
from learner.link.matches import Match
from learner.link.to_front import (
    Assign,
    Cut,
    Done,
    EndEvaluation,
    Policy,
    Release,
    SetHold,
    Settled,
    StartMatch,
    Stats,
    ToFront,
)
from learner.link.to_trainers import Actors, Books
from learner.service.calls.assignments import Assignments
from learner.service.calls.uploads import HoldBoard, UploadStream
from learner.service.ingest.behaviors import Behavior, BehaviorTable
from learner.service.ingest.grants import CreditAllocator
from learner.service.ingest.quotas import Quotas
from learner.service.ingest.session import Account, ActorSession
from learner.service.ingest.session_ids import short_id
from learner.service.ingest.sessions import SessionTable
from learner.service.metrics.behaviors import HoldClock
from learner.service.policies.broadcast import ASSIGNMENT, Broadcast, Subscription
from learner.service.policies.store import PolicyStore
from learner.shared.exits import ExitCode

_log = structlog.get_logger(__name__)

DRAIN_RETRY_SECONDS = 1.0
RUN = ""
"""Label in the metrics of a hold of the whole run."""
EVERY_SECONDS: Final = 0.05
"""Shortest time between two messages; each lists all actors, and a thousand may join within a second."""
REST: Final = 10.0
"""A pass is followed by this many times its duration without one."""


class StatusKeeper(Protocol):
    """Stores the trainers' statistics."""

    def take_stats(self, stats: Stats) -> None:
        """Stores the trainers' statistics."""

    def state_dict(self) -> dict[str, Any]:
        """Returns the checkpoint state."""


class SessionRouter:
    """Keeps one upload stream and one subscription per session, and notifies them of changes. For the event loop alone.

    Args:
        behaviors: Behaviors that can be declared; the trainers' results are booked there.
        sessions: Sessions of the actors.
        broadcast: Sends policies to subscriptions.
        link: Link to the trainers.
        clock: Measures holds.
        store: Stores the policies that trainers send.
        take_stats: Called with the trainers' statistics.
        snapshot: Returns the ledger for a checkpoint, as plain values.
        on_end: Called when the run must end: the trainers request it, or one of their messages is invalid.
        task: Returns what all actors do unless they have an order; None lets them learn.

    Attributes:
        is_draining: True once the learner is about to stop and admits no actors.
        presence: Tells the trainers which actors are present.
        assignments: What actors do besides learning with the newest policy.
    """

    def __init__(
        self,
        behaviors: BehaviorTable,
        sessions: SessionTable,
        broadcast: Broadcast,
        link: Link,
        clock: HoldClock,
        *,
        store: PolicyStore,
        take_stats: Callable[[Stats], object],
        snapshot: Callable[[], Mapping[str, Any]],
        on_end: Callable[[Ending], object],
        task: policy_pb2.BehaviorAssignment | None = None,
    ) -> None:
        self.is_draining = self._has_failed = False
        self._behaviors = behaviors
        self._sessions = sessions
        self._store = store
        self._broadcast = broadcast
        in_rounds = behaviors.service.lockstep is not None
        self.presence = Presence(sessions, link.to_trainers.send, at_once=in_rounds)
        self._link = link
        self._take_stats = take_stats
        self._snapshot = snapshot
        self._on_end = on_end
        self._credit = CreditAllocator(behaviors)
        self._quotas = Quotas(behaviors)
        self._holds = HoldBoard()
        self._clock = clock
        self.assignments = Assignments(task, plays_matches=behaviors.plays_matches)
        self._uploads: dict[str, UploadStream] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._room = asyncio.Event()
        self._left = asyncio.Event()
        self._pass = PacedPass(self._look_at_all)

    @property
    def connected(self) -> int:
        """Number of open uploads."""
        return len(self._uploads)

    def wake(self) -> None:
        """Carries out the trainers' messages in order, and sends new policies."""
        changed: set[int] = set()
        for message in self._link.to_front.receive():
            try:
                self._carry_out(message, changed)
            except Exception as error:  # noqa: BLE001 - told; a fault of ours
                self._fail(error)
        try:
            self._bring(changed)
        except Exception as error:  # noqa: BLE001 - told; a fault of ours
            self._fail(error)
        if changed:
            self._room.set()
            self._room = asyncio.Event()

    def _fail(self, error: Exception) -> None:
        """Ends the run because a message of the trainers could not be carried out, so the ledger is unreliable."""
        self._has_failed = True
        told = in_one_line(error)
        _log.error("service_failed", error=told, exc_info=error)
        self._on_end(Failed(ExitCode.TRAINER_FAILED, f"the service failed: {told}; the traceback is in the log"))

    def _bring(self, changed: set[int]) -> None:
        """Sends new policies to the streams, and the pace of behaviors whose pace has changed."""
        self._broadcast.refresh()
        self._note_updates()
        self._renew_quotas(changed)
        if changed:
            self._pass.request(changed)

    def _look_at_all(self, behavior_indices: set[int]) -> None:
        """Sends every stream the pace and the credit that changed."""
        for stream in self._uploads.values():
            stream.pace_changed(behavior_indices)

    def _carry_out(self, message: ToFront, changed: set[int]) -> None:
        match message:
            case Settled():
                self._behaviors.settle(message)
                changed.add(message.behavior)
            case Stats():
                self._take_stats(message)
            case Done():
                self._behaviors.end_training(message)
                changed.add(message.behavior)
            case Cut(number):
                self._cut(number)
            case Policy(stored, keep):
                self._store.publish(stored, keep=keep)
            case Release(behavior):
                self._store.release(behavior)
            case Finished() | Failed() | Stopped() | Closed():
                self._on_end(message)
            case _:
                self._instruct(message)

    def _instruct(self, message: ToFront) -> None:
        """Carries out what concerns only actors."""
        match message:
            case SetHold(reason, active):
                self.set_hold(reason, active=active)
            case Assign(assignment, players):
                self.assign(assignment, players)
            case EndEvaluation(session_id):
                self.release(session_id)
            case StartMatch(game):
                self.play(game)

    def _cut(self, number: int) -> None:
        if not self._has_failed:  # an unreliable ledger is never written
            self._link.to_trainers.send(Books(number, self._snapshot()))

    def _note_updates(self) -> None:
        """Records the behaviors whose actors wait until an update has produced a new version."""
        for behavior in self._behaviors.all():
            pace = behavior.queue.pace
            newest = self._store.latest(behavior.name)
            version = 0 if newest is None else newest.description.version
            waits = pace.hold is HoldReason.UPDATING and pace.until_version > version
            self._clock.set(HoldReason.UPDATING, behavior.name, active=waits)

    async def room(self) -> None:
        """Waits until a trainer has taken something from a queue."""
        await self._room.wait()

    def check_admission(self) -> None:
        """Refuses new sessions and streams while the learner is about to stop.

        Raises:
            Draining: The learner is about to stop.
        """
        if self.is_draining:
            raise Draining("the learner is stopping: try again later", retry_after_seconds=DRAIN_RETRY_SECONDS)

    def attach(self, session: ActorSession, epoch: int) -> UploadStream:
        """Begins the upload of a session; ends an older one as superseded.

        Args:
            session: The session.
            epoch: Epoch with which the actor opened the stream.
        """
        older = self._uploads.get(session.session_id)
        if older is not None:
            older.end(_superseded("upload", session))
        stream = UploadStream(
            session, self._behaviors, self._credit, self._holds, epoch=epoch, history=self._sessions.history
        )
        self._uploads[session.session_id] = stream
        session.is_connected = session.had_stream = True
        self._renew_quotas(session.accounts)
        self.presence.changed()
        return stream

    def detach(self, stream: UploadStream) -> None:
        """Forgets an upload that has ended."""
        session = stream.session
        if self._uploads.get(session.session_id) is stream:
            del self._uploads[session.session_id]
            session.is_connected = False
            self._quotas.forget(session)
            self._renew_quotas(session.accounts)
            self.presence.changed()
            self._left.set()

    def subscribe(
        self, session: ActorSession, held: dict[int, tuple[int, int]], *, inline_bytes: int = 0
    ) -> Subscription:
        """Begins the subscription of a session; ends an older one as superseded."""
        older = self._subscriptions.get(session.session_id)
        if older is not None:
            older.end(_superseded("subscription", session))
        subscription = self._broadcast.subscribe(session.accounts, held, inline_bytes=inline_bytes)
        self._subscriptions[session.session_id] = subscription
        self._tell(session, self.assignments.for_session(session))
        return subscription

    def unsubscribe(self, session: ActorSession, subscription: Subscription) -> None:
        """Forgets a subscription that has ended."""
        self._broadcast.unsubscribe(subscription)
        if self._subscriptions.get(session.session_id) is subscription:
            del self._subscriptions[session.session_id]

    def declared(self, session: ActorSession, behavior: Behavior) -> None:
        """Sends a session the policy, credit and holds of a behavior that it declared."""
        subscription = self._subscriptions.get(session.session_id)
        if subscription is not None:
            self._broadcast.add_behavior(subscription, behavior.index)
        if self.assignments.has_task or behavior.plays_matches:
            self._tell(session, self.assignments.renewed(session))
        self._settle_role(session, behavior.index)
        self._renew_quotas((behavior.index,))
        self.presence.changed()
        self.reported(session)

    def reported(self, session: ActorSession) -> None:
        """Sends a session the credit that its report freed."""
        self.presence.agents_changed()
        stream = self._uploads.get(session.session_id)
        if stream is not None:
            stream.offer_credit()

    def end_streams(self, session: ActorSession, error: Exception | None) -> None:
        """Ends both streams of a session that was opened again."""
        stream = self._uploads.get(session.session_id)
        if stream is not None:
            stream.end(error)
        subscription = self._subscriptions.get(session.session_id)
        if subscription is not None:
            subscription.end(error)

    def forget(self, session: ActorSession, error: Exception | None) -> None:
        """Ends both streams of a session that has ended, and returns its credit to the others."""
        self.end_streams(session, error)
        self._credit.forget(session)
        self.assignments.forget(session.session_id)
        self.presence.changed()
        self._left.set()

    def set_hold(self, reason: HoldReason, *, active: bool) -> None:
        """Begins or ends a hold of the whole run."""
        self._holds.set(reason, active=active)
        self._clock.set(reason, RUN, active=active)
        for stream in self._uploads.values():
            stream.pace_changed(())

    def assign(self, assignment: policy_pb2.Assignment, players: frozenset[str] | None = None) -> None:
        """Replaces the run's assignment, and gives the new one its id.

        Args:
            assignment: The new assignment.
            players: Sessions that play the lock-step round of the assignment; None for all.
        """
        self.assignments.replace(assignment, players)
        for session in self._sessions.live():
            self._tell(session, self.assignments.renewed(session))

    def release(self, session_id: str) -> None:
        """Returns an actor to the assignment of the run."""
        session = self._live(session_id)
        if session is not None and self.assignments.is_playing(session_id):
            message = self.assignments.release(session)
            for index in session.accounts:
                self._settle_role(session, index)
            self._quotas.forget(session)
            self._renew_quotas(session.accounts)
            self._offer(session)
            self._tell(session, message)

    def play(self, match: Match) -> None:
        """Gives an actor its match. The unused credit of behaviors of which it has only opponents goes to the others.

        During an evaluation so do all of its unused credit and quota.
        """
        session = self._live(match.session_id)
        if session is not None:
            message = self.assignments.play(session, match)
            for index in session.accounts:
                self._settle_role(session, index)
            if match.is_evaluation:
                self._renew_quotas(session.accounts)
            self._offer(session)
            self._tell(session, message)

    def awaits_match(self, behavior: str) -> bool:
        """Returns whether the behavior ids of a behavior act only in matches."""
        return not self.assignments.has_task and self._behaviors.plays_matches(behavior)

    def _settle_role(self, session: ActorSession, behavior_index: int) -> None:
        """Lets a session take part in the credit of a behavior only if it learns, and plays no evaluation."""
        name = session.accounts[behavior_index].behavior
        if self.assignments.is_playing(session.session_id) or (
            self.awaits_match(name) and not self.assignments.learns(session.session_id, name)
        ):
            self._credit.suspend(session, behavior_index)
        else:
            self._credit.resume(session, behavior_index)

    def _offer(self, session: ActorSession) -> None:
        """Re-evaluates the credit of every session that shares a behavior with this one."""
        self._pass.request(session.accounts)

    def received(self, account: Account, *, is_rejected: bool) -> None:
        """Renews the quotas after a chunk that breaks their sum.

        Args:
            account: Account of the chunk.
            is_rejected: Whether its rows were refused.
        """
        quota = account.quota_through
        if is_rejected or quota is None or account.step_share.settled > quota:
            self._renew_quotas((account.index,))

    def tick(self) -> None:
        """Renews the quotas of actors that are late or have given up steps, and tells the trainers which are present.

        Call it every second.
        """
        for behavior in filter(self._quotas.applies, self._behaviors.all()):
            self._offer_quotas(self._quotas.tick(behavior, self._connected, self.assignments.playing))
        self.presence.tick()

    def _renew_quotas(self, behavior_indices: Iterable[int]) -> None:
        for index in behavior_indices:
            behavior = self._behaviors.by_index(index)
            if behavior is not None and self._quotas.applies(behavior):
                self._offer_quotas(self._quotas.assign(behavior, self._connected, self.assignments.playing))

    def _offer_quotas(self, sessions: Iterable[ActorSession]) -> None:
        for session in sessions:
            self._uploads[session.session_id].offer_credit()

    @property
    def _connected(self) -> list[ActorSession]:
        return [stream.session for stream in self._uploads.values()]

    def _live(self, session_id: str) -> ActorSession | None:
        return next((each for each in self._sessions.live() if each.session_id == session_id), None)

    def _tell(self, session: ActorSession, assignment: bytes | None) -> None:
        subscription = self._subscriptions.get(session.session_id)
        if subscription is not None and assignment is not None:
            subscription.put(ASSIGNMENT, (assignment,))

    def drain(self, message: trajectory_pb2.Drain) -> None:
        """Stops admitting actors and says goodbye on all uploads."""
        self.is_draining = True
        self._credit.is_closed = True
        self._clock.set(HoldReason.DRAINING, RUN, active=True)
        for stream in self._uploads.values():
            stream.drain(message)

    def end_all(self, error: Exception) -> None:
        """Ends all streams."""
        self._pass.stop()
        for stream in self._uploads.values():
            stream.end(error, flush=True)
        for subscription in self._subscriptions.values():
            subscription.end(error)

    async def someone_left(self) -> None:
        """Waits until a stream or a session ends."""
        self._left.clear()
        await self._left.wait()


def _superseded(what: str, session: ActorSession) -> StreamSuperseded:
    return StreamSuperseded(
        f"a newer {what} of session {short_id(session.session_id)} replaced this one: open only one at a time",
        metadata={"session": short_id(session.session_id)},
    )


class Presence:
    """Sends `Actors` when sessions begin, change or end, and at each `tick`. For the event loop alone.

    Args:
        sessions: The sessions.
        send: Sends a message to the trainers.
        at_once: Whether the run is in lock-step: every change is sent before anything else, so that no clock decides to
            which round a change belongs.
    """

    def __init__(self, sessions: SessionTable, send: Callable[[Actors], object], *, at_once: bool) -> None:
        self._sessions = sessions
        self._send = send
        self._at_once = at_once
        self._told = Actors()
        self._next_at = -math.inf
        self._due: asyncio.TimerHandle | None = None

    def changed(self) -> None:
        """Records that a session began, changed or ended."""
        if self._at_once:
            self.tick()
        elif self._due is None:
            loop = asyncio.get_running_loop()
            self._due = loop.call_at(max(loop.time(), self._next_at), self._tell)

    def agents_changed(self) -> None:
        """Records that a session has more or fewer agents; sent at the next `tick` unless the run is in lock-step."""
        if self._at_once:
            self.tick()

    def tick(self) -> None:
        """Sends what has changed, including steps taken and numbers of agents; call it every second."""
        actors = self._sessions.actors()
        if actors != self._told:
            self._told = actors
            self._send(actors)

    def stop(self) -> None:
        """Stops sending."""
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _tell(self) -> None:
        loop = asyncio.get_running_loop()
        self._due, began = None, loop.time()
        self.tick()
        self._next_at = began + max(EVERY_SECONDS, REST * (loop.time() - began))


class PacedPass:
    """Runs passes over all sessions: at once if the last one was long enough ago, otherwise one for many requests.

    A trainer reports many times a second, and after each report any session may have more credit. With 300 sessions the
    passes after each report took half of the event loop.

    Args:
        run: Runs a pass for the behaviors that were requested since the last one.
    """

    def __init__(self, run: Callable[[set[int]], object]) -> None:
        self._run = run
        self._requested: set[int] = set()
        self._rests_until = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def request(self, behavior_indices: Iterable[int]) -> None:
        """Requests a pass for some behaviors."""
        self._requested.update(behavior_indices)
        if self._timer is not None:
            return
        wait_seconds = self._rests_until - time.monotonic()
        if wait_seconds > 0:
            self._timer = asyncio.get_running_loop().call_later(wait_seconds, self._begin)
        else:
            self._begin()

    def stop(self) -> None:
        """Drops a pass that waits."""
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self) -> None:
        self._timer = None
        requested, self._requested = self._requested, set()
        began = time.monotonic()
        self._run(requested)
        now = time.monotonic()
        self._rests_until = now + REST * (now - began)
