"""Measures how fast each actor steps."""

from __future__ import annotations

from learner.service.ingest.session import ActorSession
from learner.service.ingest.sessions import SessionTable
from learner.shared.observe.rates import WindowedRate


class ActorRates:
    """Measures the recent steps per second of each actor."""

    def __init__(self, sessions: SessionTable) -> None:
        self._sessions = sessions
        self._rates: dict[str, WindowedRate] = {}

    def update(self) -> None:
        """Samples the counters; call it about once a second."""
        live = {session.session_id: session for session in self._sessions.live()}
        self._rates = {key: rate for key, rate in self._rates.items() if key in live}
        for key, session in live.items():
            rate = self._rates.setdefault(key, WindowedRate(clock=self._sessions.clock))
            rate.update(session.produced_steps)

    def of(self, session: ActorSession) -> float:
        """Returns the steps per second of a session; 0 before there are two samples."""
        rate = self._rates.get(session.session_id)
        return rate.per_second if rate is not None else 0.0
