"""Writes the outgoing side of an upload stream: progress, credit, holds, drain."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from rollcast.enums import HoldReason
from rollcast.history import History, session_name
from rollcast.v1 import trajectory_pb2

from learner.service.ingest.behaviors import Behavior, BehaviorTable
from learner.service.ingest.grants import CreditAllocator, Grant
from learner.service.ingest.session import ActorSession
from learner.service.ingest.validate import Rejected


class HoldBoard:
    """Tracks the active holds. A behavior is stepped while it has none."""

    def __init__(self) -> None:
        self._run_holds: set[HoldReason] = set()

    def set(self, reason: HoldReason, *, active: bool) -> None:
        """Begins or ends a hold of the whole run."""
        if active:
            self._run_holds.add(reason)
        else:
            self._run_holds.discard(reason)

    def active(self, behavior: Behavior) -> dict[HoldReason, int]:
        """Returns the holds of a behavior by reason, each with the version that ends it, or 0."""
        holds = dict.fromkeys(sorted(self._run_holds), 0)
        pace = behavior.queue.pace
        if pace.hold is not None and behavior.training:
            holds[pace.hold] = pace.until_version
        return holds


def hold_message(behavior_index: int, reason: HoldReason, until_version: int, *, active: bool) -> trajectory_pb2.Hold:
    """Encodes a hold."""
    return trajectory_pb2.Hold(
        behavior_index=behavior_index,
        reason=trajectory_pb2.HoldReason.ValueType(reason),
        active=active,
        until_version=until_version if active else 0,
    )


MAX_REJECTIONS = 256
"""Most rejections in one ack; the ledger counts all. Acks are so frequent that only a hostile actor exceeds this."""

_HoldState = dict[tuple[int, HoldReason], int]


class UploadStream:
    """Writes the outgoing side of one upload. For the event loop alone.

    Nothing is queued: each message is built from the state at the moment of writing, so that a slow reader gets one ack
    for many chunks and never an outdated hold.

    Args:
        session: The session.
        behaviors: The declared behaviors.
        credit: Grants credit.
        holds: The active holds.
        epoch: Epoch with which the actor opened the stream.
        history: Records acks; None without a history.

    Attributes:
        is_over: True once the stream has ended and later messages do not count.
        error: Error that ends the stream; None if it ends normally.
    """

    def __init__(
        self,
        session: ActorSession,
        behaviors: BehaviorTable,
        credit: CreditAllocator,
        holds: HoldBoard,
        *,
        epoch: int,
        history: History | None = None,
    ) -> None:
        self.session = session
        self.epoch = epoch
        self._history = history
        self._behaviors = behaviors
        self._credit = credit
        self._holds = holds
        self._changed = asyncio.Event()
        self._rejections: list[trajectory_pb2.Rejection] = []
        self._sent_grants: dict[int, Grant] = {}
        self._sent_holds: _HoldState = {}
        self._is_ack_due = False
        self._is_credit_due = False
        self._drain: trajectory_pb2.Drain | None = None
        self.is_over = False
        self._is_muted = False
        self.error: Exception | None = None

    async def changed(self) -> None:
        """Waits until there may be something to send."""
        await self._changed.wait()
        self._changed.clear()

    def settled(self, rejected: Rejected | None) -> None:
        """Records that a chunk was settled, for the next ack."""
        if rejected is not None and len(self._rejections) < MAX_REJECTIONS:
            self._rejections.append(
                trajectory_pb2.Rejection(
                    sequence=rejected.chunk.sequence,
                    behavior_index=rejected.chunk.behavior_index,
                    reason=rejected.reason,
                    steps=rejected.steps,
                    detail=rejected.detail,
                )
            )
        self._is_ack_due = True
        self._changed.set()

    def offer_credit(self) -> None:
        """Sends available credit after a declaration or a report."""
        self._is_credit_due = True
        self._changed.set()

    def pace_changed(self, behavior_indices: Collection[int]) -> None:
        """Checks whether a trainer's new pace needs a message."""
        for index in behavior_indices:
            account = self.session.accounts.get(index)
            if account is None:
                continue
            if self._credit.is_worth_sending(self.session, account):
                self._is_credit_due = True
                self._changed.set()
        if self._desired_holds() != self._sent_holds:
            self._changed.set()

    def drain(self, message: trajectory_pb2.Drain) -> None:
        """Tells the actor that the learner is about to stop."""
        self._drain = message
        self._changed.set()

    def end(self, error: Exception | None = None, *, flush: bool = False) -> None:
        """Ends the stream.

        Args:
            error: Status of the stream; None if it ends normally.
            flush: Whether to send due acks first. False if the session already belongs to another stream.
        """
        if not self.is_over:
            self.is_over, self.error, self._is_muted = True, error, not flush
            self._changed.set()

    def opened(self) -> bytes:
        """Returns the first message, serialized."""
        self._note_ack(self.session.acked_through)
        self._sent_holds = self._desired_holds()
        message = trajectory_pb2.UploadOpened(
            next_sequence=self.session.next_sequence,
            credit=self._new_credit(),
            holds=[hold_message(index, why, until, active=True) for (index, why), until in self._sent_holds.items()],
        )
        return trajectory_pb2.UploadResponse(opened=message).SerializeToString()

    def responses(self) -> list[bytes]:
        """Returns the messages to send now, serialized; empty if there are none."""
        if self._is_muted:
            return []
        # Holds first: a new quota must not be used before the hold that came with it.
        messages = [trajectory_pb2.UploadResponse(hold=hold) for hold in self._hold_changes()]
        if self._is_ack_due or self._is_credit_due:
            credit = self._new_credit()
            if self._is_ack_due or credit:
                rejections, self._rejections = self._rejections, []
                self._note_ack(self.session.acked_through)
                ack = trajectory_pb2.Ack(acked_through=self.session.acked_through, credit=credit, rejections=rejections)
                messages.append(trajectory_pb2.UploadResponse(ack=ack))
            self._is_ack_due = self._is_credit_due = False
        if self._drain is not None:
            messages.append(trajectory_pb2.UploadResponse(drain=self._drain))
            self._drain = None
        return [message.SerializeToString() for message in messages]

    def _note_ack(self, through: int) -> None:
        """Records an ack that is about to be sent."""
        if self._history is not None:
            name = session_name(self.session.session_id)
            self._history.write("ack_out", session=name, epoch=self.epoch, through=through)

    def _new_credit(self) -> list[trajectory_pb2.Credit]:
        """Grants available credit and returns the part that the actor has not received yet."""
        news: list[trajectory_pb2.Credit] = []
        for account in self.session.accounts.values():
            granted = self._credit.grant(self.session, account)
            if granted is None or self._sent_grants.get(account.index) == granted:
                continue
            self._sent_grants[account.index] = granted
            news.append(
                trajectory_pb2.Credit(
                    behavior_index=granted.behavior_index,
                    steps_through=granted.steps_through,
                    bytes_through=granted.bytes_through,
                    quota_through=granted.quota_through,
                )
            )
        return news

    def _desired_holds(self) -> _HoldState:
        desired: _HoldState = {}
        for index in self.session.accounts:
            behavior = self._behaviors.by_index(index)
            if behavior is not None:
                desired.update({(index, why): until for why, until in self._holds.active(behavior).items()})
        return desired

    def _hold_changes(self) -> list[trajectory_pb2.Hold]:
        desired, sent = self._desired_holds(), self._sent_holds
        self._sent_holds = desired
        ended = [hold_message(index, why, 0, active=False) for index, why in sent if (index, why) not in desired]
        begun = [
            hold_message(index, why, until, active=True)
            for (index, why), until in desired.items()
            if sent.get((index, why)) != until
        ]
        return ended + begun
