"""What a start leaves in its folder that trained and saved nothing: a run may begin there without --force."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from learner.checkpoints.lock import LOCK_NAME
from learner.common.files import read_regular
from learner.observe.progress import PROGRESS_FILE, read_small_json
from learner.observe.summary import SUMMARY_FILE

RUN_STATE: Final = "run_state.pt"
PREVIOUS_RUN_STATE: Final = "run_state.previous.pt"
GENERATION: Final = "generation"
CONFIGURATION: Final = "configuration.yaml"
SOURCES: Final = "configuration_sources.json"
_OF_ANY_START: Final = frozenset(
    {LOCK_NAME, GENERATION, CONFIGURATION, SOURCES, "events.jsonl", "logs", "run_logs", "wandb", "wandb_id"}
    | {"address.json", "operator_token", "versions.json"}
)
_COUNTS: Final = (PROGRESS_FILE, SUMMARY_FILE)
_MAX_GENERATION_BYTES: Final = 4096
_STATES: Final = (RUN_STATE, PREVIOUS_RUN_STATE)


def holds_a_run(path: Path) -> bool:
    """Says whether a run folder holds anything that a new run must not be mixed with, or write over.

    Checkpoints, models, statistics, and files that are not the learner's count; so does a run state, unless the summary
    of the newest start says that no step was trained. Logs and settings do not, nor empty folders of behaviors.

    Raises:
        OSError: the folder cannot be read.
    """
    return any(not _is_of_no_account(entry) for entry in path.iterdir())


def _is_of_no_account(entry: Path) -> bool:
    if entry.name in _OF_ANY_START:
        return True
    if entry.name in _COUNTS:
        return _counts_nothing(entry)
    if entry.name in _STATES:
        summary = entry.with_name(SUMMARY_FILE)
        return _counts_nothing(summary) and _is_newest(summary)
    return entry.is_dir() and not entry.is_symlink() and not any(entry.iterdir())


def _is_newest(summary: Path) -> bool:
    """Whether the summary is that of the newest start: the state may be of another else."""
    try:
        newest = read_regular(summary.with_name(GENERATION), _MAX_GENERATION_BYTES).strip()
    except OSError:
        return False
    return newest == str(read_small_json(summary)["generation"]).encode()


def _counts_nothing(path: Path) -> bool:
    """Whether a summary, or what was noted on the way, is ours and has no trained step; a damaged one is a run's."""
    content = read_small_json(path)
    if "generation" not in content:
        return False
    behaviors = content.get("behaviors", {})
    parts = [content, *behaviors.values()] if isinstance(behaviors, dict) else [None]
    return all(isinstance(part, dict) and part.get("env_steps_trained", 0) == 0 for part in parts)
