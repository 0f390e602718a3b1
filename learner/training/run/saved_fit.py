"""Compares the run state to resume from with the run file, before any actor is accepted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import DecodeError
from rollcast.errors import WireError
from rollcast.specs import BehaviorSpec
from rollcast.text import printable
from rollcast.v1 import spec_pb2

from learner.shared.exits import ExitCode, UserError
from learner.shared.runfolder.choice import load_chosen
from learner.shared.runfolder.names import CONFIGURATION, LAST
from learner.shared.runfolder.store import CheckpointStore, SavedRunState
from learner.shared.saved_values import reason
from learner.shared.settings.layers import leaves
from learner.shared.settings.options import RunOptions
from learner.shared.settings.yaml_reader import read_document
from learner.training.trainers.judge import require_resumed_fit

_OF_NETWORKS: Final = (
    ("trainer_type",),
    ("network_settings",),
    ("reward_signals",),
    ("hyperparameters", "shared_critic"),
)
"""Settings that decide which networks a behavior has."""
_MAX_NAMED: Final = 5


def require_resumable(options: RunOptions, store: CheckpointStore, state: SavedRunState) -> None:
    """Checks that the networks of the run file are those of the run that is resumed.

    Raises:
        UserError: They are not; the message has each changed setting, its old and its new value.
    """
    folder, choice = store.folder.path, options.rollcast.resume_checkpoint
    for name, spec in _specs(state):
        saved = state.trainers.get(name)
        if saved is None:
            continue
        if choice != LAST:
            saved = load_chosen(folder, name, choice, store.status).state
        settings = options.settings_for(name)
        try:
            require_resumed_fit(spec, settings, saved)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            changed = _changes(folder, name, settings.model_dump(mode="json"))
            raise UserError(
                ExitCode.BAD_CHECKPOINT,
                f"the saved state of {name} does not fit the run file: {changed or reason(error)}; restore what it was, start a "
                "new run with another --run-id, or start over with --force",
            ) from error


def _specs(state: SavedRunState) -> Iterator[tuple[str, BehaviorSpec]]:
    """Yields the readable behaviors of a run state; the service reports the others."""
    try:
        for row in state.behaviors_table["behaviors"]:
            yield row["name"], BehaviorSpec.from_message(spec_pb2.BehaviorSpec.FromString(row["spec"]))
    except (DecodeError, KeyError, TypeError, ValueError, WireError):
        return


def _changes(folder: Path, name: str, new: Mapping[str, Any]) -> str:
    """Returns the settings of networks that differ from those of the run's last start; empty if none is known."""
    try:
        tree: Any = read_document(folder / CONFIGURATION).tree
    except UserError:
        return ""
    behaviors = tree.get("behaviors")
    old = behaviors.get(name) if isinstance(behaviors, dict) else None
    old = tree.get("default_settings") if old is None else old
    if not isinstance(old, dict):
        return ""
    paths = [
        path
        for path in dict.fromkeys((*leaves(old), *leaves(dict(new))))
        if any(path[: len(prefix)] == prefix for prefix in _OF_NETWORKS) and _at(old, path) != _at(new, path)
    ]
    found = [f"{'.'.join(path)} was {_at(old, path)}, is {_at(new, path)}" for path in paths[:_MAX_NAMED]]
    return printable("; ".join([*found, *([f"and {len(paths) - _MAX_NAMED} more"] if len(paths) > _MAX_NAMED else [])]))


def _at(tree: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """Returns the value at a path; "null" without one."""
    found: Any = tree
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return "null" if found is None else found
