"""File names in a run folder: names for behaviors, and names of files that a start without training leaves."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from rollcast.files import read_regular

from learner.shared.observe.summary import PROGRESS_FILE, SUMMARY_FILE, read_small_json
from learner.shared.runfolder.lock import LOCK_NAME
from learner.shared.settings.names import name_problem

RUN_STATE: Final = "run_state.pt"
PREVIOUS_RUN_STATE: Final = "run_state.previous.pt"
REPLACED_RUN_STATE: Final = "run_state.replaced.pt"
"""The state of a run that ``--force`` has replaced; never resumed."""
GENERATION: Final = "generation"
CONFIGURATION: Final = "configuration.yaml"
SOURCES: Final = "configuration_sources.json"
NEWEST: Final = "checkpoint.pt"
"""The newest checkpoint of a behavior, in its folder."""
LAST: Final = "last"
"""Name of the newest checkpoint of all: the run state."""

_OF_ANY_START: Final = frozenset(
    {LOCK_NAME, GENERATION, CONFIGURATION, SOURCES, "events.jsonl", "logs", "run_logs", "wandb", "wandb_id"}
    | {"address.json", "audit.jsonl", "operator_token", "received_steps", "session_key"}
    | {"versions.json", "mlruns", "mlflow_id"}
)
_OWN_NAMES: Final = _OF_ANY_START | {PROGRESS_FILE, SUMMARY_FILE}
_OWN_SUFFIXES: Final = (".onnx", ".pt", ".tmp")
_MAX_GENERATION_BYTES: Final = 4096
_MAX_BYTES: Final = 160
"""Most bytes of a folder name. File systems allow 255 bytes, and ``-<step>.onnx`` is added."""


def safe_name(name: str) -> str:
    """Returns a file name for a behavior: its own name if possible, otherwise a similar one.

    A changed name ends with eight hexadecimal digits of the original's SHA-256, so that no two behaviors share a
    folder. The result has no separators, does not begin with a dot, and is none of the run folder's own names.
    """
    encoded = name.encode("utf-8", "replace")
    if name_problem(name) is None and _is_free(name) and len(encoded) <= _MAX_BYTES:
        return name
    kept = "".join(character if name_problem(f"x{character}x") is None else "_" for character in name)
    kept = kept.strip(" .").encode("utf-8", "replace")[: _MAX_BYTES - 9].decode("utf-8", "ignore").strip(" .")
    return f"{kept or 'behavior'}-{hashlib.sha256(encoded).hexdigest()[:8]}"


def initial_checkpoint(behavior: str, init_path: str | None, source: Path | None) -> Path | None:
    """Returns the file whose networks a behavior of a new run starts with; None for new networks.

    Args:
        behavior: Name of the behavior.
        init_path: The setting of that name: a ``.pt`` file, or the name of such a file in the other run's folder.
        source: Folder of the run that ``initialize_from`` names.
    """
    if init_path is None and source is None:
        return None
    path = Path(init_path or NEWEST)
    return source / safe_name(behavior) / path if source is not None and path.name == str(path) else path


def _is_free(name: str) -> bool:
    return name not in _OWN_NAMES and not name.startswith("run_state.") and not name.endswith((".", *_OWN_SUFFIXES))


def holds_a_run(path: Path) -> bool:
    """Returns whether a run folder holds anything that a new run must not mix with or overwrite.

    Checkpoints, models, statistics and foreign files count; a run state counts unless the summary of the newest start
    says that no step was trained. Logs, settings and empty folders of behaviors do not count.

    Raises:
        OSError: The folder cannot be read.
    """
    return any(not _is_of_no_account(entry) for entry in path.iterdir())


def _is_of_no_account(entry: Path) -> bool:
    if entry.name in _OF_ANY_START:
        return True
    if entry.name in (PROGRESS_FILE, SUMMARY_FILE):
        return _counts_nothing(entry)
    if entry.name in (RUN_STATE, PREVIOUS_RUN_STATE):
        summary = entry.with_name(SUMMARY_FILE)
        return _counts_nothing(summary) and _is_newest(summary)
    return entry.is_dir() and not entry.is_symlink() and not any(entry.iterdir())


def _is_newest(summary: Path) -> bool:
    """Returns whether the summary is of the newest start; otherwise the run state may be of a different start."""
    try:
        newest = read_regular(summary.with_name(GENERATION), _MAX_GENERATION_BYTES).strip()
    except OSError:
        return False
    return newest == str(read_small_json(summary)["generation"]).encode()


def _counts_nothing(path: Path) -> bool:
    """Returns whether a summary or progress file is the learner's and has no trained step; False for a damaged one."""
    content = read_small_json(path)
    if "generation" not in content:
        return False
    behaviors = content.get("behaviors", {})
    parts = [content, *behaviors.values()] if isinstance(behaviors, dict) else [None]
    return all(isinstance(part, dict) and part.get("env_steps_trained", 0) == 0 for part in parts)
