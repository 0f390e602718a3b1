"""Which actors can play."""

from __future__ import annotations

from collections.abc import Collection

from learner.evaluation.examination import Candidate
from learner.ingest.sessions import SessionTable


def players(sessions: SessionTable, behaviors: Collection[str]) -> list[Candidate]:
    """Returns the connected actors that have any of some behaviors, by their index.

    Args:
        sessions: who takes part.
        behaviors: names, without teams.
    """
    with sessions.lock:
        live = sorted(sessions.live(), key=lambda session: session.actor_index)
        found = [
            Candidate(
                session.session_id,
                frozenset(
                    (account.behavior, team)
                    for account in session.accounts.values()
                    if account.behavior in behaviors
                    for team in account.teams
                ),
            )
            for session in live
            if session.is_connected
        ]
    return [candidate for candidate in found if candidate.behavior_ids]
