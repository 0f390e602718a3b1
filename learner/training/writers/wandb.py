"""Writes statistics to Weights & Biases, if it is installed and named in the run file."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rollcast.text import printable

from learner.shared.exits import ExitCode, UserError
from learner.shared.files import WriteFailed, write_file
from learner.shared.observe.stats import HIDDEN_KEYS, VIDEO, Aggregation, StatSummary
from learner.training.writers.tracker import kept_id, not_installed

HISTOGRAM_BINS = 30
LARGEST_DRAWN = float(np.finfo(np.float32).max)
_ID_FILE = "wandb_id"
_DEFAULT_PROJECT = "rollcast"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]")
_MAX_NAME_CHARS = 128


class WandbWriter:
    """Logs each category as ``<behavior>/<key>`` against ``<behavior>/step``, to one W&B run per run folder.

    Settings, models, videos and game records are versions of artifacts ``<run>-<behavior>-<kind>``; videos are also shown
    as ``<behavior>/video``.

    Account, project and mode are W&B's own settings: ``wandb login``, ``WANDB_PROJECT`` (``rollcast`` by default),
    ``WANDB_MODE=offline``. A resumed run continues the same W&B run, or the one that ``WANDB_RUN_ID`` names. W&B deletes
    nothing, so it shows values logged after the checkpoint next to their replacements.

    Args:
        run_folder: ``results/<run_id>``; W&B keeps its files in ``wandb`` there.
        run_id: The run's name.
        config: The settings shown with the run.
        is_resumed: Whether to continue the W&B run of the previous start.

    Raises:
        UserError: W&B is not installed or cannot be started.
    """

    def __init__(self, run_folder: Path, run_id: str, config: Mapping[str, object], *, is_resumed: bool) -> None:
        try:
            import wandb  # noqa: PLC0415 - an extra, and seconds to import
        except ModuleNotFoundError as error:
            raise not_installed("wandb", error) from None
        self._wandb: Any = wandb
        self._run_id = run_id
        self._steps: set[str] = set()
        try:
            self._run: Any = self._wandb.init(
                project=os.environ.get("WANDB_PROJECT", _DEFAULT_PROJECT),
                id=_own_id(run_folder, is_resumed=is_resumed),
                name=run_id,
                resume="allow",
                dir=str(run_folder),
                config=dict(config),
                settings=self._wandb.Settings(console="off", silent=True),
            )
        except (OSError, WriteFailed, self._wandb.Error) as error:
            reason = " ".join(str(error).split())
            raise UserError(
                ExitCode.RUN_FILE,
                f"W&B cannot be started: {printable(reason)}; run 'wandb login', set WANDB_MODE=offline, or remove "
                "wandb from rollcast.stats_writers",
            ) from None

    def write(self, category: str, summaries: Mapping[str, StatSummary], step: int) -> None:
        """Logs a number for each summary, and a histogram ``<key>_hist`` for each HISTOGRAM."""
        place = f"{category}/step"
        if category not in self._steps:
            self._run.define_metric(f"{category}/*", step_metric=place)
            self._steps.add(category)
        values: dict[str, object] = {place: step}
        for key, summary in summaries.items():
            if key in HIDDEN_KEYS:
                continue
            values[f"{category}/{key}"] = summary.value
            if summary.aggregation is Aggregation.HISTOGRAM and summary.values.size:
                counted = np.histogram(np.clip(summary.values, -LARGEST_DRAWN, LARGEST_DRAWN), bins=HISTOGRAM_BINS)
                values[f"{category}/{key}_hist"] = self._wandb.Histogram(np_histogram=counted)
        self._run.log(values)

    def write_text(self, category: str, title: str, text: str, step: int) -> None:
        """Stores a text in the run's summary."""
        del step
        self._run.summary[f"{category}/{title}"] = text

    def write_artifact(self, category: str, kind: str, path: Path, step: int) -> None:
        """Keeps a file as the newest version of an artifact; W&B copies it before it returns."""
        name = _NOT_IN_NAMES.sub("-", f"{self._run_id}-{category}-{kind}")[-_MAX_NAME_CHARS:]
        artifact = self._wandb.Artifact(name, type=kind, metadata={"behavior": category, "step": step})
        artifact.add_file(str(path))
        self._run.log_artifact(artifact)
        if kind == VIDEO:
            shown = self._wandb.Video(str(path), format=path.suffix[1:])
            self._run.log({f"{category}/step": step, f"{category}/video": shown})

    def restart(self, category: str, step: int) -> None:
        """Stores in the run's summary from which step the run resumed."""
        self._run.summary[f"{category}/resumed_from_step"] = step

    def close(self) -> None:
        """Sends remaining values and ends the W&B run."""
        with contextlib.suppress(OSError, self._wandb.Error):
            self._run.finish()


def _own_id(run_folder: Path, *, is_resumed: bool) -> str:
    """Returns W&B's id of the run: the given one, that of the previous start, or a new one, as W&B never reuses one."""
    path = run_folder / _ID_FILE
    if given := os.environ.get("WANDB_RUN_ID"):
        write_file(path, given.encode())
        return given
    if is_resumed and (kept := kept_id(path)):
        return kept
    made = secrets.token_hex(8)
    write_file(path, made.encode())
    return made
