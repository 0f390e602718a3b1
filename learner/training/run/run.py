"""The trainers' side of a run from start to end: trainers take turns between the parts, which then save their results.

One thread runs the trainers and the parts, one estimates the memory of declarations, and one ends the run when the service requests it.
`learner.start.training` creates the parts of a run that trains, other commands the parts of runs that only act.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

import structlog
import torch
from rollcast.text import in_one_line

from learner.link.control import Close, Closed, Failed, Finished, Request, SettingChange, Stopped
from learner.link.footprint import EstimateMemory
from learner.link.to_trainers import Declared
from learner.shared.descriptors import causes, with_descriptors
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.logs import LOG_FILE
from learner.shared.plugins import place_of
from learner.shared.settings.service import ServiceSettings
from learner.training.export.describe import describe
from learner.training.export.publisher import PolicyPublisher
from learner.training.lockstep.barrier import Lockstep
from learner.training.matches.during_training import EvaluationManager
from learner.training.matches.frozen_trainer import FrozenTrainer
from learner.training.networks.policy import PolicyNetwork
from learner.training.run.checkpointing import CheckpointKeeper
from learner.training.run.context import RunContext
from learner.training.run.progress import Progress
from learner.training.run.setup import gpu_use
from learner.training.run.statistics import Statistics
from learner.training.run.steering import Steering
from learner.training.trainers import registry
from learner.training.trainers.base import Trainer, TrainerContext
from learner.training.trainers.companions.group import build_companions
from learner.training.trainers.loop import TrainerLoop
from learner.training.trainers.memory_estimate import EstimatorThread, load_meta_device
from learner.training.trainers.outcome_report import ExperienceQueue
from learner.training.trainers.parts import Ending, RunPart
from learner.training.trainers.reporting import Reporting, Sources

log = structlog.get_logger(__name__)

_END_SECONDS = 5.0
"""Seconds that the end waits for the trainers' thread, which has announced its stop or hangs."""
_FAILURES: Final = MappingProxyType(
    {ExitCode.DEVICE_FAILED: "the training device failed", ExitCode.OUT_OF_MEMORY: "memory ran out"}
)
_MEMORY: Final = ("out of memory", "can't allocate memory", "not enough memory", "ALLOC_FAILED")
"""Texts of errors for which torch has no class: of its allocator of host memory, and of CUDA's libraries."""
_DEVICE: Final = ("CUDA error", "CUDA driver error", "cuDNN error", "HIP error", "MPS backend")


def seed_of(context: RunContext, behavior: Declared) -> int:
    """Returns the seed of a behavior's trainer."""
    # In lock-step it derives from the name, because behaviors are declared in any order.
    place = behavior.index if context.service.lockstep is None else zlib.crc32(behavior.name.encode())
    return context.seed + place


def failure_of(error: BaseException, folder: Path | None) -> UserError:
    """Returns the error that the command prints as its last line.

    Args:
        error: The error that ended the trainers.
        folder: The run folder; None for a run without one.
    """
    if isinstance(error, UserError):
        return error
    code = exit_code_of(error)
    what, place = _FAILURES.get(code, "the trainer failed"), place_of(error)
    where = "in the log" if folder is None else f"in {folder / LOG_FILE}"
    return UserError(code, f"{what}: {in_one_line(error)}{place and f' ({place})'}; the traceback is {where}")


@dataclass(frozen=True, slots=True)
class Training:
    """The parts of a run that trains which the run itself calls.

    Attributes:
        keeper: Saves the run.
        evaluations: Tells why no actor trains while all play an evaluation.
        progress: Tells which behaviors have reached the target.
        steering: Changes settings.
        lockstep: Plays the rounds; None without lock-step.
    """

    keeper: CheckpointKeeper
    evaluations: EvaluationManager
    progress: Progress
    steering: Steering
    lockstep: Lockstep | None = None


@dataclass(frozen=True, slots=True)
class Acting:
    """Settings of a run that does not train.

    Attributes:
        is_deterministic: Whether the mode of the distribution acts; None leaves this to the run file.
    """

    is_deterministic: bool | None = None


class Run:
    """Trainers and parts of one start of a learner.

    Args:
        context: Context of the run.
        acting: Settings of a run that acts with finished policies; None for a run that trains.

    Attributes:
        context: Context of the run.
        loop: Runs the trainers.
        reporting: Reports the trainers' state to the service.
    """

    def __init__(self, context: RunContext, acting: Acting | None = None) -> None:
        self.context = context
        self._parts: list[RunPart] = []
        self._acting = acting
        self._training: Training | None = None
        self._statistics: Statistics
        self._has_begun = self._has_finished = False
        self._lock = threading.Lock()
        self._error: BaseException | None = None  # error that ended the trainers
        link = context.link
        sources = Sources(context.meters, lessons=context.lessons.view, gpu=gpu_use(context.device))
        self.reporting = Reporting(link.to_front.send, sources)
        self.loop = TrainerLoop(
            link,
            self._build,
            self._parts,
            save=self._save_all if self.is_training else None,
            change=self._change if self.is_training else None,
            on_failure=self._trainer_failed,
            roster=context.roster,
            reporting=self.reporting,
            history=None if acting is None and context.service.lockstep else context.history,  # a round joins chunks
        )
        self._thread = threading.Thread(target=self._take_turns, name="trainers", daemon=True)
        self._estimator = EstimatorThread(context.service, link.to_front.send, context.reduce.ranks)
        link.to_trainers.divert(EstimateMemory, self._estimator.ask)
        link.to_trainers.divert(Close, self._close)

    @property
    def is_training(self) -> bool:
        """Returns whether trainers learn."""
        return self._acting is None

    @property
    def has_finished(self) -> bool:
        """Returns whether the parts save their results, or have saved them."""
        return self._has_finished

    def take(self, parts: Sequence[RunPart], statistics: Statistics, training: Training | None = None) -> None:
        """Receives the parts of the run, once before `start`, and reports what is known before the first trainer.

        Args:
            parts: Parts in the order in which they are called.
            statistics: The one that writes the trainers' reports.
            training: Those that the run calls by itself; None for a run that acts.
        """
        self._parts.extend(parts)
        self._statistics, self._training = statistics, training
        if training is not None:
            sources = replace(
                self.reporting.sources,
                at_target=lambda: training.progress.at_target,
                obstacle=lambda: training.evaluations.obstacle,
                changed=training.steering.changed,
            )
            if training.lockstep is not None:
                self.loop.make_queue = training.lockstep.make_queue
                sources = replace(sources, lockstep=training.lockstep.view)
            self.reporting.sources = sources
        self.loop.report()
        load_meta_device()

    def service_changed(self, service: ServiceSettings) -> None:
        """Tells the parts that settings of the service have changed."""
        self.context.service = service
        for part in self._parts:
            part.service_changed(service)

    def end(self, reason: str) -> None:
        """Ends the run now, before the event loop learns of it, so that the final figures are the current ones."""
        self.loop.stop()
        self.context.link.to_front.send(Finished(reason))

    def start(self) -> None:
        """Starts the trainers' thread and that of estimates."""
        self._estimator.start()
        self._thread.start()
        self._has_begun = True  # not reached if the system lacks memory for a thread

    def give_up(self, error: BaseException) -> None:
        """Lets the parts finish if an error ends the run before the service does; has an effect only once."""
        self._estimator.close()
        self.loop.stop()
        if self._has_begun:
            self._thread.join(_END_SECONDS)
        self._finish(Ending("error", error, has_begun=self._has_begun, has_settled=False, is_complete=False))

    def _take_turns(self) -> None:
        try:
            self.loop.run()
        finally:
            self.context.link.to_front.send(Stopped())

    def _close(self, message: Close) -> None:
        """Ends the run in a separate thread, because the trainers' thread may hang in an update."""
        threading.Thread(target=self._end, args=(message,), name="ending").start()

    def _end(self, message: Close) -> None:
        self._estimator.close()
        self._thread.join(_END_SECONDS)
        self.context.roster.view = message.view
        has_settled = not self._thread.is_alive()
        error = self._error
        if error is None and message.fault:
            error = UserError(ExitCode.TRAINER_FAILED, message.fault)
        error = self._superseded() or error
        ending = Ending(
            message.reason, error, has_settled=has_settled, is_complete=has_settled, summaries=message.summaries
        )
        try:
            closed = self._finish(ending)
        except BaseException as error:  # a package may exit, and the service waits for an answer
            log.error("run_not_finished", error=in_one_line(error), exc_info=error)
            closed = Closed(is_complete=False, fault=in_one_line(error))
        self.context.link.to_front.send(closed)

    def _superseded(self) -> UserError | None:
        """Returns the error of a learner whose run folder another one has taken over, and reports it; otherwise None."""
        if self._training is None:
            return None
        try:
            self._training.keeper.store.folder.require_newest()
        except UserError as error:
            self.context.link.to_front.send(Failed(error.exit_code, error.message))
            return error
        return None

    def _finish(self, ending: Ending) -> Closed:
        """Lets each part save its results, once; later parts learn whether the earlier ones succeeded."""
        with self._lock:
            if self._has_finished:
                return Closed(is_complete=False)
            self._has_finished = True
        fault = ""
        for part in self._parts:
            try:
                is_complete = part.finish(self.loop.trainers, ending)
            except BaseException as error:  # the other parts finish regardless of what a package raises
                log.error("part_not_finished", part=type(part).__name__, error=in_one_line(error), exc_info=error)
                fault = fault or in_one_line(error)
                ending = replace(ending, error=ending.error or error, is_complete=False)
            else:
                ending = replace(ending, is_complete=is_complete and ending.is_complete)
        if ending.is_good:
            self.loop.report()
        return Closed(ending.is_complete, fault)

    def _build(self, behavior: Declared, queue: ExperienceQueue) -> Trainer:
        """Builds the trainer of a behavior without its saved state; called in the trainers' thread.

        Raises:
            UserError: The settings do not fit.
        """
        context = self._trainer_context(behavior, queue)
        if behavior.settings.trainer_type in registry.own_trainers() and not self.is_training:
            return FrozenTrainer(context)  # only a package's own trainer knows its policy
        companions = build_companions(
            behavior, context.stats, context.device, context.seed, in_rounds=context.service.lockstep is not None
        )
        return registry.build(replace(context, companions=companions))

    def _trainer_context(self, behavior: Declared, queue: ExperienceQueue) -> TrainerContext:
        context, acting = self.context, self._acting
        is_deterministic = behavior.settings.network_settings.deterministic
        if acting is not None and acting.is_deterministic is not None:
            is_deterministic = acting.is_deterministic

        def open_publisher(network: PolicyNetwork) -> PolicyPublisher:
            template = describe(
                network,
                behavior_index=behavior.index,
                generation=context.generation,
                deterministic=is_deterministic,
                memory_stride=behavior.memory_stride,
            )
            # The first one imports modules, while the connections of actors take descriptors.
            return with_descriptors(
                lambda: PolicyPublisher(network, context.link.to_front.send, template),
                until=lambda: self.loop.is_stopping,
            )

        return TrainerContext(
            behavior=behavior,
            queue=queue,
            stats=self._statistics.reporter(behavior.name),
            open_publisher=open_publisher,
            generation=context.generation,
            seed=seed_of(context, behavior),
            device=context.device,
            service=context.service,
            is_training=self.is_training,
            saver=None if self._training is None else self._training.keeper,
            reduce=context.reduce,
            conductor=context.conductor,
            metrics=context.meters.behavior(behavior.name),
            lessons=context.lessons,
            roster=context.roster,
            run_id=context.run_id,
        )

    def _save_all(self) -> Path:
        if self._training is None:
            raise TypeError("a run without training saves nothing")
        return self._training.keeper.save_all(self.loop.trainers)

    def _change(self, request: Request) -> tuple[SettingChange, ...]:
        if self._training is None:
            raise TypeError("a run without training changes nothing")
        changes = self._training.steering.change(request, self.loop.trainers)
        if changes:
            self._training.keeper.save_changes(self.loop.trainers)
        return changes

    def _trainer_failed(self, error: BaseException) -> None:
        """Handles the error that ended the trainers; the last call of the trainers' thread."""
        self._error = error
        self.reporting.send_error(in_one_line(error))
        if not isinstance(error, UserError):
            log.error("trainer_failed", error=in_one_line(error), exc_info=error)
        elif self.context.service.log_format == "json":  # shown once: the command prints it as its last line
            log.error("trainer_failed", error=error.message)
        told = failure_of(error, self.context.folder)
        self.context.link.to_front.send(Failed(told.exit_code, told.message))


def exit_code_of(error: BaseException) -> ExitCode:
    """Returns the exit code for an error that ended the trainers; that of a trainer's error for all others.

    A trainer's error comes back when the learner is started again; those of the device and of memory may not.
    """
    for cause in causes(error):
        if isinstance(cause, MemoryError | torch.OutOfMemoryError):
            return ExitCode.OUT_OF_MEMORY
        if isinstance(cause, RuntimeError):
            text = str(cause)
            if any(part in text for part in _MEMORY):
                return ExitCode.OUT_OF_MEMORY
            if isinstance(cause, torch.AcceleratorError) or text.startswith(_DEVICE):
                return ExitCode.DEVICE_FAILED
    return ExitCode.TRAINER_FAILED
