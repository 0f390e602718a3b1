"""Reads from the parts of a running learner its metrics at each scrape, and how its actors spend their time."""

from __future__ import annotations

import math
import shutil
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from learner.service.calls.server import LearnerServer
from learner.service.ingest.behaviors import BehaviorTable
from learner.service.ingest.session import ActorSession
from learner.service.ingest.sessions import SessionTable
from learner.service.ingest.times import report_seconds
from learner.service.metrics.state import Disk, MetricsSnapshot, Spread
from learner.service.run.run_status import RunStatus
from learner.service.view.bottleneck import ActorShare, ActorsSeen, BottleneckMeter
from learner.shared.observe.view import RunView

STALE_SECONDS: Final = 10.0
STALE_REPORTS: Final = 3


@dataclass(frozen=True, slots=True)
class Scrape:
    """Creates the snapshots for `learner.service.metrics.learner.LearnerMetrics.watch`.

    Every part may be read from any thread.

    Attributes:
        view: Returns the current status.
        run_status: Last statistics of the trainers.
        sessions: The actors.
        server: Streams and rates.
        checkpoint_seconds: Longest time between two run states, in seconds.
        started_at: When the learner started, in seconds since the epoch.
        is_over: Returns whether the run has ended by itself.
        folder: The run's folder.
    """

    view: Callable[[], RunView]
    run_status: RunStatus
    sessions: SessionTable
    server: LearnerServer
    checkpoint_seconds: float
    started_at: float = 0.0
    is_over: Callable[[], bool] = lambda: False
    folder: Path = Path()

    def snapshot(self) -> MetricsSnapshot:
        """Returns a snapshot of all parts."""
        view = self.view()
        live = self.sessions.live()
        connected = sum(session.is_connected for session in live)
        return MetricsSnapshot(
            view,
            started_at=self.started_at,
            is_over=self.is_over(),
            disk=disk_of(self.folder),
            sessions_connected=connected,
            sessions_silent=len(live) - connected,
            policy_subscribers=self.server.subscribers,
            checkpoint_interval_seconds=self.checkpoint_seconds if view.lockstep is None else math.inf,
            step_shares=self._step_shares(live),
            policy_lags=_spread([float(each.policy_lag) for each in live if each.policy_lag is not None]),
            gpu=self.run_status.stats.gpu,
            counts=self.run_status.stats.counts,
            stats_age_seconds=self.run_status.stats_age_seconds,
        )

    def _step_shares(self, live: Iterable[ActorSession]) -> Spread | None:
        rates = [self.server.rates.of(session) for session in live]
        total = sum(rates)
        return _spread([rate * len(rates) / total for rate in rates]) if total > 0 else None


def disk_of(folder: Path) -> Disk | None:
    """Returns the space of a folder's disk; None if it does not answer."""
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return None
    return Disk(usage.free, usage.total)


def _spread(values: list[float]) -> Spread | None:
    return Spread(min(values), statistics.median(values), max(values)) if values else None


def bottleneck_meter(sessions: SessionTable, behaviors: BehaviorTable) -> BottleneckMeter:
    """Returns a meter that reads the reports of all actors."""

    def restart() -> None:
        for session in sessions.live():
            session.times.restart()

    return BottleneckMeter(lambda: actors_seen(sessions, behaviors), restart, sessions.clock)


def actors_seen(sessions: SessionTable, behaviors: BehaviorTable) -> ActorsSeen:
    """Returns which actors take part in training now and how each spent its recent time."""
    shares, silent = [], 0
    with sessions.lock:
        live = sessions.live()
        heard_after = sessions.clock() - max(STALE_SECONDS, STALE_REPORTS * report_seconds(len(live)))
        for session in live:
            declared = [behaviors.by_index(index) for index in session.accounts]
            training = [behavior for behavior in declared if behavior is not None and behavior.training]
            if not training:
                continue
            takes_turns = not any(behavior.settings.threaded for behavior in training)
            share = _share(session, heard_after, takes_turns=takes_turns)
            if share is None:
                silent += 1
            else:
                shares.append(share)
    return ActorsSeen(tuple(shares), silent)


def _share(session: ActorSession, heard_after: float, *, takes_turns: bool) -> ActorShare | None:
    times = session.times
    waits = times.waits
    if waits is None or times.reported_at is None or times.reported_at < heard_after:
        return None
    return ActorShare(waits, takes_turns, times.round_trip_seconds)
