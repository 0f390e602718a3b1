"""Writes statistics, settings and files to MLflow, if it is installed and named in the run file."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rollcast.text import in_one_line

from learner.shared.exits import ExitCode, UserError
from learner.shared.files import write_file
from learner.shared.observe.stats import HIDDEN_KEYS, StatSummary
from learner.training.writers.tensorboard import flat_settings
from learner.training.writers.tracker import is_id, kept_id, not_installed

_ID_FILE = "mlflow_id"
_FOLDER = "mlruns"
_DEFAULT_EXPERIMENT = "rollcast"
_NOT_IN_KEYS = re.compile(r"[^\w. /-]")
_MAX_KEY_CHARS = 250
_MAX_VALUE_CHARS = 500
_QUICK = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}
"""Variables unless they are set: a server that is gone must not hold the trainers up for MLflow's minutes."""
_BATCH = 100
"""Parameters in one call; MLflow's limit."""


class MlflowWriter:
    """Logs each category as ``<behavior>/<key>`` with the environment steps, to one MLflow run per run folder.

    The settings are its parameters, and settings, models, videos and game records its artifacts, in folders
    ``<behavior>/<kind>``. Server and experiment are MLflow's own settings: ``MLFLOW_TRACKING_URI`` (``mlruns`` in the run
    folder by default), ``MLFLOW_EXPERIMENT_NAME`` (``rollcast`` by default). A resumed run continues the same MLflow run.

    Args:
        run_folder: ``results/<run_id>``.
        run_id: The run's name.
        config: The settings.
        is_resumed: Whether to continue the MLflow run of the previous start.

    Raises:
        UserError: MLflow is not installed, or its server does not take the run.
    """

    def __init__(self, run_folder: Path, run_id: str, config: Mapping[str, object], *, is_resumed: bool) -> None:
        for name, value in _QUICK.items():
            os.environ.setdefault(name, value)
        try:
            from mlflow.entities import Metric, Param  # noqa: PLC0415 - an extra, and seconds to import
            from mlflow.exceptions import MlflowException  # noqa: PLC0415 - see above
            from mlflow.tracking import MlflowClient  # noqa: PLC0415 - see above
        except ModuleNotFoundError as error:
            raise not_installed("mlflow", error) from None
        self._metric: Any = Metric
        self._failed: Any = MlflowException
        uri = os.environ.get("MLFLOW_TRACKING_URI")
        if not uri:
            uri = (run_folder / _FOLDER).absolute().as_uri()
            # MLflow 3 refuses files otherwise; its extra has no databases.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        try:
            self._client: Any = MlflowClient(tracking_uri=uri)
            self._id = self._own_id(run_folder, run_id, is_resumed=is_resumed)
            params = [
                Param(_key(name), str(value)[:_MAX_VALUE_CHARS])
                for name, value in flat_settings(config)
                if value is not None
            ]
            for first in range(0, 0 if is_resumed else len(params), _BATCH):
                self._client.log_batch(self._id, params=params[first : first + _BATCH])
        except Exception as error:  # noqa: BLE001 - of MLflow, of the network, and of the system
            raise UserError(
                ExitCode.RUN_FILE,
                f"MLflow cannot be started: {in_one_line(error)}; set MLFLOW_TRACKING_URI to a server that answers, or remove "
                "mlflow from rollcast.stats_writers",
            ) from None

    def write(self, category: str, summaries: Mapping[str, StatSummary], step: int) -> None:
        """Logs a number for each summary."""
        now = int(time.time() * 1000)
        metrics = [
            self._metric(_key(f"{category}/{key}"), summary.value, now, step)
            for key, summary in summaries.items()
            if key not in HIDDEN_KEYS
        ]
        if metrics:
            self._client.log_batch(self._id, metrics=metrics)

    def write_text(self, category: str, title: str, text: str, step: int) -> None:
        """Keeps a text as an artifact."""
        del step
        self._client.log_text(self._id, text, f"{_key(category)}/{_key(title)}.md")

    def write_artifact(self, category: str, kind: str, path: Path, step: int) -> None:
        """Keeps a file as an artifact."""
        del step
        self._client.log_artifact(self._id, str(path), f"{_key(category)}/{kind}")

    def restart(self, category: str, step: int) -> None:
        """Stores as a tag from which step the run resumed."""
        self._client.set_tag(self._id, _key(f"{category}/resumed_from_step"), str(step))

    def close(self) -> None:
        """Ends the MLflow run."""
        with contextlib.suppress(OSError, self._failed):
            self._client.set_terminated(self._id)

    def _own_id(self, run_folder: Path, run_id: str, *, is_resumed: bool) -> str:
        """Returns MLflow's id of the run: the given one, that of the previous start, or that of a new one."""
        path = run_folder / _ID_FILE
        found = os.environ.get("MLFLOW_RUN_ID", "") or (kept_id(path) if is_resumed else "")
        if is_id(found):
            self._client.update_run(found, status="RUNNING")
            return found
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", _DEFAULT_EXPERIMENT)
        known = self._client.get_experiment_by_name(name)
        experiment = known.experiment_id if known is not None else self._client.create_experiment(name)
        made: str = self._client.create_run(experiment, run_name=run_id).info.run_id
        write_file(path, made.encode())
        return made


def _key(name: str) -> str:
    """Returns a name that MLflow takes: of letters, digits and some marks, and without steps up in a path."""
    return "/".join(part.strip(" .") or "_" for part in _NOT_IN_KEYS.sub("_", name)[:_MAX_KEY_CHARS].split("/"))
