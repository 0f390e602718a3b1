"""A learner from start to end: builds the parts, starts, drains, stops. Read this first.

Two threads: the main one runs the event loop with the gRPC service and looks after the run; the other runs the
trainers. They meet at `learner.ingest.queue` and `learner.publish.store`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from importlib.metadata import version
from typing import Any

import structlog

from learner.announcing import announce
from learner.beginning import (
    SEED_PART,
    Configuration,
    choose_device,
    choose_seed,
    make_metrics,
    with_port,
)
from learner.checkpoints.runfolder import RunFolder, open_run_folder
from learner.checkpoints.store import CheckpointStore
from learner.checkpoints.store import RunState as SavedState
from learner.control import RunControl
from learner.ending import write_ending
from learner.exits import ExitCode, UserError
from learner.inference import serve_inference
from learner.ingest.behaviors import BehaviorTable
from learner.ingest.ledger import Ledger
from learner.ingest.sessions import SessionTable
from learner.lockstep.barrier import make_lockstep
from learner.measuring import Measuring
from learner.observe import logs
from learner.observe.address import BoundAddresses, remove_addresses
from learner.observe.display import Display, open_display
from learner.observe.logfile import LogFile
from learner.observe.view import RunState, RunView
from learner.operator_signals import OperatorSignals
from learner.picture import Picture
from learner.preflight import check_supported
from learner.publish.store import PolicyStore
from learner.record import RunRecord
from learner.recovery import CheckpointKeeper, Kept
from learner.service.run_info import RunInfo
from learner.service.server import LearnerServer, require_free
from learner.settings import LoadedRun
from learner.shares import bottleneck_meter
from learner.site import SiteParts, make_site
from learner.status_site import StatusSite, check_http, http_address_is_default
from learner.stopping import Stop, Stopping
from learner.teaching import Teacher, make_lessons
from learner.trainers.loop import TrainerLoop
from learner.training import TrainerFactory
from learner.turns import BetweenTurns
from learner.writers import writers_of

log = structlog.get_logger(__name__)

_WATCH_SECONDS = 0.05
_SIGNALLED = {"action": "the present update ends and everything is saved; a second signal waits for no actor"}
_JOIN_SECONDS = 600.0
"""How long the end waits for the present update; updates of large networks on small machines take minutes."""


def serve(loaded: LoadedRun) -> int:
    """Runs a learner until its run ends, and returns the exit code.

    Raises:
        UserError: the run cannot start.
    """
    options = loaded.options
    log_file = LogFile()
    logs.configure(options.rollcast.log_format, "debug" if options.debug else "info", file=log_file)
    for warning in loaded.warnings:
        log.warning("settings", note=warning)
    check_supported(loaded)
    service, checkpoints = options.rollcast, options.checkpoint_settings
    require_free(service.address, "rollcast.address")
    require_free(service.control_address, "rollcast.control_address")
    check_http(loaded)
    opened = open_run_folder(
        checkpoints.results_dir,
        checkpoints.run_id,
        resume=checkpoints.resume,
        force=checkpoints.force,
        initialize_from=checkpoints.initialize_from,
    )
    with opened as folder, log_file.opened(folder.path):
        if checkpoints.inference:
            return serve_inference(loaded, folder)
        return asyncio.run(Learner(loaded, folder).run())


class Learner:
    """One start of a learner in its run folder.

    Args:
        loaded: the settings and their sources.
        folder: the run folder, open.

    Raises:
        UserError: the state to resume from cannot be read or does not fit.
    """

    def __init__(self, loaded: LoadedRun, folder: RunFolder) -> None:
        self._options = options = loaded.options
        self._service = service = options.rollcast
        self._folder = folder
        checkpoints = CheckpointStore(folder)
        state = checkpoints.load_run_state() if folder.resuming else None
        self._seed = choose_seed(options, {} if state is None else state.extra)
        self._stopping = Stopping()
        self._generation = folder.next_generation(at_least=0 if state is None else state.generation)
        self._device = choose_device(options)
        configuration = Configuration(loaded, folder, self._seed)

        self._ledger = Ledger()
        self._behaviors = BehaviorTable(options, self._ledger)
        self._sessions = SessionTable(self._behaviors, self._ledger, generation=self._generation)
        self._store = PolicyStore()
        self._metrics = make_metrics(service)
        self._lessons = make_lessons(options, self._seed)
        self._picture = Picture(
            self._behaviors,
            self._sessions,
            self._ledger,
            service,
            run_id=folder.run_id,
            generation=self._generation,
            lessons=self._lessons,
        )
        self._record = RunRecord.of(
            loaded, folder, generation=self._generation, seed=self._seed, view=self.view, live=self._sessions.live
        )
        self._lockstep = make_lockstep(
            service,
            self._behaviors,
            self._sessions,
            ledger=self._ledger,
            lessons=self._lessons,
            picture=self._picture,
            record=self._record,
        )
        self._keeper = self._make_keeper(checkpoints, state)
        if state is None:
            configuration.keep()
        self._measuring = Measuring(
            service,
            checkpoints,
            self._sessions,
            self._store,
            lessons=self._lessons,
            metrics=self._metrics,
            record=self._record,
            picture=self._picture,
        )
        self._teacher = Teacher(self._lessons, self._keeper, self._lockstep)
        self._factory = self._make_factory(loaded)
        self._trainers = self._make_loop(configuration)
        self._control = RunControl(
            self._trainers, view=self.view, save=self._save, request_stop=self._stopping.ask_anywhere
        )
        self._address = service.address
        self._http_falls_back = http_address_is_default(loaded)

    async def run(self) -> int:
        """Serves, trains, and ends; returns the exit code.

        Raises:
            UserError: an address cannot be had, or the trainer found a fault of the user's.
        """
        server = self._make_server()
        site = self._make_site(server)
        with self._record, self._stopping.listening(), OperatorSignals(self._control).listening():
            await server.start()
            self._control.attach(server)
            self._teacher.attach(server.set_assignment)
            self._measuring.attach(server)
            if self._lockstep is not None:
                self._lockstep.attach(server.set_assignment, server.set_hold)
            try:
                await site.start()
                self._announce(server, site)
                return await self._serve(server)
            finally:
                await server.stop()
                await site.stop(in_a_hurry=self._stopping.hurry.is_set())
                remove_addresses(self._folder.path)

    async def _serve(self, server: LearnerServer) -> int:
        thread = threading.Thread(target=self._trainers.run, name="trainers", daemon=True)
        thread.start()
        with open_display(self._service.log_format, self._service.summary_seconds) as display:
            await self._watch(display)
            stop = await self._wind_down(server, thread)
            display.update(self.view(), now=True)
        code = await asyncio.to_thread(self._conclude, stop, has_ended=not thread.is_alive())
        error = "" if stop.error is None else f"{type(stop.error).__name__}: {stop.error}"
        await asyncio.to_thread(self._record.end, stop.reason, error, is_complete=code == ExitCode.OK)
        return code

    def view(self) -> RunView:
        """Returns the picture of this moment; from any thread."""
        return self._picture.run_view(self._state(), self._address)

    def _make_keeper(self, checkpoints: CheckpointStore, state: SavedState | None) -> CheckpointKeeper:
        """Makes what saves the run, and lets it go on from a saved state.

        Raises:
            UserError: the state does not fit.
        """
        keeper = CheckpointKeeper(
            checkpoints,
            self._behaviors,
            self._sessions,
            self._ledger,
            self._picture,
            generation=self._generation,
            checkpoint_seconds=self._service.checkpoint_seconds,
            extra={SEED_PART: {"run": self._seed}},
            on_saved=self._record.note_saved,
            on_not_saved=self._record.note_not_saved,
            metrics=self._metrics.checkpoints,
            lessons=self._lessons,
            resume_checkpoint=self._service.resume_checkpoint,
            lockstep=self._lockstep,
        )
        if state is not None:
            keeper.restore(state)
        keeper.restore_lessons()
        return keeper

    def _make_factory(self, loaded: LoadedRun) -> TrainerFactory:
        return TrainerFactory(
            self._options,
            self._folder,
            ledger=self._ledger,
            store=self._store,
            keeper=self._keeper,
            generation=self._generation,
            seed=self._seed,
            device=self._device,
            metrics=self._metrics,
            writers=writers_of(loaded, self._folder),
            lessons=self._lessons,
            measuring=self._measuring,
        )

    def _make_loop(self, configuration: Configuration) -> TrainerLoop:
        turns = BetweenTurns(
            self._teacher,
            self._picture,
            self._record,
            self._keeper,
            self._stopping,
            measuring=self._measuring,
            configuration=configuration,
            lockstep=self._lockstep,
        )
        return TrainerLoop(
            self._behaviors,
            self._factory.build,
            on_failure=self._trainer_failed,
            before_turn=turns.before,
            after_turn=lambda: turns.after(self._trainers),
        )

    def _make_server(self) -> LearnerServer:
        run = RunInfo.from_options(
            self._options,
            run_id=self._folder.run_id,
            generation=self._generation,
            run_seed=self._seed,
            server_version=version("rollcast"),
            assignment=self._lessons.assignment(),
        )
        return LearnerServer(
            address=self._service.address,
            control_address=self._service.control_address,
            settings=self._service,
            behaviors=self._behaviors,
            sessions=self._sessions,
            ledger=self._ledger,
            store=self._store,
            run=run,
            control=self._control,
            metrics=self._metrics,
        )

    def _make_site(self, server: LearnerServer) -> StatusSite:
        parts = SiteParts(
            service=self._service,
            folder=self._folder.path,
            control=self._control,
            behaviors=self._behaviors,
            sessions=self._sessions,
            store=self._store,
            picture=self._picture,
            metrics=self._metrics,
            trainers=lambda: self._trainers.trainers,
            view=self.view,
            device=self._device,
            falls_back=self._http_falls_back,
        )
        return make_site(parts, server)

    def _announce(self, server: LearnerServer, site: StatusSite) -> None:
        self._address = with_port(self._service.address, server.port)
        control = with_port(self._service.control_address, server.control_port)
        self._record.begin(self._address)
        announce(
            self._folder,
            BoundAddresses(self._address, control, site.address),
            page=site.url,
            generation=self._generation,
            seed=self._seed,
            device=str(self._device),
        )

    async def _watch(self, display: Display) -> None:
        """Looks after the run until something asks for its end."""
        bottleneck = bottleneck_meter(self._sessions, self._behaviors)
        while not self._stopping.asked.is_set():
            self._picture.note_steps(is_paused=self._trainers.is_paused)
            self._picture.verdict = bottleneck.update(self._state(), self._trainers.busy_seconds)
            limit = self._service.max_wall_seconds
            if limit is not None and self._picture.uptime_seconds >= limit:
                self._stopping.ask("max_wall_seconds", final=True)
            elif self._trainers.is_finished:
                self._stopping.ask("max_steps", final=True)
            if display.due:
                display.update(self.view())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.asked.wait(), _WATCH_SECONDS)

    async def _wind_down(self, server: LearnerServer, thread: threading.Thread) -> Stop:
        """Ends training after the present update, and says farewell to the actors."""
        stop = self._stopping.stop or Stop("signal", final=False)
        log.info("stopping", reason=stop.reason, final=stop.final, **_SIGNALLED if stop.reason == "signal" else {})
        self._trainers.stop()
        await server.drain(
            final=stop.final,
            seconds=self._service.drain_seconds,
            hurry=self._stopping.hurry,
            has_failed=stop.error is not None,
        )
        await asyncio.to_thread(thread.join, _JOIN_SECONDS)
        self._picture.note_steps(is_paused=self._trainers.is_paused)
        return self._stopping.stop or stop  # the last update may have failed

    def _conclude(self, stop: Stop, *, has_ended: bool) -> int:
        """Writes what a run leaves behind.

        Args:
            stop: why the run ends.
            has_ended: the present update has: else weights and books are not of one moment, and are not saved.
        """
        trainers = self._trainers.trainers
        if not has_ended:
            log.error("update_not_over", waited_seconds=_JOIN_SECONDS, action="the last run state stays as it is")
        kept = Kept({}, is_complete=has_ended)
        if has_ended and stop.error is None:
            self._measuring.finish(trainers)
            kept = self._keeper.finish(trainers)
        self._factory.close(trainers)
        if isinstance(stop.error, UserError) and stop.error.exit_code is ExitCode.BAD_CHECKPOINT:
            raise stop.error  # nothing was trained: the summary of the start before stays
        behaviors = self._behaviors.all()
        is_told = write_ending(self._folder, self._picture, behaviors, kept.models, stop, generation=self._generation)
        if isinstance(stop.error, UserError):
            raise stop.error
        if stop.error is not None:
            return ExitCode.TRAINER_FAILED
        return ExitCode.OK if kept.is_complete and is_told else ExitCode.NOT_SAVED

    def _state(self) -> RunState:
        if self._stopping.stop is not None:
            return RunState.FAILED if self._stopping.stop.error is not None else RunState.DRAINING
        if self._trainers.is_paused:
            return RunState.PAUSED
        return RunState.TRAINING if self._trainers.trainers else RunState.WAITING

    def _save(self) -> Any:
        return self._keeper.save_all(self._trainers.trainers)

    def _trainer_failed(self, error: BaseException) -> None:
        """In the trainer thread, as the last thing it does."""
        self._picture.last_error = f"{type(error).__name__}: {error}"
        if not isinstance(error, UserError):
            log.error("trainer_failed", error=str(error), exc_info=error)
        elif self._service.log_format == "json":  # people read it once: the command prints it as its last line
            log.error("trainer_failed", error=error.message)
        self._stopping.ask_anywhere("trainer_failed", final=False, error=error)
