"""Tests the bottleneck computed from shares of time."""

from __future__ import annotations

from typing import Any

import pytest

from learner.service.view.bottleneck import ActorShare, ActorsSeen, BottleneckMeter, judge
from learner.shared.observe.view import Bottleneck, RunState

TRAINING = RunState.TRAINING


def waiting(share: float, reason: str = "credit", **fields: Any) -> ActorShare:
    """Returns an actor that waits this share of its time."""
    return ActorShare({reason: share}, **fields)


def seen(*shares: ActorShare, silent: int = 0) -> ActorsSeen:
    """Returns actors."""
    return ActorsSeen(shares, silent)


@pytest.mark.parametrize(
    ("learner_busy", "waits", "turns", "expected"),
    [
        (0.97, [0.88], False, "learner"),  # credit runs out while a slow learner works
        (0.97, [0.97], True, "learner"),
        (0.05, [0.03], False, "actors"),
        (0.05, [0.05], True, "actors"),
        (0.10, [0.85], False, "network"),  # no part works
        (0.10, [0.80], True, "network"),
        (0.60, [0.60], True, "learner"),  # actors wait exactly while the learner works
        (0.30, [0.30], True, "actors"),
        (0.60, [0.60], False, "learner"),
        (1.00, [0.00], False, "learner"),  # both work all the time: nothing is to be had from faster actors
        (0.50, [0.90, 0.90, 0.90, 0.00], False, "learner"),  # one slow simulator does not make a run actor-bound
        (0.10, [0.90, 0.90, 0.90, 0.00], False, "network"),
        (0.10, [0.00, 0.00, 0.00, 0.95], False, "actors"),  # one actor far away does not make it network-bound
        (0.00, [1.00], False, "network"),  # as far as the learner can tell: a policy that does not arrive
    ],
)
def test_the_largest_share_wins(learner_busy: float, waits: list[float], turns: bool, expected: str) -> None:
    """The largest share of trainer, actors and remainder is the bottleneck, in both modes."""
    bottleneck = judge(learner_busy, seen(*(waiting(share, takes_turns=turns) for share in waits)))
    assert bottleneck.name == expected
    assert bottleneck.actor_busy == pytest.approx(1 - sum(waits) / len(waits))
    assert 0.0 <= bottleneck.network_share <= 1.0


def test_each_actor_counts_by_its_own_mode() -> None:
    """Each actor is judged by the mode of its own behavior."""
    bottleneck = judge(0.4, seen(waiting(0.6, takes_turns=True), waiting(0.6)))
    assert bottleneck.network_share == pytest.approx((0.2 + 0.6) / 2)


def test_the_sentence_holds_the_figures() -> None:
    """The sentence has the figures and the actors' waits."""
    assert "the trainer is busy 97% of the time, actors 12% (88% waiting" in judge(0.97, seen(waiting(0.88))).text
    far = judge(0.05, seen(waiting(0.9, "hold", takes_turns=True, round_trip_seconds=0.41))).text
    assert "actors 10% (90% held), and 85% is lost on the way between them, the newest acks took 0.41 s" in far


def test_without_figures_of_actors_nothing_is_claimed() -> None:
    """Without figures of actors only the trainer's share is shown."""
    alone = judge(0.02, seen())
    assert (alone.name, alone.learner_busy) == ("none", 0.02)
    assert alone.text == "the trainer is busy 2% of the time; no actor is training"
    assert "2 actors have not reported" in judge(0.5, seen(silent=2)).text
    assert judge(0.5, seen(waiting(0.9), silent=2)).name == "learner"


class Rig:
    """A meter with a manual clock and trainer."""

    def __init__(self) -> None:
        self.now = 100.0
        self.busy_seconds = 50.0
        self.restarts = 0
        self.meter = BottleneckMeter(lambda: seen(waiting(0.5)), self._restart, lambda: self.now)

    def _restart(self) -> None:
        self.restarts += 1

    def run(self, seconds: float, busy: float, state: RunState = TRAINING) -> Bottleneck:
        """Advances the clock, with the trainer working for a share, and polls twenty times a second."""
        for _ in range(round(seconds * 20)):
            self.now += 0.05
            self.busy_seconds += 0.05 * busy
            self.meter.update(state, self.busy_seconds)
        return self.meter.bottleneck


def test_the_trainers_share_is_of_the_last_seconds() -> None:
    """The bottleneck follows changes within the window."""
    rig = Rig()
    assert rig.run(2, 0.9).name == "none"
    first = rig.run(3, 0.9)
    assert first.name == "learner"
    assert first.learner_busy == pytest.approx(0.9)
    later = rig.run(12, 0.1)
    assert later.name == "actors"
    assert later.learner_busy == pytest.approx(0.1)


@pytest.mark.parametrize("state", [state for state in RunState if state is not TRAINING])
def test_what_is_not_training_has_no_bottleneck(state: RunState) -> None:
    """A pause ends the bottleneck with a reason and does not count in the next one."""
    rig = Rig()
    rig.run(5, 0.9)
    idle = rig.run(60, 0.0, state)
    assert idle.name == "none"
    assert idle.text not in {"", Bottleneck().text}
    is_waiting = state is RunState.WAITING
    rig.now += 1.0
    preparing = rig.meter.update(state, rig.busy_seconds, is_preparing=True)
    assert ("connected" in preparing.text) is is_waiting, "an actor that is there need not be started"
    before = rig.restarts
    after = rig.run(4, 0.9)
    assert (after.name, rig.restarts) == ("learner", before + 1)
    assert after.learner_busy == pytest.approx(0.9)
