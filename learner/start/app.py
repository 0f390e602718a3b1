"""Implements ``serve``: checks that a run can start, opens its folder, and lets it train or act.

`learner.service.run.front` serves a run, `learner.training.run.run` runs its trainers, and `learner.start.training` creates both.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import structlog

from learner.link.channel import Link
from learner.service.calls.listening import ADDRESS, HeldPorts, hold, require_free
from learner.service.calls.server import require_descriptors
from learner.service.run.front import Served
from learner.service.run.stopping import SIGNAL
from learner.service.web.status_site import check_http
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.address import STARTS_AGAIN, remove_addresses, write_awaited
from learner.shared.observe.logs import LogFile
from learner.shared.runfolder.runfolder import FoundFolder, RunFolder, open_run_folder
from learner.shared.settings.load import LoadedRun
from learner.start.actors import END_SECONDS, TrainingActors
from learner.start.last_start import left_out
from learner.start.preflight import check_folder, check_supported, folder_arguments, has_requirements
from learner.start.rank_processes import RankProcesses
from learner.start.trainer_hosts import AwaitedTrainers
from learner.start.trainer_process import TrainerProcess
from learner.start.trainer_start import StartedTrainers
from learner.start.training import Trainers, TrainingRun

MOST_DEATHS: Final = 3
"""Deaths of the trainers within ten minutes that end the run: another start would end like these."""
_DEATHS_SECONDS: Final = 600.0

log = structlog.get_logger(__name__)
T = TypeVar("T", bound=StartedTrainers | AwaitedTrainers)


class Starting(Protocol):
    """Handles signals while no run does."""

    def start(self, make: Callable[[], T]) -> T:
        """Returns trainers that it makes, and that such a signal ends."""


def serve(
    loaded: LoadedRun,
    started: StartedTrainers | None = None,
    stopped_code: int = ExitCode.OK,
    early_end: Starting | None = None,
    *,
    actors: TrainingActors | None = None,
    log_file: LogFile | None = None,
) -> int:
    """Runs a learner until its run ends, and returns the exit code.

    Any thread of any program may call it: without `early_end` and `log_file`, it leaves signals and logs to the program.

    Args:
        loaded: The settings and their sources.
        started: The process of the trainers; None if they are threads of this one.
        stopped_code: Exit code if a signal ended the run before its end and everything was saved.
        early_end: Handles signals while no run does; None if signals do not end the run. Otherwise call this in the main thread.
        actors: The actors to start once the learner listens; None for none.
        log_file: Takes the log of this process for the run folder; None if nothing does.

    Raises:
        UserError: The run cannot start, or a trainer failed.
    """
    options = loaded.options
    if actors is not None and actors.chosen:
        log.info("settings", note=actors.chosen)
    for warning in loaded.warnings:
        log.warning("settings", note=warning)
    check_supported(loaded)
    require_descriptors(options.rollcast)
    if actors is None or not actors.may_move:
        require_free(options.rollcast.address, ADDRESS)
    check_http(loaded)
    found = check_folder(loaded)
    with contextlib.ExitStack() as held:
        trainers = held.enter_context(contextlib.closing(_Trainers(loaded, started, early_end)))
        trainers.check(found)
        folder = held.enter_context(open_run_folder(**folder_arguments(options)))
        if log_file is not None:
            held.enter_context(log_file.opened(folder.path))
        remove_addresses(folder.path)  # of a learner that was killed: a command would say that this one does not answer
        log.info("learner_starts", folder=str(folder.path), resumed=folder.resuming, next=_next_step(loaded, folder))
        if options.checkpoint_settings.inference:  # in this process, which loads torch
            from learner.start.inference import serve_inference  # noqa: PLC0415

            return serve_inference(loaded, folder, takes_signals=early_end is not None)
        if folder.resuming:
            _name_what_is_left_out(folder, loaded)
        ending = _train(loaded, folder, trainers, actors, takes_signals=early_end is not None)
        if ending is None:
            return ExitCode.OK
        if actors is not None:
            actors.close(END_SECONDS if ending.is_final else 0.0, ending.actors)
        if not ending.is_complete:
            return ExitCode.NOT_SAVED
        return stopped_code if ending.reason == SIGNAL else ExitCode.OK


class _Trainers:
    """The trainers of a run: threads of this process, a process of their own, or ranks, here or on other machines.

    Args:
        loaded: The settings and their sources.
        started: The process that was started for them; None for threads, and for ranks that `open` starts.
        early_end: Handles signals while they start; None if nothing does.
    """

    def __init__(self, loaded: LoadedRun, started: StartedTrainers | None, early_end: Starting | None) -> None:
        self._loaded, self._service = loaded, loaded.options.rollcast
        self._early_end = early_end
        self._has_process = started is not None or self._service.has_ranks
        self._started: StartedTrainers | AwaitedTrainers | None = started
        self._process: TrainerProcess | None = None
        self._held = contextlib.ExitStack()
        if started is not None:
            self._held.push(started)

    def check(self, found: FoundFolder) -> None:
        """Checks what needs torch, if anything does, before the run folder is opened.

        The trainers do. For those on other machines, which look for the open folder, another process of this machine does.

        Raises:
            UserError: The run cannot start.
        """
        options = self._loaded.options
        if not has_requirements(options, found):
            return
        if self._started is not None:
            self._connected(self._started).check(self._loaded, found)
        elif self._service.trainer_address is None or options.checkpoint_settings.inference:
            from learner.training.run.requirements import check_requirements  # noqa: PLC0415 - loads torch

            check_requirements(self._loaded, found)
        else:
            with self._started_by(StartedTrainers) as it, contextlib.closing(TrainerProcess(it, Link())) as process:
                process.check(self._loaded, found)

    def open(self, folder: RunFolder, *, is_again: bool) -> Trainers | None:
        """Starts them unless they are, and returns their side of the run; None if nothing is left to train.

        Raises:
            UserError: The state to resume from cannot be read or does not fit, or they ended.
        """
        if self._has_process:
            if self._started is None:
                self._started = self._started_by(lambda: self._make(folder))
                self._held.push(self._started)
            process = self._process or self._connected(self._started)
            return process if process.open(self._loaded, folder, is_again=is_again) else None
        from learner.training.lockstep.resuming import is_over  # noqa: PLC0415 - loads torch
        from learner.training.run.training import TrainingSide  # noqa: PLC0415 - see above

        if is_over(self._loaded.options, folder):
            return None
        return TrainingSide(self._loaded, folder, Link())

    def close(self) -> None:
        """Ends what is left of them, as the ring of shared memory of a dead process; `open` starts others."""
        self._held.close()
        self._started = self._process = None

    def _started_by(self, make: Callable[[], T]) -> T:
        return make() if self._early_end is None else self._early_end.start(make)

    def _make(self, folder: RunFolder) -> StartedTrainers | AwaitedTrainers:
        address = self._service.trainer_address
        if address is None:
            return StartedTrainers(self._service.trainers)
        return AwaitedTrainers(address, self._service, folder.path)

    def _connected(self, started: StartedTrainers | AwaitedTrainers) -> TrainerProcess:
        kind = RankProcesses if self._service.has_ranks else TrainerProcess
        self._process = process = kind(started, Link())
        self._held.callback(process.close)
        return process


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
    loaded: LoadedRun, folder: RunFolder, trainers: _Trainers, actors: TrainingActors | None, *, takes_signals: bool
) -> Served | None:
    """Trains until the run ends; returns None if nothing was left to train.

    If the process of the trainers is killed, another one resumes the run at the same addresses. For actors this is a restart of the
    learner: they return to their sessions.

    Raises:
        UserError: The run cannot start, a trainer failed, or the process of the trainers was killed too often.
    """
    run: TrainingRun | None = None
    deaths = Deaths()
    with HeldPorts() as held, contextlib.ExitStack() as at_end:
        at_end.callback(_remove_addresses, folder)
        while True:
            try:
                side = trainers.open(folder, is_again=deaths.count > 0)
                if side is None:
                    return None
                run = TrainingRun(loaded, folder, side, run, actors=actors, takes_signals=takes_signals)
                held.close()  # the service listens next
                return run.serve()
            except UserError as error:
                has_died = error.exit_code is ExitCode.TRAINER_DIED
                is_ending = run is not None and not run.front.stopping.is_by_error
                if not has_died or is_ending or not deaths.allow_another():
                    raise
                held.extend(hold([] if run is None or run.bound is None else run.bound.all))
                write_awaited(folder.path, STARTS_AGAIN)  # first: who reads the line may end this process
                log.warning("trainers_start_again", reason=error.message, deaths=deaths.count, ends_at=MOST_DEATHS)
            folder.resume()
            trainers.close()


def _remove_addresses(folder: RunFolder) -> None:
    """Removes the addresses of this learner, unless another has the folder."""
    with contextlib.suppress(UserError):
        folder.require_newest()
        remove_addresses(folder.path)
