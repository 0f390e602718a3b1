"""Implements ``serve``: checks that a run can start, opens its folder, and lets it train or act.

`learner.front.front` serves a run, `learner.run.run` runs its trainers, and `learner.commands.training` creates both.
"""

from __future__ import annotations

import structlog

from learner.checkpoints.runfolder import open_run_folder
from learner.commands.preflight import check_folder, check_supported
from learner.commands.trainer_start import StartedTrainers
from learner.commands.training import TrainingRun
from learner.common.exits import ExitCode
from learner.link.channel import Transport, as_it_is
from learner.observe import logs
from learner.observe.logs import LogFile
from learner.service.server import ADDRESS, CONTROL_ADDRESS, require_descriptors, require_free
from learner.settings.load import LoadedRun
from learner.web.status_site import check_http

log = structlog.get_logger(__name__)


def serve(loaded: LoadedRun, transport: Transport = as_it_is, started: StartedTrainers | None = None) -> int:
    """Runs a learner until its run ends, and returns the exit code.

    Args:
        loaded: The settings and their sources.
        transport: Function through which messages between the service and the trainers pass.
        started: The process of the trainers; None if they are threads of this one.

    Raises:
        UserError: The run cannot start, or a trainer failed.
    """
    options = loaded.options
    log_file = LogFile()
    logs.configure(options.rollcast.log_format, "debug" if options.debug else "info", file=log_file)
    for warning in loaded.warnings:
        log.warning("settings", note=warning)
    check_supported(loaded)
    service, checkpoints = options.rollcast, options.checkpoint_settings
    require_descriptors(service)
    require_free(service.address, ADDRESS)
    require_free(service.control_address, CONTROL_ADDRESS)
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
        # With a process of trainers, this one works without torch.
        if checkpoints.inference:
            from learner.commands.inference import serve_inference  # noqa: PLC0415

            return serve_inference(loaded, folder, transport)
        if service.lockstep is not None and folder.resuming:
            from learner.run.lockstep.resuming import is_over  # noqa: PLC0415

            if is_over(options, folder):
                return ExitCode.OK
        ending = TrainingRun(loaded, folder, transport, started).serve()
        return ExitCode.OK if ending.is_complete else ExitCode.NOT_SAVED
