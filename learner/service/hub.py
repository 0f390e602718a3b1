"""Where the streams of all sessions meet the news: pace, holds, policies, declarations, the end of a session."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from rollcast.enums import HoldReason
from rollcast.errors import Draining, StreamSuperseded
from rollcast.v1 import policy_pb2, trajectory_pb2

from learner.ingest.behaviors import Behavior, BehaviorTable
from learner.ingest.grants import CreditAllocator
from learner.ingest.session import ActorSession
from learner.ingest.sessions import SessionTable
from learner.ingest.wakeup import Wakeup
from learner.link.commands import Assign, Command, EndEvaluation, SetHold, StartEvaluation
from learner.link.evaluation import Order
from learner.observe.metrics.behaviors import HoldClock
from learner.publish.broadcast import ASSIGNMENT, Broadcast, Subscription
from learner.service.assignments import Assignments
from learner.service.uploads import HoldBoard, UploadStream

DRAIN_RETRY_SECONDS = 1.0
RUN = ""
"""Who holds, in the metrics, if it is not a behavior."""


class Hub:
    """Keeps one upload stream and one subscription a session, and tells them what changed. For the event loop alone.

    Attributes:
        is_draining: True once the learner is about to stop: nobody is admitted any more.
    """

    def __init__(
        self,
        behaviors: BehaviorTable,
        sessions: SessionTable,
        broadcast: Broadcast,
        wakeups: Iterable[Wakeup],
        clock: HoldClock,
        *,
        task: policy_pb2.BehaviorAssignment | None = None,
    ) -> None:
        self.is_draining = False
        self._behaviors = behaviors
        self._sessions = sessions
        self._broadcast = broadcast
        self._wakeups = tuple(dict.fromkeys(wakeups))
        self._credit = CreditAllocator(behaviors)
        self._holds = HoldBoard()
        self._clock = clock
        self._assignments = Assignments(task)
        self._uploads: dict[str, UploadStream] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._room = asyncio.Event()
        self._left = asyncio.Event()

    @property
    def wakeups(self) -> tuple[Wakeup, ...]:
        """What `wake` is to be called for."""
        return self._wakeups

    @property
    def connected(self) -> int:
        """How many uploads are open."""
        return len(self._uploads)

    def wake(self) -> None:
        """Looks for what trainers changed: called by the event loop as soon as one of the wakeups is set."""
        for wakeup in self._wakeups:
            wakeup.clear()
        self._broadcast.refresh()
        changed = [behavior.index for behavior in self._behaviors.all() if behavior.queue.take_dirty()]
        if changed:
            for stream in self._uploads.values():
                stream.pace_changed(changed)
            self._room.set()
            self._room = asyncio.Event()

    async def room(self) -> None:
        """Waits until a trainer has taken something from a queue."""
        await self._room.wait()

    def check_admission(self) -> None:
        """Refuses new sessions and streams while the learner is about to stop.

        Raises:
            Draining: it is.
        """
        if self.is_draining:
            raise Draining("the learner is about to stop: come back later", retry_after_seconds=DRAIN_RETRY_SECONDS)

    def attach(self, session: ActorSession) -> UploadStream:
        """Begins the upload of a session; an older stream of it ends as superseded."""
        older = self._uploads.get(session.session_id)
        if older is not None:
            older.end(_superseded("upload", session))
        stream = UploadStream(session, self._behaviors, self._credit, self._holds)
        self._uploads[session.session_id] = stream
        session.is_connected = session.had_stream = True
        return stream

    def detach(self, stream: UploadStream) -> None:
        """Forgets an upload that has ended."""
        session = stream.session
        if self._uploads.get(session.session_id) is stream:
            del self._uploads[session.session_id]
            session.is_connected = False
            self._left.set()

    def subscribe(self, session: ActorSession, held: dict[int, tuple[int, int]]) -> Subscription:
        """Begins the subscription of a session; an older one of it ends as superseded."""
        older = self._subscriptions.get(session.session_id)
        if older is not None:
            older.end(_superseded("subscription", session))
        subscription = self._broadcast.subscribe(session.accounts, held)
        self._subscriptions[session.session_id] = subscription
        self._tell(session, self._assignments.for_session(session))
        return subscription

    def unsubscribe(self, session: ActorSession, subscription: Subscription) -> None:
        """Forgets a subscription that has ended."""
        self._broadcast.unsubscribe(subscription)
        if self._subscriptions.get(session.session_id) is subscription:
            del self._subscriptions[session.session_id]

    def declared(self, session: ActorSession, behavior: Behavior) -> None:
        """Brings a session what there is of a behavior that it declared: its policy, credit and holds."""
        subscription = self._subscriptions.get(session.session_id)
        if subscription is not None:
            self._broadcast.add_behavior(subscription, behavior.index)
        if self._assignments.has_task:
            self._tell(session, self._assignments.renewed(session))
        self.reported(session)

    def reported(self, session: ActorSession) -> None:
        """Brings a session the credit that its report brought about."""
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
        """Ends both streams of a session that is over, and gives its credit back to the others."""
        self.end_streams(session, error)
        self._credit.forget(session)
        self._assignments.forget(session.session_id)
        self._left.set()

    def carry_out(self, command: Command) -> None:
        """Does what the run asks of actors."""
        match command:
            case SetHold(reason, active):
                self.set_hold(reason, active=active)
            case Assign(assignment, players):
                self.assign(assignment, players)
            case StartEvaluation(order):
                self.order(order)
            case EndEvaluation(session_id):
                self.release(session_id)

    def set_hold(self, reason: HoldReason, *, active: bool) -> None:
        """Begins or ends a hold of the whole run."""
        self._holds.set(reason, active=active)
        self._clock.set(reason, RUN, active=active)
        for stream in self._uploads.values():
            stream.pace_changed(())

    def opening_assignment(self, session: ActorSession, *, resumed: bool) -> policy_pb2.Assignment | None:
        """Returns what an actor is told when it opens its session, so that it knows before its first step.

        Args:
            session: its session. One that was ordered something goes on with that, and not with what came for all since.
            resumed: its session goes on: it may have missed that environments shall begin anew. Those of another one
                have just begun.
        """
        return self._assignments.opening(session.session_id, resumed=resumed)

    def assign(self, assignment: policy_pb2.Assignment, players: frozenset[str] | None = None) -> None:
        """Replaces what actors are asked to do; its id is given here.

        Args:
            assignment: what is asked for.
            players: sessions that play the round of lock-step which it begins; None for all.
        """
        self._assignments.replace(assignment, players)
        for session in self._sessions.live():
            self._tell(session, self._assignments.renewed(session))

    def order(self, order: Order) -> None:
        """Orders an evaluation of one actor. The steps that it may still take are for the others meanwhile."""
        session = self._live(order.session_id)
        if session is not None:
            self._credit.suspend(session)
            self._offer(session)
            self._tell(session, self._assignments.order(session, order))

    def release(self, session_id: str) -> None:
        """Lets an actor go back to what everybody does."""
        session = self._live(session_id)
        if session is not None and self._assignments.is_playing(session_id):
            self._credit.resume(session)
            self._offer(session)
            self._tell(session, self._assignments.release(session))

    def _offer(self, session: ActorSession) -> None:
        """Looks anew at everybody's credit with the behaviors of a session."""
        for stream in self._uploads.values():
            stream.pace_changed(list(session.accounts))

    def _live(self, session_id: str) -> ActorSession | None:
        return next((each for each in self._sessions.live() if each.session_id == session_id), None)

    def _tell(self, session: ActorSession, assignment: bytes | None) -> None:
        subscription = self._subscriptions.get(session.session_id)
        if subscription is not None and assignment is not None:
            subscription.put(ASSIGNMENT, (assignment,))

    def drain(self, message: trajectory_pb2.Drain) -> None:
        """Admits nobody any more and says farewell on all uploads."""
        self.is_draining = True
        self._credit.is_closed = True
        self._clock.set(HoldReason.DRAINING, RUN, active=True)
        for stream in self._uploads.values():
            stream.drain(message)

    def end_all(self, error: Exception) -> None:
        """Ends all streams."""
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
        f"a newer {what} of session {session.session_id} replaced this one: use one at a time",
        metadata={"session_id": session.session_id},
    )
