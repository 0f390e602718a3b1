"""Tells why a behavior has not been updated for long although its actors take steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from learner.shared.observe.behavior_state import BehaviorState
from learner.shared.observe.rates import GrowingInterval
from learner.shared.settings.hyperparameters import ReplayHyperparameters
from learner.shared.settings.trainer import TrainerSettings

QUIET_SECONDS: Final = 20.0
"""Seconds without an update, while steps are taken, after which the reason is told."""
LONGEST_SECONDS: Final = 1800.0

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Seen:
    """What was seen at the newest update of a behavior."""

    version: int
    taken: int
    dropped: int
    at: float
    interval: GrowingInterval


class UpdateWatch:
    """Watches the behaviors of a run; call `look` often, from one thread.

    Args:
        clock: Returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[str, _Seen] = {}

    def look(self, state: BehaviorState, settings: TrainerSettings, held_steps: int, *, trains: bool) -> None:
        """Logs the reason once it is due, then at growing intervals.

        Args:
            state: The behavior.
            settings: Its settings.
            held_steps: Steps that actors have taken and not sent.
            trains: Whether the run trains now, and is neither paused nor ending.
        """
        now = self._clock()
        seen = self._seen.get(state.name)
        if seen is None or seen.version != state.version or not trains:
            interval = GrowingInterval(QUIET_SECONDS, LONGEST_SECONDS, self._clock)
            self._seen[state.name] = _Seen(state.version, state.env_steps_taken, _dropped(state), now, interval)
            return
        if now - seen.at < QUIET_SECONDS or state.env_steps_taken == seen.taken or not seen.interval.passed():
            return
        speed = (state.env_steps_taken - seen.taken) / (now - seen.at)
        reason, hinders = _reason(state, settings, held_steps, speed, is_dropping=_dropped(state) > seen.dropped)
        tell = log.warning if hinders else log.info
        tell(
            "no_update_yet",
            behavior=state.name,
            seconds=round(now - seen.at),
            steps_taken=state.env_steps_taken,
            reason=reason,
        )


def _dropped(state: BehaviorState) -> int:
    return sum(state.books["dropped"].values())


def _reason(
    state: BehaviorState, settings: TrainerSettings, held_steps: int, speed: float, *, is_dropping: bool
) -> tuple[str, bool]:
    """Returns why there was no update, and whether waiting does not help."""
    needed, key = _needed(settings)
    in_updates = (
        0 if settings.traits.replay else state.books["trained"]
    )  # a replay memory keeps what it was trained with
    collected = state.books["received"] - in_updates - _dropped(state)
    missing = max(0, needed - collected)
    if held_steps >= missing > 0:
        return (
            f"actors hold {held_steps} steps in segments that are not complete: one is sent after time_horizon "
            f"{settings.time_horizon} steps of an agent, or when its episode ends, and an update needs {needed} ({key}): lower "
            "time_horizon"
        ), True
    if is_dropping and not collected:
        causes = ", ".join(f"{reason} {steps}" for reason, steps in state.books["dropped"].items() if steps)
        return f"all steps that were received since the last update were dropped ({causes})", True
    if not missing:
        return (
            f"the trainer has {collected} steps, and an update needs {needed} ({key}): the update takes long, or hangs",
            False,
        )
    return (
        f"{collected} of the {needed} steps for an update ({key}) are there, at {speed:.3g} a second: about "
        f"{missing / max(speed, 1e-9):.0f} s more; for earlier updates lower {key.partition(' ')[0]}, or start more actors"
    ), False


def _needed(settings: TrainerSettings) -> tuple[int, str]:
    """Returns the steps that an update needs, and the keys that say so."""
    hyper = settings.hyperparameters
    if isinstance(hyper, ReplayHyperparameters):
        if hyper.buffer_init_steps > hyper.batch_size:
            return hyper.buffer_init_steps, "buffer_init_steps"
        return hyper.batch_size, "batch_size"
    return hyper.buffer_size, "buffer_size"
