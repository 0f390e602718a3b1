"""The lines that ``mlagents-learn`` prints: one at each summary of a behavior, for people and scripts that know them."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from typing import TextIO

from learner.observe.stats import StatSummary
from learner.observe.text import printable

IS_TRAINING = "Is Training"
"""1 while a behavior learns, 0 once it only acts; shown here and nowhere else."""
REWARD = "Environment/Cumulative Reward"
GROUP_REWARD = "Environment/Group Cumulative Reward"
RATING = "Self-play/ELO"


class ConsoleWriter:
    """Prints a line per summary on standard output, flushed at once.

    ::

        [INFO] 3DBall. Step: 12000. Time Elapsed: 39.274 s. Mean Reward: 1.164. Std of Reward: 0.723. Training.

    With groups it has their mean reward in place of the spread, with self-play the rating besides.

    Args:
        stream: where to, instead of standard output.
        clock: monotonic seconds; the time elapsed counts from now.
    """

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._began = clock()

    def write(self, category: str, summaries: Mapping[str, StatSummary], step: int) -> None:
        """Prints the line of a summary; what is left at the end of a run has none unless an episode ended in it.

        Raises:
            OSError: nobody reads the output any more, or it cannot be written.
        """
        if IS_TRAINING not in summaries and REWARD not in summaries:
            return
        parts = [printable(category), f"Step: {step}", f"Time Elapsed: {self._clock() - self._began:.3f} s"]
        parts += _rewards(summaries)
        parts.append("Training" if _value(summaries, IS_TRAINING) else "Not Training")
        stream = sys.stdout if self._stream is None else self._stream
        stream.write(f"[INFO] {'. '.join(parts)}.\n")
        stream.flush()

    def write_text(self, category: str, title: str, text: str, step: int) -> None:
        """Leaves texts to other writers; the hyperparameters are in the run folder."""

    def restart(self, category: str, step: int) -> None:
        """Needs nothing: what was printed was printed."""

    def close(self) -> None:
        """Leaves standard output open."""


def _rewards(summaries: Mapping[str, StatSummary]) -> list[str]:
    reward = summaries.get(REWARD)
    if reward is None:
        return ["No episode ended since the last summary"]
    parts = [f"Mean Reward: {reward.mean:.3f}"]
    group = summaries.get(GROUP_REWARD)
    parts.append(f"Std of Reward: {reward.std:.3f}" if group is None else f"Mean Group Reward: {group.mean:.3f}")
    if RATING in summaries:
        parts.append(f"ELO: {summaries[RATING].value:.3f}")
    return parts


def _value(summaries: Mapping[str, StatSummary], key: str) -> bool:
    summary = summaries.get(key)
    return summary is not None and math.isfinite(summary.value) and summary.value > 0
