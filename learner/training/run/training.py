"""Creates the trainers' side of a run that ``serve`` trains; each part is built from earlier ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rollcast.history import open_learner_history

from learner.link.channel import Link
from learner.link.control import Finished
from learner.link.opening import Begin, GiveUp, Opened
from learner.shared.observe.stats import StatsWriter
from learner.shared.runfolder.fitting import must_fit
from learner.shared.runfolder.runfolder import RunFolder
from learner.shared.runfolder.snapshots import SnapshotFiles
from learner.shared.runfolder.store import CheckpointStore, SavedRunState
from learner.shared.settings.load import LoadedRun
from learner.training.callbacks.base import CheckpointSaved, RunRequests, RunStarted
from learner.training.lockstep.barrier import Lockstep
from learner.training.matches.during_training import EvaluationManager
from learner.training.matches.game_records import GameRecords
from learner.training.matches.opponents import EvaluationOpponents
from learner.training.matches.self_play import SelfPlayManager
from learner.training.optimizers.reduce import Reduce
from learner.training.run.callbacks import Callbacks
from learner.training.run.checkpointing import STATUS, CheckpointKeeper
from learner.training.run.context import RunContext
from learner.training.run.curriculum import CurriculumController
from learner.training.run.progress import Progress, SummaryWriter
from learner.training.run.record import RunRecord
from learner.training.run.run import Run, Training
from learner.training.run.saved_fit import require_resumable
from learner.training.run.setup import SEED_PART, Configuration, choose_seed
from learner.training.run.statistics import Statistics
from learner.training.run.writers import writers_of
from learner.training.trainers.parts import Trainers


class TrainingSide:
    """The trainers' side of one start of a learner that trains.

    It starts with the service's `Begin`, and gives up with its `GiveUp`.

    Args:
        loaded: The settings and their sources.
        folder: The run folder, open.
        link: Link to the service.
        reduce: Combines numbers over the ranks; None for a single learner.

    Raises:
        UserError: The state to resume from cannot be read or does not fit.

    Attributes:
        opened: What the service continues from.
        context: Shared state of trainers and parts.
        run: The trainers and the parts.
        keeper, evaluations, self_play, lockstep, record, callbacks: Parts of the run that other parts call.
    """

    def __init__(self, loaded: LoadedRun, folder: RunFolder, link: Link, reduce: Reduce | None = None) -> None:
        options = loaded.options
        checkpoints = CheckpointStore(folder)
        state = checkpoints.load_run_state() if folder.resuming else None
        self._folder = folder
        generation = folder.next_generation(at_least=0 if state is None else state.generation)
        self.context = context = RunContext(
            options,
            link,
            run_id=folder.run_id,
            generation=generation,
            seed=choose_seed(options, {} if state is None else state.extra),
            folder=folder.path,
            history=open_learner_history(generation),
            reduce=reduce,
        )
        configuration = Configuration(loaded, folder, context.seed)
        self.record = RunRecord(
            folder.path,
            generation=context.generation,
            resumed=folder.resuming,
            seed=context.seed,
            roster=context.roster,
            is_superseded=lambda: folder.is_superseded,
        )
        self.callbacks = Callbacks(options.rollcast.callbacks, folder.path, resumed=folder.resuming)
        progress = Progress(
            context.service.target_return,
            lambda: self._end_at("target_return"),
            self._count_updates,
            lessons=context.lessons,
        )
        self.lockstep = self._make_lockstep()
        curriculum = CurriculumController(
            context.lessons,
            self._save_lessons,
            context.link.to_front.send,
            self.lockstep,
            on_begun=self.record.note_lesson,
        )
        self._snapshots = SnapshotFiles(folder.path)
        self.self_play = self._make_self_play(checkpoints)
        self._opponents = EvaluationOpponents(
            context.service.evaluation,
            folder.path,
            self._snapshots,
            GameRecords(folder.path, context.meters),
        )
        self.keeper = self._make_keeper(checkpoints, state, curriculum)
        if state is None:
            configuration.keep()
        self.evaluations = self._make_evaluations(checkpoints)
        self.run = self._make_run(configuration, curriculum, progress, writers_of(loaded, folder))
        self.opened = self._opened(state)
        link.to_trainers.divert(Begin, self._begin)
        link.to_trainers.divert(GiveUp, lambda message: self.run.give_up(RuntimeError(message.error)))

    def close(self, *, is_over: bool = False) -> None:
        """Does nothing: the threads end with the run."""
        del is_over

    def _opened(self, state: SavedRunState | None) -> Opened:
        context = self.context
        found = Opened(context.generation, context.seed, str(context.device), context.lessons.assignment())
        if state is None:
            return found
        return replace(
            found,
            books={"behaviors": state.behaviors_table, "ledger": state.ledger, "sessions": state.sessions},
            # States saved before parts had names hold clocks and curves next to the other states.
            status=state.extra.get(STATUS, state.extra),
            trained=frozenset(state.trainers),
        )

    def _make_run(
        self,
        configuration: Configuration,
        curriculum: CurriculumController,
        progress: Progress,
        writers: Sequence[StatsWriter],
    ) -> Run:
        """Puts the parts in their calling order."""
        statistics = Statistics(self.context.meters, writers, resumed=self._folder.resuming)
        rounds = () if self.lockstep is None else (self.lockstep,)
        ending = (statistics, self._make_summary(), self.record, self.callbacks)
        return Run(
            self.context,
            (configuration, curriculum, progress, self.evaluations, self.self_play, *rounds, self.keeper, *ending),
            trains=Training(
                self.keeper,
                self.keeper.save_all,
                obstacle=lambda: self.evaluations.obstacle,
                at_target=lambda: progress.at_target,
                require_newest=self._folder.require_newest,
                lockstep=self.lockstep,
            ),
            statistics=statistics,
        )

    def _begin(self, message: Begin) -> None:
        context, bound = self.context, message.bound
        self.record.begin(bound.address)
        self.callbacks.tell(
            RunStarted(
                run_id=context.run_id,
                folder=self._folder.path,
                generation=context.generation,
                resumed=self._folder.resuming,
                seed=context.seed,
                address=bound.address,
                requests=RunRequests(
                    stop=lambda: context.link.to_front.send(Finished("callback")),
                    save_checkpoint=self.run.loop.request_save,
                    evaluate=self.evaluations.request,
                ),
            )
        )
        self.run.start()

    def _end_at(self, reason: str) -> None:
        """Ends the run now, before the event loop learns of it, so that the final figures are the current ones."""
        self.run.loop.stop()
        self.context.link.to_front.send(Finished(reason))

    def _note_saved(self, behavior: str, step: int, path: Path) -> None:
        self.record.note_saved(behavior, step, path)
        self.callbacks.tell(CheckpointSaved(behavior, step, path))

    def _note_not_saved(self, reason: str) -> None:
        self.run.reporting.last_error = reason
        self.record.note_not_saved(reason)

    # Parts created before the run and its keeper receive methods, which are first called when both exist.

    def _is_ending(self) -> bool:
        return self.run.loop.is_stopping

    def _count_updates(self, trainers: Trainers) -> int:
        return self.keeper.updates(trainers)

    def _save_lessons(self, trainers: Trainers) -> None:
        self.keeper.save_lessons(trainers)

    def _save_round(self, trainers: Trainers) -> None:
        self.keeper.save_round(trainers)

    def _cut(self) -> Mapping[str, Any]:
        return self.run.loop.cut()

    def _make_summary(self) -> SummaryWriter:
        lockstep, roster = self.lockstep, self.context.roster
        return SummaryWriter(
            self._folder,
            lambda: self.keeper.models,
            (lambda: None) if lockstep is None else lockstep.view,
            lambda: 0 if roster.view is None else roster.view.actors_opened,
            generation=self.context.generation,
        )

    def _make_lockstep(self) -> Lockstep | None:
        context = self.context
        if context.service.lockstep is None:
            return None
        return Lockstep(
            context.service.lockstep,
            context.roster,
            context.lessons,
            send=context.link.to_front.send,
            save=self._save_round,
            is_ending=self._is_ending,
            on_spoiled=self.record.note_spoiled,
            conductor=context.conductor,
            ranks=context.reduce.ranks,
        )

    def _make_keeper(
        self,
        checkpoints: CheckpointStore,
        state: SavedRunState | None,
        curriculum: CurriculumController,
    ) -> CheckpointKeeper:
        """Creates the keeper that saves the run, and restores a saved state.

        Raises:
            UserError: The state does not fit.
        """
        context = self.context
        keeper = CheckpointKeeper(
            checkpoints,
            (curriculum, self.self_play, self._opponents, *(() if self.lockstep is None else (self.lockstep,))),
            cut=self._cut,
            generation=context.generation,
            checkpoint_seconds=context.service.checkpoint_seconds,
            extra={SEED_PART: {"run": context.seed}},
            on_saved=self._note_saved,
            on_not_saved=self._note_not_saved,
            metrics=context.meters.checkpoints,
            lessons=context.lessons,
            resume_checkpoint=context.service.resume_checkpoint,
            lockstep=self.lockstep,
            history=context.history,
        )
        if state is not None:
            require_resumable(context.options, checkpoints, state)
            with must_fit(self._folder.run_state):
                keeper.restore(state)
        keeper.restore_lessons()
        return keeper

    def _make_self_play(self, checkpoints: CheckpointStore) -> SelfPlayManager:
        context = self.context
        return SelfPlayManager(
            context.options,
            context.roster,
            context.link.to_front.send,
            self._snapshots,
            seed=context.seed,
            generation=context.generation,
            on_elo=checkpoints.status.set_elo,
            on_target=lambda: self._end_at("target_rating"),
            lessons=context.lessons,
        )

    def _make_evaluations(self, checkpoints: CheckpointStore) -> EvaluationManager:
        context = self.context
        return EvaluationManager(
            context.service,
            checkpoints,
            context.roster,
            context.link.to_front.send,
            self._opponents,
            generation=context.generation,
            lessons=context.lessons,
            meters=context.meters,
            on_result=self.record.note_evaluation,
            on_saved=self._note_saved,
            on_not_saved=self.record.note_not_saved,
        )
