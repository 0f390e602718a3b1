"""Finds reasons why trainers cannot start: missing code of packages, the device, and the checkpoints to start from."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError
from rollcast.errors import WireError
from rollcast.specs import BehaviorSpec
from rollcast.v1 import spec_pb2

from learner.shared.exits import ExitCode, UserError, refuse
from learner.shared.runfolder.choice import load_chosen, read_initial
from learner.shared.runfolder.foreign import foreign_run
from learner.shared.runfolder.names import LAST, NEWEST, initial_checkpoint
from learner.shared.runfolder.runfolder import FoundFolder
from learner.shared.runfolder.status import TrainingStatus
from learner.shared.runfolder.store import SavedRunState, read_run_state
from learner.shared.saved_values import reason
from learner.shared.settings.load import LoadedRun
from learner.shared.settings.options import RunOptions
from learner.shared.settings.rules import missing_code
from learner.shared.settings.trainer import TrainerSettings
from learner.training.run.setup import require_repeatable, usable_device
from learner.training.trainers.memory_estimate import require_initial_fit

_ANY: Final = "(any)"
"""Name for the behaviors that the run file does not list."""


def check_requirements(loaded: LoadedRun, found: FoundFolder) -> None:
    """Checks that code of packages, the device, and the checkpoints that a run starts from can be used; changes nothing.

    Users' code is imported but not called.

    Args:
        loaded: The settings and their sources.
        found: The run folder.

    Raises:
        UserError: A package is missing, a device does not exist, or a checkpoint is missing, damaged, or another trainer's.
    """
    options = loaded.options
    for error in missing_code(options, loaded.places):
        raise error
    device = usable_device(options)
    if options.rollcast.lockstep is not None:
        require_repeatable(device)
    if found.resuming:
        _check_resumed(options, found.path)
    else:
        _check_initial(options, found)


def _refuse_added(found: FoundFolder, paths: Mapping[str, Path]) -> None:
    """Refuses behaviors that the other run does not have: initialize_from is for all, init_path for each.

    Raises:
        UserError: Some of the behaviors have a checkpoint in the other run, and some have none.
    """
    source = found.source
    theirs = {name: path for name, path in paths.items() if source is not None and source in path.parents}
    added = [name for name, path in theirs.items() if not path.exists()]
    kept = {name: path for name, path in theirs.items() if name not in added}
    if added and kept:
        name, path = next(iter(kept.items()))
        raise UserError(
            ExitCode.BAD_CHECKPOINT,
            f"{source} has no checkpoint of {', '.join(map(repr, added))}: to start only {', '.join(map(repr, kept))} from it, "
            f"omit initialize_from and give each its init_path, such as --set behaviors.{name}.init_path={path}",
        )


def _check_initial(options: RunOptions, found: FoundFolder) -> None:
    """Checks the checkpoints that behaviors start from: those of listed behaviors, and one that all others share.

    Raises:
        UserError: A checkpoint is missing, damaged, or of another trainer.
    """
    source = found.source
    if source is not None:
        _require_checkpoints(source)
    paths = {
        name: (path, settings)
        for name, settings in options.behaviors.items()
        if (path := initial_checkpoint(name, settings.init_path, source)) is not None
    }
    default = options.default_settings
    if default is not None and default.init_path is not None:
        path = initial_checkpoint(_ANY, default.init_path, source)
        if path == Path(default.init_path):  # one file for all unlisted behaviors
            paths[_ANY] = path, default
    _refuse_added(found, {name: path for name, (path, _) in paths.items()})
    is_listed = bool(paths)
    if source is not None and not is_listed:  # any behavior of the other run may be declared
        settings = default or TrainerSettings()
        paths = {path.parent.name: (path, settings) for path in sorted(source.glob(f"*/{NEWEST}"))}
    if not paths:
        return
    is_training = not options.checkpoint_settings.inference
    problems = [_initial_problem(name, *each, is_training=is_training) for name, each in paths.items()]
    if is_listed:
        problems = [problem for problem in problems if problem]
        refuse(ExitCode.BAD_CHECKPOINT, "the run cannot start from its checkpoints", problems)
    elif all(problems):  # no behavior could be declared
        raise UserError(ExitCode.BAD_CHECKPOINT, problems[0])


def _require_checkpoints(source: Path) -> None:
    """Checks that the folder that initialize_from names holds checkpoints.

    Raises:
        UserError: It holds none.
    """
    if any(source.glob("*/*.pt")):
        return
    program = None
    with contextlib.suppress(OSError):
        program = foreign_run(source)
    holds = f"holds no {NEWEST} of any behavior" if program is None else f"is a folder of {program}"
    raise UserError(
        ExitCode.BAD_CHECKPOINT,
        f"--initialize-from names the run {source.name!r}, but {source} {holds}; name a run of Rollcast that has saved "
        f"a {NEWEST}, or omit --initialize-from",
    )


def _check_resumed(options: RunOptions, folder: Path) -> None:
    """Checks the checkpoints from which a run resumes, if they are not the run state.

    Raises:
        UserError: A checkpoint is missing or damaged.
    """
    choice = options.rollcast.resume_checkpoint
    if choice == LAST:
        return
    state = read_run_state(folder)
    status = TrainingStatus.load(folder / "run_logs" / "training_status.json")
    for name in () if state is None else state.trainers:
        load_chosen(folder, name, choice, status)


def _initial_problem(behavior: str, path: Path, settings: TrainerSettings, *, is_training: bool) -> str:
    """Returns the problem of a checkpoint for a behavior in one line; empty if none is known.

    If the behavior is trained, all its networks must fit; otherwise only the policy must.
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
        state = read_run_state(path.parent.parent) if is_training else None
        spec = None if state is None else saved_specs(state).get(found.behavior)
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


def saved_specs(state: SavedRunState) -> dict[str, BehaviorSpec]:
    """Returns the specs of a run state's behaviors, as far as they can be read; the service reports the others."""
    found = {}
    with contextlib.suppress(DecodeError, KeyError, TypeError, ValueError, WireError):
        for row in state.behaviors_table["behaviors"]:
            found[row["name"]] = BehaviorSpec.from_message(spec_pb2.BehaviorSpec.FromString(row["spec"]))
    return found
