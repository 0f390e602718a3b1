"""Where the time of the stepping thread goes, measured on few steps so that measuring costs nothing."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from actor_client.counts import RolloutCounts

SAMPLE_EVERY_STEPS: Final = 16
"""Every so many vector steps one is timed. A prime would be no better: environments have no period of their own."""


@dataclass(frozen=True, slots=True)
class RolloutStats:
    """What the rollout did since it began.

    Attributes:
        steps: Environment steps taken, ignored ones included.
        episodes: Episodes finished.
        env_failures: How often the environments were made anew.
        unusable_episodes: Finished episodes that were not reported: their return is NaN or beyond float32.
        seconds: Wall time.
        wait_seconds: Of it, spent waiting for credit, a hold, or the first policy.
        act_share: Share of the time not waited that choosing actions took, estimated, 0 to 1.
        env_share: Share that stepping the environments took, estimated; recording is what remains.
    """

    steps: int
    episodes: int
    env_failures: int
    unusable_episodes: int
    seconds: float
    wait_seconds: float
    act_share: float
    env_share: float

    @property
    def steps_per_second(self) -> float:
        """Environment steps per second of wall time."""
        return self.steps / self.seconds if self.seconds > 0 else 0.0


class StepTimer:
    """Times one step in `SAMPLE_EVERY_STEPS`.

    Args:
        counts: Where the seconds go.
        clock: Monotonic seconds.
    """

    __slots__ = ("_begun", "_counts", "clock")

    def __init__(self, counts: RolloutCounts, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._begun = clock()
        self._counts = counts

    def add(self, begun: float, acted: float, stepped: float) -> None:
        """Adds one timed step, which ends now.

        Args:
            begun: When the step began, in monotonic seconds.
            acted: When its actions were chosen.
            stepped: When the environments had taken them.
        """
        counts = self._counts
        counts.act_seconds.add(acted - begun)
        counts.env_step_seconds.add(stepped - acted)
        counts.record_seconds.add(self.clock() - stepped)

    def stats(self, *, steps: int, episodes: int, env_failures: int, unusable_episodes: int) -> RolloutStats:
        """Returns what is known by now."""
        counts = self._counts
        act, env = counts.act_seconds.total, counts.env_step_seconds.total
        total = act + env + counts.record_seconds.total or 1.0
        return RolloutStats(
            steps=steps,
            episodes=episodes,
            env_failures=env_failures,
            unusable_episodes=unusable_episodes,
            seconds=self.clock() - self._begun,
            wait_seconds=counts.waited_seconds,
            act_share=act / total,
            env_share=env / total,
        )
