"""The statistics writers named in the run file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from learner.shared import plugins
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.console import ConsoleWriter
from learner.shared.observe.csvfile import CsvWriter
from learner.shared.observe.stats import StatsWriter
from learner.shared.runfolder.names import safe_name
from learner.shared.runfolder.runfolder import RunFolder
from learner.shared.settings.load import LoadedRun, effective_document
from learner.training.writers.mlflow import MlflowWriter
from learner.training.writers.tensorboard import TensorBoardWriter
from learner.training.writers.wandb import WandbWriter

ENTRY_POINTS = "rollcast.stats_writers"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WriterContext:
    """Everything that a writer is built from.

    Attributes:
        run_folder: ``results/<run_id>``.
        run_id: Name of the run.
        is_resumed: Whether the run continues from a checkpoint.
        settings: The resolved settings, as in ``configuration.yaml``.
        folder_name: Returns the name of a behavior's folder in the run folder.
    """

    run_folder: Path
    run_id: str
    is_resumed: bool
    settings: Mapping[str, Any]
    folder_name: Callable[[str], str] = safe_name


_OWN: Mapping[str, Callable[[WriterContext], StatsWriter]] = {
    "tensorboard": lambda context: TensorBoardWriter(context.run_folder, context.folder_name, context.settings),
    "csv": lambda context: CsvWriter(context.run_folder, context.folder_name),
    "wandb": lambda context: WandbWriter(
        context.run_folder, context.run_id, context.settings, is_resumed=context.is_resumed
    ),
    "mlflow": lambda context: MlflowWriter(
        context.run_folder, context.run_id, context.settings, is_resumed=context.is_resumed
    ),
}


def open_writers(names: Sequence[str], context: WriterContext) -> list[StatsWriter]:
    """Creates the named writers: built-in ones, entry points, or ``module:callable``.

    The named callable is called with the context and returns a `StatsWriter`.

    Raises:
        UserError: A name is unknown, or its writer cannot be created.
    """
    writers: list[StatsWriter] = []
    for name in dict.fromkeys(names):
        setting = "rollcast.stats_writers"
        factory = plugins.find(setting, name, ENTRY_POINTS, _OWN)
        writer = plugins.make(setting, name, lambda factory=factory: factory(context))  # type: ignore[misc]
        missing = [method for method in ("write", "write_text", "restart", "close") if not hasattr(writer, method)]
        if missing:
            raise UserError(
                ExitCode.RUN_FILE,
                f"{setting} names {name!r}, but the object it returns lacks {', '.join(missing)}; see StatsWriter in "
                "learner/shared/observe/stats.py",
            )
        writers.append(writer)
    return writers


def writers_of(loaded: LoadedRun, folder: RunFolder) -> list[StatsWriter]:
    """Creates the writers named in a run's settings, and that of ``rollcast.log_format: mlagents``.

    Raises:
        UserError: See `open_writers`.
    """
    context = WriterContext(folder.path, folder.run_id, folder.resuming, effective_document(loaded))
    writers = open_writers(loaded.options.rollcast.stats_writers, context)
    return [*writers, ConsoleWriter()] if loaded.options.rollcast.log_format == "mlagents" else writers


def close_writers(writers: Sequence[StatsWriter]) -> None:
    """Closes each writer; a writer that fails loses only its own last values."""
    for writer in writers:
        try:
            writer.close()
        except BaseException as error:
            log.error("stats_not_closed", writer=type(writer).__name__, exc_info=error)
