"""The learner as its HTTP port sees it: the status, the sessions and the operator's control."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from learner.ingest.behaviors import BehaviorTable
from learner.ingest.session import Account, ActorSession
from learner.ingest.sessions import SessionTable
from learner.observe.history import History, HistoryView
from learner.observe.metrics.learner import LearnerMetrics
from learner.observe.view import ActorBooksView, ActorView, BehaviorView
from learner.service.control_calls import ActorRates, ControlHooks
from learner.web.hooks import StatusView


class RunHooks:
    """The `learner.web.hooks.WebHooks` of a running learner.

    Args:
        control: what operators may do.
        behaviors: the behaviors of the run.
        sessions: the actors.
        metrics: what ``/metrics`` shows, and the figures of the last updates.
        is_serving: says what the gRPC health service says; from any thread.
        history: the curves.
        version: of Rollcast.
    """

    def __init__(
        self,
        control: ControlHooks,
        behaviors: BehaviorTable,
        sessions: SessionTable,
        metrics: LearnerMetrics,
        *,
        is_serving: Callable[[], bool],
        history: History,
        version: str,
    ) -> None:
        self._control = control
        self._behaviors = behaviors
        self._sessions = sessions
        self._metrics = metrics
        self._is_serving = is_serving
        self._version = version
        self._rates = ActorRates(sessions)
        self._history = history

    def sample(self) -> None:
        """Adds a point to every curve; to be called once a second, from one thread."""
        self._rates.update()
        run = self._control.status()
        for view in run.behaviors:
            self._history.add(view.name, run.uptime_seconds, {**self._metrics.last_update(view.name), **_curves(view)})

    def status(self) -> StatusView:
        """Returns the status at this moment."""
        run = self._control.status()
        live = sorted(self._sessions.live(), key=lambda session: session.actor_index)
        return StatusView(run, tuple(self._actor(session) for session in live), self._version)

    def history(self, behavior: str, since: float) -> HistoryView | None:
        """Returns the curves of a behavior later than a time."""
        return self._history.view(behavior, since)

    def metrics(self) -> bytes:
        """Returns the metrics."""
        return self._metrics.exposition()

    def is_serving(self) -> bool:
        """Says what the gRPC health service says."""
        return self._is_serving()

    def pause(self) -> None:
        """Stops training."""
        self._control.pause()

    def resume(self) -> None:
        """Ends a pause."""
        self._control.resume()

    def save_checkpoint(self, timeout_seconds: float) -> str:
        """Saves a checkpoint and returns its path."""
        return self._control.save_checkpoint(timeout_seconds)

    def _actor(self, session: ActorSession) -> ActorView:
        with self._sessions.lock:
            accounts = tuple(session.accounts.values())
        return ActorView(
            name=session.actor_name,
            index=session.actor_index,
            connected=session.is_connected,
            last_seen_seconds=max(0.0, self._sessions.clock() - session.last_seen),
            steps_per_second=self._rates.of(session),
            lag=session.policy_lag,
            credit_steps=sum(max(0, account.granted_steps - account.produced_steps) for account in accounts),
            wait_share=session.times.wait_share,
            waits_for=session.times.waits_for,
            round_trip_seconds=session.times.round_trip_seconds,
            error=next((policy.error for policy in session.policies if policy.error), ""),
            books=_books(accounts),
        )


def _curves(view: BehaviorView) -> dict[str, float | None]:
    return {
        "env_steps_taken": view.env_steps_taken,
        "env_steps_trained": view.env_steps_trained,
        "steps_per_second": view.steps_per_second,
        "mean_return": view.mean_return_100,
        "mean_lag": view.mean_lag if view.version else None,
    }


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
    )
