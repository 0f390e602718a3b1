"""Implements ``serve``: checks that a run can start, opens its folder, and lets it train or act.

`learner.service.run.front` serves a run, `learner.training.run.run` runs its trainers, and `learner.start.training` creates both.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Final

import structlog

from learner.link.channel import Transport, as_it_is
from learner.service.calls.listening import ADDRESS, HeldPorts, hold, require_free
from learner.service.calls.server import require_descriptors
from learner.service.run.front import Served
from learner.service.run.stopping import SIGNAL
from learner.service.web.status_site import check_http
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe import logs
from learner.shared.observe.address import STARTS_AGAIN, remove_addresses, write_awaited
from learner.shared.observe.logs import LogFile
from learner.shared.runfolder.runfolder import RunFolder, open_run_folder
from learner.shared.settings.load import LoadedRun
from learner.start.actors import END_SECONDS, TrainingActors
from learner.start.early_end import EarlyEnd
from learner.start.last_start import left_out
from learner.start.preflight import check_folder, check_supported
from learner.start.trainer_hosts import AwaitedTrainers
from learner.start.trainer_start import StartedTrainers
from learner.start.training import TrainingRun

MOST_DEATHS: Final = 3
"""Deaths of the trainers within ten minutes that end the run: another start would end like these."""
_DEATHS_SECONDS: Final = 600.0

log = structlog.get_logger(__name__)


def serve(
    loaded: LoadedRun,
    transport: Transport = as_it_is,
    started: StartedTrainers | None = None,
    stopped_code: int = ExitCode.OK,
    early_end: EarlyEnd | None = None,
    *,
    actors: TrainingActors | None = None,
) -> int:
    """Runs a learner until its run ends, and returns the exit code.

    Args:
        loaded: The settings and their sources.
        transport: Function through which messages between the service and the trainers pass.
        started: The process of the trainers; None if they are threads of this one.
        stopped_code: Exit code if a signal ended the run before its end and everything was saved.
        early_end: Handles signals while no run does; None if nothing handles them.
        actors: The actors to start once the learner listens; None for none.

    Raises:
        UserError: The run cannot start, or a trainer failed.
    """
    options = loaded.options
    log_file = LogFile()
    logs.configure(options.rollcast.log_format, "debug" if options.debug else "info", file=log_file)
    if actors is not None and actors.chosen:
        log.info("settings", note=actors.chosen)
    for warning in loaded.warnings:
        log.warning("settings", note=warning)
    check_supported(loaded)
    service, checkpoints = options.rollcast, options.checkpoint_settings
    require_descriptors(service)
    if actors is None or not actors.may_move:
        require_free(service.address, ADDRESS)
    check_http(loaded)
    check_folder(loaded)
    opened = open_run_folder(
        checkpoints.results_dir,
        checkpoints.run_id,
        resume=checkpoints.resume,
        force=checkpoints.force,
        initialize_from=checkpoints.initialize_from,
    )
    with opened as folder, log_file.opened(folder.path):
        remove_addresses(folder.path)  # of a learner that was killed: a command would say that this one does not answer
        log.info("learner_starts", run=folder.run_id, resumed=folder.resuming, next=_next_step(loaded, folder))
        if folder.resuming and not checkpoints.inference:
            _name_what_is_left_out(folder, loaded)
        # With a process of trainers, this one works without torch.
        if checkpoints.inference:
            from learner.start.inference import serve_inference  # noqa: PLC0415

            return serve_inference(loaded, folder, transport)
        if service.lockstep is not None and folder.resuming:
            from learner.training.lockstep.resuming import is_over  # noqa: PLC0415

            if is_over(options, folder):
                return ExitCode.OK
        try:
            ending = _train(
                loaded, folder, transport, started, early_end or EarlyEnd(ExitCode.INTERRUPTED), actors=actors
            )
        finally:
            with contextlib.suppress(UserError):  # the files may be another learner's
                folder.require_newest()
                remove_addresses(folder.path)
        if actors is not None:
            actors.close(END_SECONDS if ending.is_final else 0.0, ending.actors)
        if not ending.is_complete:
            return ExitCode.NOT_SAVED
        return stopped_code if ending.reason == SIGNAL else ExitCode.OK


def _name_what_is_left_out(folder: RunFolder, loaded: LoadedRun) -> None:
    """Warns of flags and variables of the last start, which a run that is resumed without them forgets."""
    names = left_out(folder.path, loaded)
    if names:
        log.warning(
            "flags_left_out",
            flags=names,
            note="the last start of this run had them: without them, the run file and the defaults count; stop with Ctrl-C "
            "and add them, unless this is meant",
        )


def _next_step(loaded: LoadedRun, folder: RunFolder) -> str:
    """Returns what the learner does before it listens, during which it logs nothing."""
    reads = " and reads the checkpoint" if folder.resuming else ""
    service = loaded.options.rollcast
    if service.trainer_address is not None:
        return "waits for its trainer processes, then listens for actors"
    if service.has_ranks:
        return f"starts {service.trainers} trainer processes, which load torch{reads}, then listens for actors"
    return f"loads torch{reads}, which takes seconds, on a slow disk up to a minute; then listens for actors"


class Deaths:
    """Counts how often the process of the trainers was killed within ten minutes.

    Args:
        now: Returns monotonic seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._times: list[float] = []

    @property
    def count(self) -> int:
        """Deaths within the time before the last one, which counts."""
        return len(self._times)

    def allow_another(self) -> bool:
        """Counts a death, and returns whether another process may be started."""
        now = self._now()
        self._times = [*(time for time in self._times if now - time < _DEATHS_SECONDS), now]
        return self.count < MOST_DEATHS


def _train(
    loaded: LoadedRun,
    folder: RunFolder,
    transport: Transport,
    started: StartedTrainers | None,
    early_end: EarlyEnd,
    *,
    actors: TrainingActors | None,
) -> Served:
    """Trains until the run ends.

    If the process of the trainers is killed, another one resumes the run at the same addresses. For actors this is a restart of the
    learner: they return to their sessions.

    Raises:
        UserError: The run cannot start, a trainer failed, or the process of the trainers was killed too often.
    """
    run: TrainingRun | None = None
    deaths, service = Deaths(), loaded.options.rollcast

    def start() -> StartedTrainers | AwaitedTrainers:
        if service.trainer_address is None:
            return early_end.start(lambda: StartedTrainers(service.trainers))
        address = service.trainer_address
        return early_end.start(lambda: AwaitedTrainers(address, service, folder.path))

    with HeldPorts() as held, contextlib.ExitStack() as processes:
        trainers: StartedTrainers | AwaitedTrainers | None = started
        if started is None and service.has_ranks:
            trainers = start()
        if trainers is not None:
            processes.push(trainers)
        while True:
            try:
                run = TrainingRun(loaded, folder, transport, trainers, run, actors=actors)
                held.close()  # the service listens next
                return run.serve()
            except UserError as error:
                has_died = error.exit_code is ExitCode.TRAINER_DIED
                is_ending = run is not None and not run.front.stopping.is_by_error
                if not has_died or is_ending or not deaths.allow_another():
                    raise
                held.extend(hold([] if run is None or run.bound is None else run.bound.all))
                log.warning("trainers_start_again", reason=error.message, deaths=deaths.count, ends_at=MOST_DEATHS)
                write_awaited(folder.path, STARTS_AGAIN)
            folder.resume()
            processes.close()  # of the dead process, which has a ring of shared memory
            trainers = start()
            processes.push(trainers)
