"""Saves and restores the books of the service: behaviors, ledger and sessions, taken at one moment."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from rollcast.history import digest_of_books

from learner.service.ingest.behaviors import BehaviorTable
from learner.service.ingest.ledger import Ledger
from learner.service.ingest.sessions import SessionTable


def snapshot(behaviors: BehaviorTable, sessions: SessionTable, ledger: Ledger) -> dict[str, Any]:
    """Returns the state of all three as plain values, taken between two chunks, so that they agree on every step."""
    with ledger.lock:
        found = {"behaviors": behaviors.state_dict(), "ledger": ledger.state_dict(), "sessions": sessions.state_dict()}
        if ledger.history is not None:
            digest = digest_of_books(found["ledger"], found["sessions"])
            ledger.history.write("cut", digest=digest, books=found["ledger"])
        return found


def restore(
    state: Mapping[str, Any],
    behaviors: BehaviorTable,
    sessions: SessionTable,
    ledger: Ledger,
    trainers: Collection[str] | None = None,
) -> None:
    """Restores from a snapshot before the service starts.

    Args:
        state: Return value of `snapshot`.
        behaviors: An empty table of behaviors.
        sessions: An empty table of sessions.
        ledger: An empty ledger.
        trainers: Names of the trainers with a saved state; None skips the check.

    Raises:
        UserError: The run file no longer has one of the behaviors.
        LedgerError: The saved books do not balance.
        KeyError: The snapshot is incomplete.
        ValueError: Steps were trained, but their trainer's state or declaration is missing, so training would start
            over.
    """
    with ledger.lock:
        behaviors.load_state_dict(state["behaviors"])
        ledger.load_state_dict(state["ledger"])
        sessions.load_state_dict(state["sessions"])
    for name in ledger.behaviors() if trainers is not None else ():
        trained = ledger.books(name).trained
        missing = (
            "trainer" if name not in (trainers or ()) else "declaration" if behaviors.by_name(name) is None else ""
        )
        if trained and missing:
            raise ValueError(f"{trained} steps of {name} were trained, but its {missing} is missing")
