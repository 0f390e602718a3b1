"""A learner from start to end: starts its parts, watches, drains, stops. Read this first; `assembly` makes the parts.

Two threads: the main one runs the event loop with the gRPC service and looks after the run; the other runs the
trainers. They exchange the values of `learner.link`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from learner.checkpoints.runfolder import RunFolder, open_run_folder
from learner.commands.inference import serve_inference
from learner.commands.preflight import check_supported
from learner.common.exits import ExitCode, UserError
from learner.common.files import WriteFailed
from learner.common.plugins import in_one_line, place_of
from learner.ingest.behaviors import Behavior
from learner.observe import logs
from learner.observe.address import BoundAddresses, remove_addresses
from learner.observe.display import Display, open_display
from learner.observe.logs import LOG_FILE, LogFile
from learner.observe.summary import BehaviorSummary, Summary, write_summary
from learner.observe.summary_table import print_summary
from learner.run.assembly import Assembly
from learner.run.checkpointing import Kept
from learner.run.lockstep.resuming import is_over
from learner.run.operator_signals import OperatorSignals
from learner.run.setup import (
    announce,
    with_port,
)
from learner.run.stopping import Stop
from learner.service.server import LearnerServer, require_free
from learner.settings.load import LoadedRun
from learner.status.actor_shares import bottleneck_meter
from learner.status.run_status import RunStatus
from learner.web.status_site import StatusSite, check_http, http_address_is_default

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
        if is_over(options, folder):
            return ExitCode.OK
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
        self._parts = Assembly(loaded, folder)
        self._http_falls_back = http_address_is_default(loaded)

    async def run(self) -> int:
        """Serves, trains, and ends; returns the exit code.

        Raises:
            UserError: an address cannot be had, or the trainer found a fault of the user's.
        """
        parts = self._parts
        server = parts.make_server(parts.control)
        site = parts.make_site(server, parts.control, parts.folder.path, falls_back=self._http_falls_back)
        with parts.record, parts.stopping.listening(), OperatorSignals(parts.control).listening():
            await server.start()
            try:
                await site.start()
                self._announce(server, site)
                return await self._serve(server)
            finally:
                await server.stop()
                await site.stop(in_a_hurry=parts.stopping.hurry.is_set())
                remove_addresses(parts.folder.path)

    async def _serve(self, server: LearnerServer) -> int:
        parts = self._parts
        thread = threading.Thread(target=parts.loop.run, name="trainers", daemon=True)
        thread.start()
        with open_display(parts.service.log_format, parts.service.summary_seconds) as display:
            await self._watch(display)
            stop = await self._wind_down(server, thread)
            display.update(parts.view(), now=True)
        code = await asyncio.to_thread(self._conclude, stop, has_ended=not thread.is_alive())
        error = "" if stop.error is None else f"{type(stop.error).__name__}: {stop.error}"
        await asyncio.to_thread(parts.record.end, stop.reason, error, is_complete=code == ExitCode.OK)
        if stop.error is not None:
            raise _in_one_line(stop.error, parts.folder) from stop.error
        return code

    def _announce(self, server: LearnerServer, site: StatusSite) -> None:
        parts = self._parts
        parts.address = with_port(parts.service.address, server.port)
        control = with_port(parts.service.control_address, server.control_port)
        parts.record.begin(parts.address)
        announce(
            parts.folder,
            BoundAddresses(parts.address, control, site.address),
            page=site.url,
            generation=parts.generation,
            seed=parts.seed,
            device=str(parts.device),
        )

    async def _watch(self, display: Display) -> None:
        """Looks after the run until something asks for its end."""
        parts = self._parts
        bottleneck = bottleneck_meter(parts.sessions, parts.behaviors)
        while not parts.stopping.asked.is_set():
            parts.run_status.note_steps(is_paused=parts.loop.is_paused)
            found = bottleneck.update(parts.state, parts.loop.busy_seconds)
            parts.run_status.bottleneck = parts.evaluations.bottleneck(found)
            limit = parts.service.max_wall_seconds
            if limit is not None and parts.run_status.uptime_seconds >= limit:
                parts.stopping.ask("max_wall_seconds", final=True)
            elif parts.loop.is_finished:
                parts.stopping.ask("max_steps", final=True)
            if display.due:
                display.update(parts.view())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(parts.stopping.asked.wait(), _WATCH_SECONDS)

    async def _wind_down(self, server: LearnerServer, thread: threading.Thread) -> Stop:
        """Ends training after the present update, and says farewell to the actors."""
        parts = self._parts
        stop = parts.stopping.stop or Stop("signal", final=False)
        log.info("stopping", reason=stop.reason, final=stop.final, **_SIGNALLED if stop.reason == "signal" else {})
        parts.loop.stop()
        await server.drain(
            final=stop.final,
            seconds=parts.service.drain_seconds,
            hurry=parts.stopping.hurry,
            has_failed=stop.error is not None,
        )
        await asyncio.to_thread(thread.join, _JOIN_SECONDS)
        parts.run_status.note_steps(is_paused=parts.loop.is_paused)
        return parts.stopping.stop or stop  # the last update may have failed

    def _conclude(self, stop: Stop, *, has_ended: bool) -> int:
        """Writes what a run leaves behind.

        Args:
            stop: why the run ends.
            has_ended: the present update has: else weights and books are not of one moment, and are not saved.
        """
        parts = self._parts
        trainers = parts.loop.trainers
        if not has_ended:
            log.error("update_not_over", waited_seconds=_JOIN_SECONDS, action="the last run state stays as it is")
        kept = Kept({}, is_complete=has_ended)
        if has_ended and stop.error is None:
            parts.evaluations.finish(trainers)
            kept = parts.keeper.finish(trainers)
        parts.close_statistics()
        if isinstance(stop.error, UserError) and stop.error.exit_code is ExitCode.BAD_CHECKPOINT:
            raise stop.error  # nothing was trained: the summary of the start before stays
        behaviors = parts.behaviors.all()
        is_told = write_ending(
            parts.folder, parts.run_status, behaviors, kept.models, stop, generation=parts.generation
        )
        if isinstance(stop.error, UserError):
            raise stop.error
        if stop.error is not None:
            return ExitCode.TRAINER_FAILED
        return ExitCode.OK if kept.is_complete and is_told else ExitCode.NOT_SAVED


def _in_one_line(error: BaseException, folder: RunFolder) -> UserError:
    """Returns what the command prints as its last line of an error that nobody foresaw, such as one of a package's loss."""
    place = place_of(error)
    return UserError(
        ExitCode.TRAINER_FAILED,
        f"the trainer failed: {in_one_line(error)}{place and f' ({place})'}; the traceback is in {folder.path / LOG_FILE}",
    )


def write_ending(
    folder: RunFolder,
    run_status: RunStatus,
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
                run_status.behavior_view(behavior),
                run_status.milestones(behavior.name),
                run_status.actor_numbers(behavior),
                models.get(behavior.name),
            )
            for behavior in behaviors
        },
        lockstep=run_status.lockstep(),
    )
    is_written = True
    try:
        write_summary(folder.path, summary)
    except WriteFailed as error:
        log.error("summary_failed", error=str(error))
        is_written = False
    print_summary(summary)
    return is_written
