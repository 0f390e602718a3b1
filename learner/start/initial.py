"""Checks a checkpoint from which a behavior of a new run is to start, before the behavior is declared."""

from __future__ import annotations

from pathlib import Path

from google.protobuf.message import DecodeError
from rollcast.errors import WireError
from rollcast.specs import BehaviorSpec
from rollcast.v1 import spec_pb2

from learner.shared.exits import UserError
from learner.shared.runfolder.choice import BehaviorCheckpoint, read_initial
from learner.shared.runfolder.store import read_run_state
from learner.shared.saved_values import reason
from learner.shared.settings.trainer import TrainerSettings
from learner.training.trainers.memory_estimate import require_initial_fit


def initial_problem(behavior: str, path: Path, settings: TrainerSettings, *, is_training: bool) -> str:
    """Returns the problem of a checkpoint for a behavior in one line; empty if none is known.

    Args:
        behavior: Name of the behavior.
        path: Path of the checkpoint.
        settings: Trainer settings of the behavior.
        is_training: Whether the behavior is trained, so that all its networks must fit; otherwise only the policy must.
    """
    try:
        found = read_initial(behavior, path)
    except UserError as error:
        return error.message
    theirs = found.state.get("trainer_type", settings.trainer_type)
    if theirs != settings.trainer_type:
        return (
            f"behavior {behavior!r} cannot start from {path}: it is a checkpoint of trainer {theirs!s:.40}, but the run "
            f"file has trainer_type {settings.trainer_type}; name a checkpoint of the same trainer"
        )
    try:
        spec = _spec_of(found, path.parent.parent) if is_training else None
        if spec is not None:
            require_initial_fit(spec, settings, found.state)
    except UserError as error:
        return f"behavior {behavior!r} cannot start from {path}: {error.message}"
    except (KeyError, TypeError, ValueError) as error:
        return (
            f"behavior {behavior!r} cannot start from {path}: {reason(error)}; use the network_settings that it was "
            "trained with, or another checkpoint"
        )
    return ""


def _spec_of(checkpoint: BehaviorCheckpoint, folder: Path) -> BehaviorSpec | None:
    """Returns the spec of a checkpoint's behavior from the run state of its run; None if unknown."""
    state = read_run_state(folder)
    if state is None:
        return None
    try:
        for row in state.behaviors_table["behaviors"]:
            if row["name"] == checkpoint.behavior:
                return BehaviorSpec.from_message(spec_pb2.BehaviorSpec.FromString(row["spec"]))
    except (DecodeError, KeyError, TypeError, ValueError, WireError):
        return None
    return None
