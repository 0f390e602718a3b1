"""Which holds keep a behavior from being stepped: those of its trainer's pace, and those of the whole run."""

from __future__ import annotations

from rollcast.enums import HoldReason
from rollcast.v1 import trajectory_pb2

from learner.ingest.behaviors import Behavior


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
