"""Summarises how actors report spending their time, to estimate what limits the run."""

from __future__ import annotations

from typing import Final

from learner.service.ingest.behaviors import BehaviorTable
from learner.service.ingest.session import ActorSession
from learner.service.ingest.sessions import SessionTable
from learner.service.ingest.times import report_seconds
from learner.service.view.bottleneck import ActorShare, ActorsSeen, BottleneckMeter

STALE_SECONDS: Final = 10.0
STALE_REPORTS: Final = 3


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
