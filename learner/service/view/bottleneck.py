"""Estimates what limits a run: the learner, its actors, or the connection between them.

Compares three shares of a window. L: the trainer worked. A: the actors did not wait (their mean). N: the rest that
neither explains. For one actor, a is the share in which it did not wait. An actor that takes turns with the trainer
(``threaded: false``) should wait exactly while the trainer works: max(0, 1 - L - a) of its time is unexplained. An
actor that runs in parallel (``threaded: true``) needs to wait only if the trainer is always busy: 1 - max(L, a) of its
time is unexplained. The largest share wins.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from learner.shared.observe.rates import WindowedRate
from learner.shared.observe.view import Bottleneck, RunState

WINDOW_SECONDS: Final = 10.0
SAMPLE_SECONDS: Final = 0.5
LEAST_SECONDS: Final = 3.0
"""Shortest window in seconds: a shorter one may contain a single update."""

_WAITS: Final = {
    "credit": "waiting for credit",
    "hold": "held",
    "policy": "waiting for a policy",
    "connection": "waiting for the connection",
}
NOTHING_DECLARED: Final = "an actor is connected but has not declared a behavior yet"
_IDLE: Final = {
    RunState.WAITING: "no behavior has been declared yet: start an actor",
    RunState.PAUSED: "the run is paused",
    RunState.DRAINING: "the run is ending",
    RunState.FAILED: "the trainer failed",
}


@dataclass(frozen=True, slots=True)
class ActorShare:
    """Shares of one actor's time in the window.

    Attributes:
        waits: Shares of its time spent waiting, by reason, together 0 to 1.
        takes_turns: Whether it should wait while the trainer works (``threaded: false``).
        round_trip_seconds: Seconds from a chunk to its ack; None if not reported.
    """

    waits: Mapping[str, float]
    takes_turns: bool = False
    round_trip_seconds: float | None = None

    @property
    def busy(self) -> float:
        """Share of its time not spent waiting, 0 to 1."""
        return min(1.0, max(0.0, 1.0 - sum(self.waits.values())))

    def unexplained(self, learner_busy: float) -> float:
        """Returns the share in which neither the actor nor the trainer had work, 0 to 1."""
        if self.takes_turns:
            return max(0.0, 1.0 - learner_busy - self.busy)
        return 1.0 - max(learner_busy, self.busy)


@dataclass(frozen=True, slots=True)
class ActorsSeen:
    """The actors that take part in training.

    Attributes:
        shares: Actors that train something and recently reported how they spend their time.
        silent: Number of all other actors: new, recently silent, or of a client that does not report.
    """

    shares: Sequence[ActorShare] = ()
    silent: int = 0


class BottleneckMeter:
    """Samples the trainer's work periodically, together with the actors' reports.

    Args:
        read_actors: Returns the actors that take part now.
        restart: Called when earlier reports must no longer count, as after a pause.
        clock: Returns monotonic seconds.

    Attributes:
        bottleneck: The newest result.
    """

    def __init__(
        self, read_actors: Callable[[], ActorsSeen], restart: Callable[[], None], clock: Callable[[], float]
    ) -> None:
        self.bottleneck = Bottleneck()
        self._read_actors = read_actors
        self._restart = restart
        self._clock = clock
        self._state: RunState | None = None
        self._since = self._due = clock()
        self._rate = WindowedRate(WINDOW_SECONDS, clock)

    def update(self, state: RunState, busy_seconds: float, *, is_preparing: bool = False) -> Bottleneck:
        """Takes a sample if it is due, and returns the newest bottleneck; call it often and from one thread.

        Args:
            state: State of the run.
            busy_seconds: Seconds that the trainer has worked since it began.
            is_preparing: Whether an actor is connected and none has declared a behavior.
        """
        now = self._clock()
        if state is not self._state:
            self._state = state
            self._since = self._due = now
            self._rate = WindowedRate(WINDOW_SECONDS, self._clock)
            self._restart()
        if now < self._due:
            return self.bottleneck
        self._due = now + SAMPLE_SECONDS
        learner_busy = min(1.0, max(0.0, self._rate.update(busy_seconds)))
        if state is not RunState.TRAINING:
            is_waited_for = is_preparing and state is RunState.WAITING
            self.bottleneck = Bottleneck(text=NOTHING_DECLARED if is_waited_for else _IDLE[state])
        elif now - self._since < LEAST_SECONDS:
            self.bottleneck = Bottleneck(learner_busy=learner_busy)
        else:
            self.bottleneck = judge(learner_busy, self._read_actors())
        return self.bottleneck


def judge(learner_busy: float, actors: ActorsSeen) -> Bottleneck:
    """Returns what limits a run.

    Args:
        learner_busy: L, 0 to 1.
        actors: Actors over which A and N are averaged.
    """
    shares = actors.shares
    if not shares:
        return Bottleneck(text=_without_actors(learner_busy, actors.silent), learner_busy=learner_busy)
    actor_busy = statistics.fmean(share.busy for share in shares)
    network = statistics.fmean(share.unexplained(learner_busy) for share in shares)
    by_name = {"learner": learner_busy, "actors": actor_busy, "network": network}
    name = max(by_name, key=lambda key: by_name[key])
    say = {"learner": _of_learner, "actors": _of_actors, "network": _of_network}[name]
    return Bottleneck(name, say(by_name, shares), learner_busy, actor_busy, network)


def _without_actors(learner_busy: float, silent: int) -> str:
    figures = f"the trainer is busy {learner_busy:.0%} of the time"
    if not silent:
        return f"{figures}; no actor is training"
    if silent == 1:
        return f"{figures}; 1 actor has not reported recently what it waits for"
    return f"{figures}; {silent} actors have not reported recently what they wait for"


def _of_learner(by_name: Mapping[str, float], shares: Sequence[ActorShare]) -> str:
    return (
        f"learner-bound: the trainer is busy {by_name['learner']:.0%} of the time, actors "
        f"{by_name['actors']:.0%}{_waits(shares)}; use fewer epochs, a smaller network or a GPU, not more actors"
    )


def _of_actors(by_name: Mapping[str, float], shares: Sequence[ActorShare]) -> str:
    return (
        f"actor-bound: actors are busy {by_name['actors']:.0%} of the time{_waits(shares)}, the trainer "
        f"{by_name['learner']:.0%}; use more actors, or more environments in each"
    )


def _of_network(by_name: Mapping[str, float], shares: Sequence[ActorShare]) -> str:
    trips = [share.round_trip_seconds for share in shares if share.round_trip_seconds is not None]
    took = f", the newest acks took {statistics.median(trips):.2g} s" if trips else ""
    turns = " or threaded: true" if any(share.takes_turns for share in shares) else ""
    return (
        f"network-bound: the trainer is busy {by_name['learner']:.0%} of the time, actors "
        f"{by_name['actors']:.0%}{_waits(shares)}, and {by_name['network']:.0%} is lost on the way between "
        f"them{took}; run actors nearer to the learner, or use a larger buffer_size{turns}"
    )


def _waits(shares: Sequence[ActorShare]) -> str:
    """Returns the longest wait of the actors in brackets; empty if they hardly wait."""
    means = {reason: statistics.fmean(share.waits.get(reason, 0.0) for share in shares) for reason in _WAITS}
    reason = max(means, key=lambda key: means[key])
    return f" ({means[reason]:.0%} {_WAITS[reason]})" if means[reason] >= 0.01 else ""
