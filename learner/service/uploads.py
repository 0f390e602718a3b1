"""The outgoing side of an upload stream: progress, credit, holds, farewell."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from rollcast.enums import HoldReason
from rollcast.v1 import trajectory_pb2

from learner.ingest.behaviors import Behavior, BehaviorTable
from learner.ingest.grants import CreditAllocator, Grant
from learner.ingest.session import ActorSession
from learner.ingest.validate import Rejected


class HoldBoard:
    """The holds that are active. A behavior is stepped while there is none."""

    def __init__(self) -> None:
        self._run_holds: set[HoldReason] = set()

    def set(self, reason: HoldReason, *, active: bool) -> None:
        """Begins or ends a hold of the whole run."""
        if active:
            self._run_holds.add(reason)
        else:
            self._run_holds.discard(reason)

    def active(self, behavior: Behavior) -> dict[HoldReason, int]:
        """Returns the holds of a behavior: for each reason the version that ends it, or 0."""
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
"""In one ack. Beyond, only the books tell; acks come so often that this takes a hostile actor."""

_HoldState = dict[tuple[int, HoldReason], int]


class UploadStream:
    """The outgoing side of one upload. For the event loop alone.

    Nothing is queued: each message is made of the state at the moment of writing, so that a slow reader gets one ack
    for many chunks, and never an outdated hold.

    Attributes:
        is_over: True once it was ended: nothing that arrives counts any more.
        error: what it ends with; None for a good end.
    """

    def __init__(
        self, session: ActorSession, behaviors: BehaviorTable, credit: CreditAllocator, holds: HoldBoard
    ) -> None:
        self.session = session
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
        """Waits until there may be something to say."""
        await self._changed.wait()
        self._changed.clear()

    def settled(self, rejected: Rejected | None) -> None:
        """Notes that a chunk was settled; the next ack says so."""
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
        """Sends whatever credit there is: after a declaration or a report."""
        self._is_credit_due = True
        self._changed.set()

    def pace_changed(self, behavior_indices: Collection[int]) -> None:
        """Looks whether a trainer's new pace is worth a message."""
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
        """Says that the learner is about to stop."""
        self._drain = message
        self._changed.set()

    def end(self, error: Exception | None = None, *, flush: bool = False) -> None:
        """Ends the stream.

        Args:
            error: its status; None for a good end.
            flush: send the acks that are due first. False if the session belongs to somebody else by now.
        """
        if not self.is_over:
            self.is_over, self.error, self._is_muted = True, error, not flush
            self._changed.set()

    def opened(self) -> bytes:
        """Returns the first message, serialized."""
        self._sent_holds = self._desired_holds()
        message = trajectory_pb2.UploadOpened(
            next_sequence=self.session.next_sequence,
            credit=self._new_credit(),
            holds=[hold_message(index, why, until, active=True) for (index, why), until in self._sent_holds.items()],
        )
        return trajectory_pb2.UploadResponse(opened=message).SerializeToString()

    def responses(self) -> list[bytes]:
        """Returns what is to be said now, serialized; empty if nothing is."""
        if self._is_muted:
            return []
        messages: list[trajectory_pb2.UploadResponse] = []
        if self._is_ack_due or self._is_credit_due:
            credit = self._new_credit()
            if self._is_ack_due or credit:
                rejections, self._rejections = self._rejections, []
                ack = trajectory_pb2.Ack(acked_through=self.session.acked_through, credit=credit, rejections=rejections)
                messages.append(trajectory_pb2.UploadResponse(ack=ack))
            self._is_ack_due = self._is_credit_due = False
        messages.extend(trajectory_pb2.UploadResponse(hold=hold) for hold in self._hold_changes())
        if self._drain is not None:
            messages.append(trajectory_pb2.UploadResponse(drain=self._drain))
            self._drain = None
        return [message.SerializeToString() for message in messages]

    def _new_credit(self) -> list[trajectory_pb2.Credit]:
        """Grants what there is and returns what the actor has not heard yet."""
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
