"""Recognizes a folder that holds the run of another program, which Rollcast must not write into."""

from __future__ import annotations

import os
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from learner.shared.observe.summary import PROGRESS_FILE, SUMMARY_FILE, read_small_json
from learner.shared.runfolder.names import GENERATION, PREVIOUS_RUN_STATE, REPLACED_RUN_STATE, RUN_STATE, SOURCES

_OURS: Final = (
    GENERATION,
    SOURCES,
    RUN_STATE,
    PREVIOUS_RUN_STATE,
    SUMMARY_FILE,
    PROGRESS_FILE,
    REPLACED_RUN_STATE,
)
"""Any of these is in every folder in which a learner was started."""
_STATUS: Final = "run_logs/training_status.json"
_PROGRAMS: Final = (
    (_STATUS, "ML-Agents"),
    ("*/checkpoint.pt", "ML-Agents"),
    ("*frozen_graph_def.pb", "ML-Agents"),
    ("*.nn", "ML-Agents"),
    ("*algorithm_state.*", "RLlib"),
    ("*rllib_checkpoint.json", "RLlib"),
    ("*best_model.zip", "Stable-Baselines3"),
    ("*rl_model_*_steps.zip", "Stable-Baselines3"),
    ("checkpoint_p*/*.pth", "Sample Factory"),
    ("*.cleanrl_model", "CleanRL"),
)
_DOCUMENTS: Final = frozenset(
    {".md", ".txt", ".yaml", ".yml", ".json", ".jsonl", ".toml", ".ini", ".cfg", ".csv", ".log", ".tmp", ".py"}
)
"""Files of these kinds hold no checkpoint."""
_DEPTH: Final = 3
_MOST_FILES: Final = 10_000


def foreign_run(path: Path) -> str | None:
    """Returns the name of the program whose checkpoints are in a folder, with one of them; None if there are none.

    Raises:
        OSError: The folder cannot be read.
    """
    if not path.is_dir() or any(os.path.lexists(path / name) for name in _OURS):
        return None
    found = list(_files(path))
    for pattern, program in _PROGRAMS:
        for name in found:
            if fnmatch(name, pattern):
                return f"{program}{_version(path) if program == 'ML-Agents' else ''} ({name})"
    other = next((name for name in found if Path(name).suffix.lower() not in _DOCUMENTS), None)
    return None if other is None else f"another program ({other})"


def _files(path: Path) -> Iterator[str]:
    """Yields the names of files, relative to the folder; none that begin with a dot, such as the lock."""
    count = 0
    for folder, folders, files in os.walk(path, onerror=_raised):
        below = Path(folder).relative_to(path)
        folders[:] = sorted(name for name in folders if not name.startswith(".")) if len(below.parts) < _DEPTH else []
        for name in sorted(files):
            count += 1
            if count > _MOST_FILES:
                return
            if not name.startswith("."):
                yield (below / name).as_posix()


def _raised(error: OSError) -> None:
    raise error


def _version(path: Path) -> str:
    metadata = read_small_json(path / _STATUS).get("metadata")
    version = metadata.get("mlagents_version") if isinstance(metadata, dict) else None
    return f" {version[:16]}" if isinstance(version, str) and version.isprintable() else ""
