"""Collects what the status page shows of a run beside its numbers: settings, events, and the runs in the same folder."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, Final

from rollcast.text import printable

from learner.shared.exits import UserError
from learner.shared.observe.journal import newest_events
from learner.shared.settings.load import MASK, LoadedRun, effective_document
from learner.start.list_runs import list_runs
from learner.training.writers.tensorboard import flat_settings

MAX_EVENTS: Final = 200
MAX_RUNS: Final = 100
_TAIL_BYTES: Final = 2**17


_HIDDEN: Final = frozenset({"env_settings.env_args"})
"""Settings whose values may hold secrets that no source marks, such as the licence of a simulator."""


class AboutRun:
    """Returns the document of ``GET /api/run``, of plain values.

    Args:
        folder: Run folder.
        loaded: The settings and their sources.
        clients_page: Address of the page on which a browser is a client; empty if there is none.
    """

    def __init__(self, folder: Path, loaded: LoadedRun, clients_page: str = "") -> None:
        self._folder = folder
        self._clients_page = clients_page
        self._results_dir = Path(loaded.options.checkpoint_settings.results_dir)
        self._settings = [
            {
                "name": name,
                "value": MASK if name in _HIDDEN and value else value,
                "is_default": loaded.sources.get(name, "default") == "default",
            }
            for name, value in flat_settings(effective_document(loaded))
        ]
        has_curves = "tensorboard" in loaded.options.rollcast.stats_writers
        self._tensorboard = (
            f"tensorboard --logdir {shlex.quote(str(self._results_dir.absolute()))}" if has_curves else ""
        )

    def __call__(self) -> dict[str, Any]:
        """Returns the document. Files of any content are read without an error."""
        try:
            runs = list_runs(self._results_dir)
        except UserError:  # someone has moved the folder away
            runs = []
        return {
            "folder": printable(str(self._folder.absolute())),
            "tensorboard": printable(self._tensorboard),
            "clients_page": self._clients_page,
            "settings": self._settings,
            "events": list(islice(newest_events(self._folder, _TAIL_BYTES), MAX_EVENTS)),
            "runs": [asdict(run) for run in runs[:MAX_RUNS]],
        }
