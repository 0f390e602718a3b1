"""Puts a learner together: all its parts, each made of those before it."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import structlog

from learner.checkpoints.runfolder import RunFolder
from learner.checkpoints.store import CheckpointStore, SavedRunState
from learner.common.exits import UserError
from learner.evaluation.during_training import EvaluationManager
from learner.ingest.behaviors import BehaviorTable
from learner.ingest.ledger import Ledger
from learner.ingest.sessions import SessionTable
from learner.link.commands import CommandChannel
from learner.observe.view import RunState, RunView
from learner.publish.store import PolicyStore
from learner.run.checkpointing import CheckpointKeeper
from learner.run.control import RunControl
from learner.run.lockstep.barrier import make_lockstep
from learner.run.setup import (
    SEED_PART,
    Configuration,
    choose_device,
    choose_seed,
    make_metrics,
)
from learner.run.site import SiteParts, make_site
from learner.run.stopping import Stopping
from learner.run.trainer_factory import TrainerFactory
from learner.run.turns import BetweenTurns, CurriculumController, make_lessons
from learner.service.run_info import RunInfo
from learner.service.server import LearnerServer
from learner.settings.load import LoadedRun
from learner.status.record import RunRecord
from learner.status.run_status import RunStatus
from learner.status.writers import writers_of
from learner.trainers.loop import TrainerLoop
from learner.web.status_site import StatusSite, http_address_is_default

log = structlog.get_logger(__name__)


class Assembly:
    """The parts of one start of a learner in its run folder.

    Args:
        loaded: the settings and their sources.
        folder: the run folder, open.

    Raises:
        UserError: the state to resume from cannot be read or does not fit.

    Attributes:
        service: settings of the service.
        folder: the run folder.
        seed, generation, device: of this start.
        stopping: whether and why the run ends.
        behaviors, sessions: what actors declared, and the actors.
        run_status, record: what is shown of the run, and what is kept of it.
        lockstep: its barrier, if the run has one.
        keeper, evaluations: checkpoints, evaluations.
        curriculum: lessons.
        factory, trainers: what makes trainers, and what runs them.
        control: what operators ask for.
        address: where actors find the learner; with the bound port once it is known.
    """

    def __init__(self, loaded: LoadedRun, folder: RunFolder) -> None:
        self._options = options = loaded.options
        self.service = service = options.rollcast
        self.folder = folder
        checkpoints = CheckpointStore(folder)
        state = checkpoints.load_run_state() if folder.resuming else None
        self.seed = choose_seed(options, {} if state is None else state.extra)
        self.stopping = Stopping()
        self.generation = folder.next_generation(at_least=0 if state is None else state.generation)
        self.device = choose_device(options)
        configuration = Configuration(loaded, folder, self.seed)

        self._commands = CommandChannel()
        self._ledger = Ledger()
        self.behaviors = BehaviorTable(options, self._ledger)
        self.sessions = SessionTable(self.behaviors, self._ledger, generation=self.generation)
        self._store = PolicyStore()
        self._metrics = make_metrics(service)
        self._lessons = make_lessons(options, self.seed)
        self.run_status = RunStatus(
            self.behaviors,
            self.sessions,
            self._ledger,
            service,
            run_id=folder.run_id,
            generation=self.generation,
            lessons=self._lessons,
        )
        self.record = RunRecord.of(
            loaded, folder, generation=self.generation, seed=self.seed, view=self.view, live=self.sessions.live
        )
        self.lockstep = make_lockstep(
            service,
            self.behaviors,
            self.sessions,
            ledger=self._ledger,
            lessons=self._lessons,
            send=self._commands.send,
            run_status=self.run_status,
            record=self.record,
        )
        self.keeper = self._make_keeper(checkpoints, state)
        if state is None:
            configuration.keep()
        self.evaluations = self._make_evaluations(checkpoints)
        self.curriculum = CurriculumController(self._lessons, self.keeper, self._commands.send, self.lockstep)
        self.factory = self._make_factory(loaded)
        self.trainers = self._make_loop(configuration)
        self.control = RunControl(
            self.trainers,
            view=self.view,
            save=self._save,
            request_stop=self.stopping.ask_anywhere,
            send=self._commands.send,
        )
        self.address = service.address
        self._http_falls_back = http_address_is_default(loaded)

    def view(self) -> RunView:
        """Returns the status at this moment; from any thread."""
        return self.run_status.run_view(self.state, self.address)

    @property
    def state(self) -> RunState:
        """What the learner does at present."""
        if self.stopping.stop is not None:
            return RunState.FAILED if self.stopping.stop.error is not None else RunState.DRAINING
        if self.trainers.is_paused:
            return RunState.PAUSED
        return RunState.TRAINING if self.trainers.trainers else RunState.WAITING

    def _make_keeper(self, checkpoints: CheckpointStore, state: SavedRunState | None) -> CheckpointKeeper:
        """Makes what saves the run, and lets it go on from a saved state.

        Raises:
            UserError: the state does not fit.
        """
        keeper = CheckpointKeeper(
            checkpoints,
            self.behaviors,
            self.sessions,
            self._ledger,
            self.run_status,
            generation=self.generation,
            checkpoint_seconds=self.service.checkpoint_seconds,
            extra={SEED_PART: {"run": self.seed}},
            on_saved=self.record.note_saved,
            on_not_saved=self.record.note_not_saved,
            metrics=self._metrics.checkpoints,
            lessons=self._lessons,
            resume_checkpoint=self.service.resume_checkpoint,
            lockstep=self.lockstep,
        )
        if state is not None:
            keeper.restore(state)
        keeper.restore_lessons()
        return keeper

    def _make_evaluations(self, checkpoints: CheckpointStore) -> EvaluationManager:
        return EvaluationManager(
            self.service,
            checkpoints,
            self.sessions,
            self._store,
            self._commands.send,
            lessons=self._lessons,
            metrics=self._metrics,
            record=self.record,
            run_status=self.run_status,
        )

    def _make_factory(self, loaded: LoadedRun) -> TrainerFactory:
        return TrainerFactory(
            self._options,
            self.folder,
            ledger=self._ledger,
            store=self._store,
            keeper=self.keeper,
            generation=self.generation,
            seed=self.seed,
            device=self.device,
            metrics=self._metrics,
            writers=writers_of(loaded, self.folder),
            lessons=self._lessons,
            evaluations=self.evaluations,
        )

    def _make_loop(self, configuration: Configuration) -> TrainerLoop:
        turns = BetweenTurns(
            self.curriculum,
            self.run_status,
            self.record,
            self.keeper,
            self.stopping,
            evaluations=self.evaluations,
            configuration=configuration,
            lockstep=self.lockstep,
        )
        return TrainerLoop(
            self.behaviors,
            self.factory.build,
            on_failure=self._trainer_failed,
            before_turn=turns.before,
            after_turn=lambda: turns.after(self.trainers),
        )

    def make_server(self) -> LearnerServer:
        """Makes the gRPC service; not started yet."""
        run = RunInfo.from_options(
            self._options,
            run_id=self.folder.run_id,
            generation=self.generation,
            run_seed=self.seed,
            server_version=version("rollcast"),
            assignment=self._lessons.assignment(),
        )
        return LearnerServer(
            address=self.service.address,
            control_address=self.service.control_address,
            settings=self.service,
            behaviors=self.behaviors,
            sessions=self.sessions,
            ledger=self._ledger,
            store=self._store,
            run=run,
            control=self.control,
            metrics=self._metrics,
            commands=self._commands,
        )

    def make_site(self, server: LearnerServer) -> StatusSite:
        """Makes the status site; not started yet."""
        parts = SiteParts(
            service=self.service,
            folder=self.folder.path,
            control=self.control,
            behaviors=self.behaviors,
            sessions=self.sessions,
            store=self._store,
            run_status=self.run_status,
            metrics=self._metrics,
            trainers=lambda: self.trainers.trainers,
            view=self.view,
            device=self.device,
            falls_back=self._http_falls_back,
        )
        return make_site(parts, server)

    def _save(self) -> Any:
        return self.keeper.save_all(self.trainers.trainers)

    def _trainer_failed(self, error: BaseException) -> None:
        """In the trainer thread, as the last thing it does."""
        self.run_status.last_error = f"{type(error).__name__}: {error}"
        if not isinstance(error, UserError):
            log.error("trainer_failed", error=str(error), exc_info=error)
        elif self.service.log_format == "json":  # people read it once: the command prints it as its last line
            log.error("trainer_failed", error=error.message)
        self.stopping.ask_anywhere("trainer_failed", final=False, error=error)
