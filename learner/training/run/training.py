"""Creates the trainers' side of a run that ``serve`` trains; each part is built from earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import structlog
from rollcast.history import open_learner_history
from rollcast.text import printable

from learner.link.channel import Link
from learner.link.control import Finished
from learner.link.opening import Begin, GiveUp, Opened
from learner.link.to_front import Assign, Send
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.stats import GAME, MODEL
from learner.shared.runfolder.choice import BEST_FILE, load_chosen
from learner.shared.runfolder.names import CONFIGURATION, LAST
from learner.shared.runfolder.runfolder import RunFolder, must_fit
from learner.shared.runfolder.snapshots import SnapshotFiles
from learner.shared.runfolder.store import CheckpointStore, SavedRunState
from learner.shared.saved_values import reason
from learner.shared.settings.layers import leaves
from learner.shared.settings.load import LoadedRun
from learner.shared.settings.options import RunOptions
from learner.shared.settings.rules import sources_of_code
from learner.shared.settings.yaml_reader import read_document
from learner.training.callbacks.base import (
    CheckpointSaved,
    EpisodesFinished,
    Event,
    PolicyUpdated,
    RunEnded,
    RunRequests,
    RunStarted,
)
from learner.training.callbacks.runner import CallbackRunner, load_callbacks
from learner.training.curriculum.lessons import LessonChange, Lessons
from learner.training.lockstep.barrier import Lockstep
from learner.training.matches.during_training import EvaluationManager
from learner.training.matches.game_records import GameRecords
from learner.training.matches.opponents import EvaluationOpponents
from learner.training.matches.self_play import SelfPlayManager
from learner.training.optimizers.reduce import Reduce
from learner.training.run.checkpointing import STATUS, CheckpointKeeper
from learner.training.run.context import RunContext
from learner.training.run.progress import Progress, SummaryWriter
from learner.training.run.record import RunRecord
from learner.training.run.requirements import saved_specs
from learner.training.run.run import Run, Training
from learner.training.run.setup import SEED_PART, Configuration, choose_seed
from learner.training.run.statistics import Statistics
from learner.training.run.steering import Steering
from learner.training.run.writers import writers_of
from learner.training.trainers.base import Trainer
from learner.training.trainers.companions.turns import CompanionTurns
from learner.training.trainers.memory_estimate import require_resumed_fit
from learner.training.trainers.parts import Ending, RunPart, Trainers

log = structlog.get_logger(__name__)
_OF_NETWORKS: Final = (
    ("trainer_type",),
    ("network_settings",),
    ("reward_signals",),
    ("hyperparameters", "shared_critic"),
)
"""Settings that decide which networks a behavior has."""
_MAX_NAMED: Final = 5


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
        link: As given.
        opened: What the service continues from.
        context: Shared state of trainers and parts.
        record, callbacks: Parts that are told of the run.
        run: The trainers and the parts.
    """

    def __init__(self, loaded: LoadedRun, folder: RunFolder, link: Link, reduce: Reduce | None = None) -> None:
        self.link = link
        self._folder = folder
        checkpoints = CheckpointStore(folder)
        state = checkpoints.load_run_state() if folder.resuming else None
        generation = folder.next_generation(at_least=0 if state is None else state.generation)
        self.context = context = RunContext(
            loaded.options,
            link,
            run_id=folder.run_id,
            generation=generation,
            seed=choose_seed(loaded.options, {} if state is None else state.extra),
            folder=folder.path,
            history=open_learner_history(generation),
            reduce=reduce,
        )
        configuration = Configuration(loaded, folder, context.seed)
        self.record = RunRecord(
            folder.path,
            generation=generation,
            resumed=folder.resuming,
            seed=context.seed,
            roster=context.roster,
            code=sources_of_code(loaded.options),
            is_superseded=lambda: folder.is_superseded,
        )
        self.callbacks = Callbacks(context.service.callbacks, folder.path, resumed=folder.resuming)
        self.run = Run(context)
        lockstep = self._make_lockstep()
        rounds = () if lockstep is None else (lockstep,)
        snapshots = SnapshotFiles(folder.path)
        self_play = self._make_self_play(checkpoints, snapshots)
        records = GameRecords(folder.path, context.meters, on_written=lambda *game: self._statistics.keep(GAME, *game))
        opponents = EvaluationOpponents(context.service.evaluation, folder.path, snapshots, records)
        steering = Steering(context.service, context.lessons, self.run.service_changed, self.record.note_change)
        keeper = self._make_keeper(checkpoints, (self_play, opponents, steering, *rounds), lockstep, state)
        if state is None:
            configuration.keep()
        curriculum = CurriculumController(
            context.lessons, keeper.save_lessons, link.to_front.send, lockstep, on_begun=self.record.note_lesson
        )
        progress = Progress(
            context.service.target_return,
            lambda: self.run.end("target_return"),
            keeper.updates,
            lessons=context.lessons,
        )
        self._evaluations = evaluations = self._make_evaluations(checkpoints, opponents)
        self._statistics = statistics = self._make_statistics(loaded)
        summary = SummaryWriter(folder, keeper.models, context.roster, lockstep, generation=generation)
        companions = CompanionTurns(lockstep)
        turns = steering, configuration, companions, curriculum, progress, evaluations, self_play, *rounds, keeper
        parts = *turns, statistics, summary, self.record, self.callbacks
        self.run.take(parts, statistics, Training(keeper, evaluations, progress, steering, lockstep))
        self.opened = self._opened(state)
        link.to_trainers.divert(Begin, self._begin)
        link.to_trainers.divert(GiveUp, lambda message: self.run.give_up(RuntimeError(message.error)))

    def close(self, *, is_over: bool = False) -> None:
        """Does nothing: the threads end with the run."""

    def _opened(self, state: SavedRunState | None) -> Opened:
        context = self.context
        found = Opened(context.generation, context.seed, str(context.device), context.lessons.assignment())
        if state is None:
            return found
        return replace(
            found,
            books={"behaviors": state.behaviors_table, "ledger": state.ledger, "sessions": state.sessions},
            status=state.extra[STATUS],
            trained=frozenset(state.trainers),
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
                    evaluate=self._evaluations.request,
                ),
            )
        )
        self.run.start()

    def _note_saved(self, behavior: str, step: int, path: Path) -> None:
        self.record.note_saved(behavior, step, path)
        self.callbacks.tell(CheckpointSaved(behavior, step, path))
        if path.name != BEST_FILE:  # it comes too often
            self._statistics.keep(MODEL, behavior, path.with_suffix(".onnx"))

    def _note_not_saved(self, reason: str) -> None:
        self.run.reporting.last_error = reason
        self.record.note_not_saved(reason)

    def _make_lockstep(self) -> Lockstep | None:
        context = self.context
        if context.service.lockstep is None:
            return None
        return Lockstep(
            context.service.lockstep,
            context.roster,
            context.lessons,
            send=context.link.to_front.send,
            is_ending=lambda: self.run.loop.is_stopping,
            on_spoiled=self.record.note_spoiled,
            conductor=context.conductor,
            ranks=context.reduce.ranks,
        )

    def _make_keeper(
        self,
        checkpoints: CheckpointStore,
        parts: Sequence[RunPart],
        lockstep: Lockstep | None,
        state: SavedRunState | None,
    ) -> CheckpointKeeper:
        """Creates the keeper that saves the run, and restores a saved state.

        Raises:
            UserError: The state does not fit.
        """
        context = self.context
        keeper = CheckpointKeeper(
            checkpoints,
            parts,
            cut=self.run.loop.cut,
            generation=context.generation,
            checkpoint_seconds=context.service.checkpoint_seconds,
            extra={SEED_PART: {"run": context.seed}},
            on_saved=self._note_saved,
            on_not_saved=self._note_not_saved,
            metrics=context.meters.checkpoints,
            lessons=context.lessons,
            resume_checkpoint=context.service.resume_checkpoint,
            lockstep=lockstep,
            history=context.history,
        )
        if state is not None:
            require_resumable(context.options, checkpoints, state)
            with must_fit(self._folder.run_state):
                keeper.restore(state)
        keeper.restore_lessons()
        return keeper

    def _make_statistics(self, loaded: LoadedRun) -> Statistics:
        folder, video = self._folder, self.context.service.video
        return Statistics(
            self.context.meters,
            writers_of(loaded, folder),
            resumed=folder.resuming,
            settings=folder.path / CONFIGURATION,
            videos=None if video is None else Path(video),
        )

    def _make_self_play(self, checkpoints: CheckpointStore, snapshots: SnapshotFiles) -> SelfPlayManager:
        context = self.context
        return SelfPlayManager(
            context.options,
            context.roster,
            context.link.to_front.send,
            snapshots,
            seed=context.seed,
            generation=context.generation,
            on_elo=checkpoints.status.set_elo,
            on_target=lambda: self.run.end("target_rating"),
            lessons=context.lessons,
        )

    def _make_evaluations(self, checkpoints: CheckpointStore, opponents: EvaluationOpponents) -> EvaluationManager:
        context = self.context
        return EvaluationManager(
            context.service,
            checkpoints,
            context.roster,
            context.link.to_front.send,
            opponents,
            generation=context.generation,
            lessons=context.lessons,
            meters=context.meters,
            on_result=self.record.note_evaluation,
            on_saved=self._note_saved,
            on_not_saved=self.record.note_not_saved,
        )


@dataclass(frozen=True, slots=True)
class _Seen:
    version: int = 0
    episodes: int = 0


class Callbacks(RunPart):
    """Runs each callback in a separate thread, so that it cannot disturb the trainers.

    Args:
        names: Names of the callbacks in the run file.
        folder: Folder of the run.
        resumed: Whether the run continues from a checkpoint; earlier events are not reported.

    Raises:
        UserError: A callback cannot be created.
    """

    def __init__(self, names: Sequence[str], folder: Path, *, resumed: bool) -> None:
        made = load_callbacks(names)
        self._runners = tuple(CallbackRunner(name, callback) for name, callback in made)
        self._folder = folder
        self._resumed = resumed
        self._seen: dict[str, _Seen] = {}

    def tell(self, event: Event) -> None:
        """Passes an event to all callbacks; callable from any thread."""
        for runner in self._runners:
            runner.tell(event)

    def after_turn(self, trainers: Trainers) -> None:
        """Reports finished episodes and new versions."""
        if self._runners:
            for name, trainer in trainers.items():
                self._look(name, trainer)

    def finish(self, trainers: Trainers, ending: Ending) -> bool:
        """Reports the end of the run and waits a while until each callback has received it."""
        del trainers
        for runner in self._runners:
            runner.end(RunEnded(ending.reason, ending.error_text, self._folder))
        return True

    def _look(self, behavior: str, trainer: Trainer) -> None:
        now = _Seen(trainer.version, trainer.episodes)
        before = self._seen.get(behavior, None if self._resumed else _Seen())
        self._seen[behavior] = now
        if before is None or before == now:
            return
        finished = now.episodes - before.episodes
        if finished > 0:
            self.tell(EpisodesFinished(behavior, now.episodes, finished, tuple(trainer.reward_buffer)[-finished:]))
        if now.version > before.version:
            stats = trainer.stats()
            self.tell(
                PolicyUpdated(
                    behavior=behavior,
                    version=stats.version,
                    env_steps_trained=stats.env_steps_trained,
                    episodes=stats.episodes,
                    mean_return=stats.mean_return,
                    numbers=stats.numbers,
                )
            )


class CurriculumController(RunPart):
    """Begins due lessons and saves them.

    Args:
        lessons: Lessons of the run.
        save: Writes the current lessons.
        send: Sends the service the assignment of a new lesson.
        lockstep: Begins lessons with its rounds and saves them with its checkpoints; None for runs without lock-step.
        on_begun: Called with each lesson that begins.
    """

    def __init__(
        self,
        lessons: Lessons,
        save: Callable[[Trainers], object],
        send: Send,
        lockstep: Lockstep | None = None,
        *,
        on_begun: Callable[[LessonChange], object],
    ) -> None:
        self._lessons = lessons
        self._save = save
        self._lockstep = lockstep
        self._send = send
        self._on_begun = on_begun

    def after_turn(self, trainers: Trainers) -> None:
        """Begins due lessons.

        Lessons are saved first: a learner killed now continues with a revision that no actor has seen under other
        lessons.
        """
        changes = self._lessons.take_changes()
        if not changes:
            return
        for change in changes:
            log.info(
                "lesson_begun",
                parameter=change.parameter,
                lesson=change.lesson,
                number=change.number + 1,
                of=change.lessons,
                completed=change.completed,
                reset=change.require_reset,
            )
            self._on_begun(change)
        resets = any(change.require_reset for change in changes)
        if self._lockstep is not None:
            self._lockstep.note_lessons(reset=resets)
            return
        self._save(trainers)
        assignment = self._lessons.assignment(reset=resets)
        if assignment is not None:
            self._send(Assign(assignment))


def require_resumable(options: RunOptions, store: CheckpointStore, state: SavedRunState) -> None:
    """Checks that the networks of the run file are those of the run that is resumed.

    Raises:
        UserError: They are not; the message has each changed setting, its old and its new value.
    """
    folder, choice = store.folder.path, options.rollcast.resume_checkpoint
    for name, spec in saved_specs(state).items():
        saved = state.trainers.get(name)
        if saved is None:
            continue
        if choice != LAST:
            saved = load_chosen(folder, name, choice, store.status).state
        settings = options.settings_for(name)
        try:
            require_resumed_fit(spec, settings, saved)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            changed = _changes(folder, name, settings.model_dump(mode="json"))
            raise UserError(
                ExitCode.BAD_CHECKPOINT,
                f"the saved state of {name} does not fit the run file: {changed or reason(error)}; restore what it was, start a "
                "new run with another --run-id, or start over with --force",
            ) from error


def _changes(folder: Path, name: str, new: Mapping[str, Any]) -> str:
    """Returns the settings of networks that differ from those of the run's last start; empty if none is known."""
    try:
        tree: Any = read_document(folder / CONFIGURATION).tree
    except UserError:
        return ""
    behaviors = tree.get("behaviors")
    old = behaviors.get(name) if isinstance(behaviors, dict) else None
    old = tree.get("default_settings") if old is None else old
    if not isinstance(old, dict):
        return ""
    paths = [
        path
        for path in dict.fromkeys((*leaves(old), *leaves(dict(new))))
        if any(path[: len(prefix)] == prefix for prefix in _OF_NETWORKS) and _at(old, path) != _at(new, path)
    ]
    found = [f"{'.'.join(path)} was {_at(old, path)}, is {_at(new, path)}" for path in paths[:_MAX_NAMED]]
    return printable("; ".join([*found, *([f"and {len(paths) - _MAX_NAMED} more"] if len(paths) > _MAX_NAMED else [])]))


def _at(tree: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """Returns the value at a path; "null" without one."""
    found: Any = tree
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return "null" if found is None else found
