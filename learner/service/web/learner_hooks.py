"""Connects the HTTP port to the learner's status, sessions and control."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from learner.service.ingest.actor_rates import ActorRates
from learner.service.ingest.session import Account, ActorSession
from learner.service.ingest.session_ids import short_id
from learner.service.ingest.sessions import SessionTable
from learner.service.metrics.learner import LearnerMetrics
from learner.service.view.history import History, HistoryView
from learner.service.web.hooks import OperatorActions
from learner.shared.observe.behavior_state import FIELDS, BehaviorState
from learner.shared.observe.view import ActorBooksView, ActorDetails, ActorView, RunView, StatusView


class RunHooks:
    """Implements `learner.service.web.hooks.WebHooks` for a running learner.

    Args:
        control: Actions available to operators.
        view: Returns the state of the run.
        sessions: The actors.
        metrics: Content of ``/metrics``.
        rates: Steps per second of each actor.
        is_serving: Returns the state reported by the gRPC health service; callable from any thread.
        history: The curves.
        version: Version of Rollcast.
        about: Returns the settings and events of the run, and the runs beside it.

    Attributes:
        control: Actions available to operators.
    """

    def __init__(
        self,
        control: OperatorActions,
        view: Callable[[], RunView],
        sessions: SessionTable,
        metrics: LearnerMetrics,
        *,
        rates: ActorRates,
        is_serving: Callable[[], bool],
        history: History,
        version: str,
        about: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self.control = control
        self._view = view
        self._sessions = sessions
        self._metrics = metrics
        self._is_serving = is_serving
        self._version = version
        self._about = about
        self._rates = rates
        self._history = history

    def sample(self) -> None:
        """Adds a point to every curve; call it once a second from one thread."""
        run = self._view()
        for view in run.behaviors:
            self._history.add(view.name, run.uptime_seconds, _curves(view))

    def status(self) -> StatusView:
        """Returns the current status."""
        run = self._view()
        live = sorted(self._sessions.live(), key=lambda session: session.actor_index)
        return StatusView(run, tuple(self._actor(session) for session in live), self._version)

    def history(self, behavior: str, since: float) -> HistoryView | None:
        """Returns the curves of a behavior after a time."""
        return self._history.view(behavior, since)

    def about(self) -> dict[str, Any]:
        """Returns the settings and events of the run, and the runs beside it."""
        return self._about()

    def metrics(self) -> bytes:
        """Returns the metrics."""
        return self._metrics.exposition()

    def count_error(self, reason: str) -> None:
        """Counts an error by its reason."""
        self._metrics.error(reason)

    def is_serving(self) -> bool:
        """Returns the state reported by the gRPC health service."""
        return self._is_serving()

    def release(self, actor_name: str, principal: str | None) -> int:
        """Lets an actor that is shut out in again."""
        return self._sessions.quarantine.release(actor_name, principal)

    def _actor(self, session: ActorSession) -> ActorView:
        with self._sessions.lock:
            accounts = tuple(session.accounts.values())
        now, environments = self._sessions.clock(), session.environments
        return ActorView(
            name=session.actor_name,
            index=session.actor_index,
            connected=session.is_connected,
            last_seen_seconds=max(0.0, now - session.last_seen),
            steps_per_second=self._rates.of(session),
            lag=session.policy_lag,
            credit_steps=sum(account.credit_steps for account in accounts),
            wait_share=session.times.wait_share,
            waits_for=session.times.waits_for,
            round_trip_seconds=session.times.round_trip_seconds,
            failures=0 if environments.state is None else environments.state.failures,
            error=session.complaint(now),
            books=_books(accounts),
            session_id=short_id(session.session_id),
            details=ActorDetails(
                tuple(account.counters for account in accounts if account.counters is not None),
                tuple(session.policies),
                environments.state,
                None if environments.failed_at is None else max(0.0, now - environments.failed_at),
            ),
        )


def _curves(behavior: BehaviorState) -> dict[str, float | None]:
    return {each.curve: behavior.known(each) for each in FIELDS if each.curve}


def _books(accounts: tuple[Account, ...]) -> ActorBooksView:
    reports = [account.counters for account in accounts if account.counters is not None]
    discarded: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    for report in reports:
        discarded.update(report.discarded)
        dropped.update(report.dropped)
    return ActorBooksView(
        produced=sum(report.produced for report in reports),
        open=sum(report.open for report in reports),
        discarded=dict(discarded),
        dropped=dict(dropped),
        unacked=sum(report.unacked for report in reports),
        acked=sum(report.acked for report in reports),
        spooled=sum(report.spooled for report in reports),
    )
