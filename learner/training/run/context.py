"""Context of every run, training or acting: settings, device, and objects shared by trainers and parts."""

from __future__ import annotations

from pathlib import Path

from rollcast.history import History

from learner.link.channel import Link
from learner.shared.observe.meters import RunMeters
from learner.shared.observe.values import EPISODE_RETURN
from learner.shared.settings.options import RunOptions
from learner.training.curriculum.lessons import Lessons
from learner.training.optimizers.reduce import Reduce, SingleLearner
from learner.training.run.setup import choose_device, keep_freed_memory
from learner.training.trainers.conductor import Conductor
from learner.training.trainers.roster import Roster


class RunContext:
    """Everything that the parts of a run share.

    Args:
        options: The run file.
        link: Link to the service.
        run_id: Name of the run.
        generation: Number of this start; grows with each start of the learner.
        seed: Seed from which the seeds of trainers and environments derive.
        folder: The run folder; None for a run without one.
        history: Records what happens to each chunk; None without a history.
        reduce: Combines numbers over the ranks; None for a single learner.

    Raises:
        UserError: The device cannot be used.

    Attributes:
        options, service: The run file, and its settings of the service.
        run_id, generation, seed, device, folder: Properties of this start.
        link: Link to the service.
        roster: The newest information of the service about actors and run.
        meters: Counters of the run.
        lessons: Lessons that set the environment parameters.
        reduce, conductor: Combines numbers over the ranks, and tells the other ranks what this one does.
        history: Records what happens to each chunk; None without a history.
    """

    def __init__(
        self,
        options: RunOptions,
        link: Link,
        *,
        run_id: str,
        generation: int,
        seed: int,
        folder: Path | None = None,
        history: History | None = None,
        reduce: Reduce | None = None,
    ) -> None:
        self.reduce: Reduce = reduce or SingleLearner()
        conducts = self.reduce.ranks > 1 and self.reduce.rank == 0
        self.conductor = Conductor(link.to_front.send if conducts else None)
        self.history = history
        self.options = options
        self.service = options.rollcast
        self.link = link
        self.run_id = run_id
        self.generation = generation
        self.seed = seed
        self.folder = folder
        keep_freed_memory()
        self.device = choose_device(options, self.reduce.rank, self.reduce.ranks)
        self.roster = Roster()
        self.meters = RunMeters(self.service.return_buckets or EPISODE_RETURN)
        self.lessons = Lessons(options.environment_parameters, seed=seed, present=self.roster.sources)
