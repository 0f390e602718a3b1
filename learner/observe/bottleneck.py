"""Estimates what bounds a run: the learner, its actors, or what lies between them.

Three shares of a window are compared. L: in which the trainer did something. A: in which actors did not wait, the mean over
them. N: what neither explains. An actor that takes turns with the trainer (``threaded: false``) should wait while
the trainer works, and only then: of its time max(0, 1 - L - a) is unexplained. One that goes on meanwhile
(``threaded: true``) needs to wait only if the trainer is always busy: of its time 1 - max(L, a) is. The largest share wins.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from learner.observe.rates import WindowedRate
from learner.observe.view import Bottleneck, RunState

WINDOW_SECONDS: Final = 10.0
SAMPLE_SECONDS: Final = 0.5
LEAST_SECONDS: Final = 3.0
"""A shorter look at the trainer says nothing: it may be one update."""

_WAITS: Final = {
    "credit": "wait for credit",
    "hold": "are held",
    "policy": "wait for a policy",
    "connection": "wait for the connection",
}
_IDLE: Final = {
    RunState.WAITING: "no behavior has been declared yet: start an actor",
    RunState.PAUSED: "the run is paused",
    RunState.DRAINING: "the run ends",
    RunState.FAILED: "the trainer failed",
}


@dataclass(frozen=True, slots=True)
class ActorShare:
    """How one actor spent the window.

    Attributes:
        waits: shares of its time that it waited, by reason, together 0 to 1.
        takes_turns: it is to wait while the trainer works (``threaded: false``).
        round_trip_seconds: from a chunk to its ack; None if it did not say.
    """

    waits: Mapping[str, float]
    takes_turns: bool = False
    round_trip_seconds: float | None = None

    @property
    def busy(self) -> float:
        """The share that it did not wait, 0 to 1."""
        return min(1.0, max(0.0, 1.0 - sum(self.waits.values())))

    def unexplained(self, learner_busy: float) -> float:
        """Returns the share in which neither it nor the trainer had to do something, 0 to 1."""
        if self.takes_turns:
            return max(0.0, 1.0 - learner_busy - self.busy)
        return 1.0 - max(learner_busy, self.busy)


@dataclass(frozen=True, slots=True)
class ActorsSeen:
    """Who takes part.

    Attributes:
        shares: of the actors that train something and said lately how they spend their time.
        silent: how many others there are: not heard of lately, just begun, or of a release that does not say.
    """

    shares: Sequence[ActorShare] = ()
    silent: int = 0


class BottleneckMeter:
    """Looks at the trainer's work now and then, and at the actors' reports whenever it looks.

    Args:
        read_actors: returns who takes part now.
        restart: called where what was before must not count any more, as after a pause.
        clock: monotonic seconds.

    Attributes:
        bottleneck: the newest.
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

    def update(self, state: RunState, busy_seconds: float) -> Bottleneck:
        """Takes a look, if it is time, and returns the newest bottleneck; call it often and from one thread.

        Args:
            state: what the learner does.
            busy_seconds: how long the trainer has worked since it began.
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
            self.bottleneck = Bottleneck(text=_IDLE[state])
        elif now - self._since < LEAST_SECONDS:
            self.bottleneck = Bottleneck(learner_busy=learner_busy)
        else:
            self.bottleneck = judge(learner_busy, self._read_actors())
        return self.bottleneck


def judge(learner_busy: float, actors: ActorsSeen) -> Bottleneck:
    """Returns what holds a run back.

    Args:
        learner_busy: L, 0 to 1.
        actors: of whom A and N are the means.
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
    figures = f"the trainer computes {learner_busy:.0%} of the time"
    if not silent:
        return f"no actor takes part in training: {figures}"
    return f"{figures}; {silent} actor{'s have' if silent > 1 else ' has'} not said yet, or lately, what for they wait"


def _of_learner(by_name: Mapping[str, float], shares: Sequence[ActorShare]) -> str:
    return (
        f"learner-bound: the trainer computes {by_name['learner']:.0%} of the time, actors step "
        f"{by_name['actors']:.0%}{_waits(shares)}; fewer epochs, a smaller network or a GPU help, more actors do not"
    )


def _of_actors(by_name: Mapping[str, float], shares: Sequence[ActorShare]) -> str:
    return (
        f"actor-bound: actors step {by_name['actors']:.0%} of the time{_waits(shares)}, the trainer computes "
        f"{by_name['learner']:.0%}; more actors, or more environments in each, help"
    )


def _of_network(by_name: Mapping[str, float], shares: Sequence[ActorShare]) -> str:
    trips = [share.round_trip_seconds for share in shares if share.round_trip_seconds is not None]
    took = f", the newest acks took {statistics.median(trips):.2g} s" if trips else ""
    turns = ", or threaded: true, lets" if any(share.takes_turns for share in shares) else " lets"
    return (
        f"network-bound: the trainer computes {by_name['learner']:.0%} of the time, actors step "
        f"{by_name['actors']:.0%}{_waits(shares)}, and {by_name['network']:.0%} pass on the way between them{took}; "
        f"bring actors nearer; a larger buffer_size{turns} both sides do more meanwhile"
    )


def _waits(shares: Sequence[ActorShare]) -> str:
    """Returns what actors wait for most, in brackets; nothing if they hardly wait."""
    means = {reason: statistics.fmean(share.waits.get(reason, 0.0) for share in shares) for reason in _WAITS}
    reason = max(means, key=lambda key: means[key])
    return f" ({_WAITS[reason]} {means[reason]:.0%})" if means[reason] >= 0.01 else ""
