"""What a run leaves behind: the summary on the screen and in the run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from learner.checkpoints.runfolder import RunFolder
from learner.common.files import WriteFailed
from learner.ingest.behaviors import Behavior
from learner.observe.summary import BehaviorSummary, Summary, write_summary
from learner.observe.summary_table import print_summary
from learner.run.stopping import Stop
from learner.status.run_status import Picture

log = structlog.get_logger(__name__)


def write_ending(
    folder: RunFolder,
    picture: Picture,
    behaviors: Sequence[Behavior],
    models: Mapping[str, Path | None],
    stop: Stop,
    *,
    generation: int,
) -> bool:
    """Writes ``summary.json`` and prints the same as a table.

    Returns:
        Whether the file was written; a full disk costs the file, not the table.
    """
    summary = Summary(
        run_id=folder.run_id,
        generation=generation,
        stop_reason=stop.reason,
        behaviors={
            behavior.name: BehaviorSummary.of(
                picture.behavior_view(behavior),
                picture.milestones(behavior.name),
                picture.actor_numbers(behavior),
                models.get(behavior.name),
            )
            for behavior in behaviors
        },
        lockstep=picture.lockstep(),
    )
    is_written = True
    try:
        write_summary(folder.path, summary)
    except WriteFailed as error:
        log.error("summary_failed", error=str(error))
        is_written = False
    print_summary(summary)
    return is_written
