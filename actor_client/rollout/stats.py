"""Where the time of the stepping thread goes, measured on few steps so that measuring costs nothing."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

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
        clock: Monotonic seconds.
    """

    __slots__ = ("_act", "_begun", "_clock", "_env", "_total", "clock", "wait_seconds")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._begun = clock()
        self._act = self._env = self._total = 0.0
        self.wait_seconds = 0.0

    def add(self, begun: float, acted: float, stepped: float) -> None:
        """Adds one timed step, which ends now.

        Args:
            begun: When the step began, in monotonic seconds.
            acted: When its actions were chosen.
            stepped: When the environments had taken them.
        """
        self._act += acted - begun
        self._env += stepped - acted
        self._total += self.clock() - begun

    def stats(self, *, steps: int, episodes: int, env_failures: int, unusable_episodes: int) -> RolloutStats:
        """Returns what is known by now."""
        total = self._total or 1.0
        return RolloutStats(
            steps=steps,
            episodes=episodes,
            env_failures=env_failures,
            unusable_episodes=unusable_episodes,
            seconds=self.clock() - self._begun,
            wait_seconds=self.wait_seconds,
            act_share=self._act / total,
            env_share=self._env / total,
        )
