"""Progress of trainers: checks of the target return, and the summary at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import structlog

from learner.shared.exits import ExitCode, UserError
from learner.shared.files import WriteFailed
from learner.shared.observe.summary import Summary, write_summary
from learner.shared.observe.terminal import print_summary
from learner.shared.runfolder.runfolder import RunFolder
from learner.shared.settings.service import ServiceSettings
from learner.training.curriculum.lessons import Lessons
from learner.training.lockstep.barrier import Lockstep
from learner.training.trainers.base import Trainer
from learner.training.trainers.parts import Ending, RunPart, Trainers
from learner.training.trainers.roster import Roster

log = structlog.get_logger(__name__)


class Progress(RunPart):
    """Tracks which behaviors reached the target return, and ends the run if one is set.

    Args:
        target_return: Mean return to reach; None for a run without target.
        on_target: Ends the run; called after the turn that reached the target.
        count_updates: Returns the number of updates in this start of the learner.
        lessons: Lessons of the run; the target counts only in the last one of each parameter.

    Attributes:
        at_target: Behaviors whose mean return, over the full number of episodes, has reached the target.
    """

    def __init__(
        self,
        target_return: float | None,
        on_target: Callable[[], object],
        count_updates: Callable[[Trainers], int],
        *,
        lessons: Lessons,
    ) -> None:
        self.at_target: frozenset[str] = frozenset()
        self._target_return = target_return
        self._on_target = on_target
        self._count_updates = count_updates
        self._lessons = lessons

    def service_changed(self, service: ServiceSettings) -> None:
        """Takes over another target."""
        self._target_return = service.target_return

    def after_turn(self, trainers: Trainers) -> None:
        """Checks each trainer's mean return, which must hold without any one source, too."""
        if self._target_return is None or not self._lessons.are_last():
            return
        at_target = [name for name, trainer in trainers.items() if self._is_at_target(trainer, self._target_return)]
        if not at_target:
            return
        self.at_target = self.at_target.union(at_target)
        self._on_target()
        if self._count_updates(trainers) == 0:
            log.warning(
                "target_already_reached",
                behaviors=sorted(at_target),
                target_return=self._target_return,
                action="this run is finished: raise rollcast.target_return, or give a higher --target-return, to continue "
                "training, or start over with --force",
            )

    @staticmethod
    def _is_at_target(trainer: Trainer, target_return: float) -> bool:
        returns = trainer.reward_buffer
        mean = trainer.mean_return() if len(returns) == returns.maxlen else None
        if mean is None or mean < target_return:
            return False
        least = trainer.least_mean_return()
        return least is not None and least >= target_return


class SummaryWriter(RunPart):
    """Writes ``summary.json`` at the end of the run and prints its main numbers.

    Args:
        folder: Folder of the run.
        models: The final model of each behavior that has one, by the end of the run.
        roster: Tells how many actors joined in this start.
        lockstep: The rounds of a lock-step run; None for other runs.
        generation: Generation of this start of the learner.
    """

    def __init__(
        self,
        folder: RunFolder,
        models: Mapping[str, Path | None],
        roster: Roster,
        lockstep: Lockstep | None = None,
        *,
        generation: int,
    ) -> None:
        self._folder = folder
        self._models = models
        self._lockstep = lockstep
        self._roster = roster
        self._generation = generation

    def finish(self, trainers: Trainers, ending: Ending) -> bool:
        """Writes the file and prints its main numbers; a full disk costs only the file."""
        del trainers
        error = ending.error
        if ending.is_superseded:
            return True  # the summary is the other learner's
        if ending.reason == "error" or (isinstance(error, UserError) and error.exit_code is ExitCode.BAD_CHECKPOINT):
            return True  # nothing was trained: the summary of the previous start stays
        models = {name: str(path) for name, path in self._models.items() if path is not None}
        summary = Summary(
            run_id=self._folder.run_id,
            generation=self._generation,
            stop_reason=ending.reason,
            behaviors={name: replace(each, onnx_path=models.get(name)) for name, each in ending.summaries.items()},
            lockstep=None if self._lockstep is None else self._lockstep.view(),
            actors_opened=0 if self._roster.view is None else self._roster.view.actors_opened,
        )
        file = None
        try:
            file = write_summary(self._folder.path, summary)
        except WriteFailed as failure:
            log.error("summary_failed", error=str(failure))
        print_summary(summary, file=file)
        return file is not None
