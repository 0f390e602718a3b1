"""What a run leaves behind: the summary on the screen and in the run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from learner.checkpoints.runfolder import RunFolder
from learner.files import WriteFailed
from learner.ingest.behaviors import Behavior
from learner.observe.summary import BehaviorSummary, Summary, write_summary
from learner.observe.summary_table import print_summary
from learner.picture import Picture

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a run ends.

    Attributes:
        reason: ``target_return``, ``max_steps``, ``max_wall_seconds``, ``signal``, ``operator``, ``trainer_failed``.
        final: actors exit; else they come back.
        error: what the trainer thread raised.
    """

    reason: str
    final: bool
    error: BaseException | None = None


def write_ending(
    folder: RunFolder,
    picture: Picture,
    behaviors: Sequence[Behavior],
    models: Mapping[str, Path | None],
    stop: Stop,
    *,
    generation: int,
) -> None:
    """Writes ``summary.json`` and prints the same as a table; a full disk costs the file, not the exit code."""
    summary = Summary(
        run_id=folder.run_id,
        generation=generation,
        stop_reason=stop.reason,
        behaviors={
            behavior.name: BehaviorSummary.of(
                picture.behavior_view(behavior), picture.milestones(behavior.name), models.get(behavior.name)
            )
            for behavior in behaviors
        },
    )
    try:
        write_summary(folder.path, summary)
    except WriteFailed as error:
        log.error("summary_failed", error=str(error))
    print_summary(summary)
