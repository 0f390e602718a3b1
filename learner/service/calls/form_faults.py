"""Counts faults of form towards the places of their senders, and ends the sessions of places that are shut out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import structlog
from rollcast.errors import Quarantined
from rollcast.text import printable

from learner.service.calls.session_router import SessionRouter
from learner.service.ingest.quarantine import FORM_FAULTS, MAX_FAULTS, Place
from learner.service.ingest.session import ActorSession
from learner.service.ingest.session_ids import short_id
from learner.service.ingest.sessions import SessionTable
from learner.service.metrics.learner import SessionMetrics

_log = structlog.get_logger(__name__)


class FormFaults:
    """Notes faults of form. For the event loop alone.

    A request counts only if it names its place: by a session of its caller, or by the actor's name when it opens one.
    Bytes that cannot be parsed do neither, and cost no more than their size.

    Args:
        router: Ends the streams of sessions.
        sessions: Sessions of the actors, and the places that are shut out.
        metrics: Metrics in which quarantines are counted.
    """

    def __init__(self, router: SessionRouter, sessions: SessionTable, metrics: SessionMetrics) -> None:
        self._router = router
        self._sessions = sessions
        self._metrics = metrics

    @contextlib.contextmanager
    def of(self, session: ActorSession) -> Iterator[None]:
        """Counts a fault of form that the block raises towards the place of a session."""
        with self.of_place((session.principal, session.actor_name)):
            yield

    @contextlib.contextmanager
    def of_place(self, place: Place) -> Iterator[None]:
        """Counts a fault of form that the block raises towards a place."""
        try:
            yield
        except FORM_FAULTS as error:
            self.note(place, error)
            raise

    def note(self, place: Place, fault: Exception) -> None:
        """Counts a fault towards a place, and ends its sessions if it is shut out. Other errors do not count."""
        if not isinstance(fault, FORM_FAULTS):
            return
        seconds = self._sessions.quarantine.note(place, fault)
        if seconds is None:
            return
        self._metrics.quarantines.inc()
        principal, name = place
        _log.warning(
            "actor_quarantined",
            actor=name,
            principal=principal,
            seconds=seconds,
            faults=MAX_FAULTS,
            last_fault=printable(str(fault)),
            next=f"correct the actor; rollcast release {name!r} lets it in earlier",
        )
        for session in self._sessions.end_place(place):
            self._router.forget(
                session,
                Quarantined(
                    f"session {short_id(session.session_id)} ended: actor {name!r} is shut out for {seconds:.0f} s "
                    f"after {MAX_FAULTS} faults of form",
                    retry_after_seconds=seconds,
                ),
            )
