"""The books, the sessions and the behaviors of one moment, for a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from learner.ingest.behaviors import BehaviorTable
from learner.ingest.ledger import Ledger
from learner.ingest.sessions import SessionTable


def snapshot(behaviors: BehaviorTable, sessions: SessionTable, ledger: Ledger) -> dict[str, Any]:
    """Returns the state of all three as plain values, taken between two chunks: for no step do they disagree."""
    with ledger.lock:
        return {"behaviors": behaviors.state(), "ledger": ledger.state(), "sessions": sessions.state()}


def restore(state: Mapping[str, Any], behaviors: BehaviorTable, sessions: SessionTable, ledger: Ledger) -> None:
    """Goes on from a snapshot, before the service starts.

    Raises:
        UserError: the run file no longer has one of the behaviors.
        LedgerError: the saved books do not balance.
        KeyError: the snapshot is incomplete.
    """
    with ledger.lock:
        behaviors.load(state["behaviors"])
        ledger.load(state["ledger"])
        sessions.load(state["sessions"])
