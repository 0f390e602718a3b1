"""Prints the lines of ``mlagents-learn``, one per summary of a behavior, for people and scripts that expect them."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from typing import TextIO

from rollcast.text import printable

from learner.shared.observe.stats import StatSummary

IS_TRAINING = "Is Training"
"""Statistic that is 1 while a behavior learns and 0 once it only acts; used by the console only."""
REWARD = "Environment/Cumulative Reward"
GROUP_REWARD = "Environment/Group Cumulative Reward"
RATING = "Self-play/ELO"


class ConsoleWriter:
    """Prints a line per summary on standard output and flushes it at once.

    ::

        [INFO] 3DBall. Step: 12000. Time Elapsed: 39.274 s. Mean Reward: 1.164. Std of Reward: 0.723. Training.

    With groups the line has their mean reward instead of the standard deviation; with self-play it adds the rating.

    Args:
        stream: Output stream; None for standard output.
        clock: Returns monotonic seconds; the elapsed time counts from the construction.
    """

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._began = clock()

    def write(self, category: str, summaries: Mapping[str, StatSummary], step: int) -> None:
        """Prints the line of a summary; the last summary of a run has no line unless an episode ended in it.

        Raises:
            OSError: The output is closed or cannot be written.
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
        """Does nothing; the hyperparameters are in the run folder."""

    def restart(self, category: str, step: int) -> None:
        """Does nothing; printed lines stay."""

    def close(self) -> None:
        """Does nothing; standard output stays open."""


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
