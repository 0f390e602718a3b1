"""Resumes a lock-step run: its run state is of a round, and everything after that round is repeated.

The newest checkpoint can therefore be ahead of the restart. If that checkpoint is the end of training, nothing is
repeated; otherwise the log says how far back the run goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import structlog

from learner.shared.runfolder.choice import read_behavior
from learner.shared.runfolder.documents import BadCheckpoint
from learner.shared.runfolder.names import LAST, safe_name
from learner.shared.runfolder.runfolder import RunFolder
from learner.shared.runfolder.store import SavedRunState, read_run_state
from learner.shared.saved_values import count
from learner.shared.settings.options import RunOptions, UnknownBehaviorError

log = structlog.get_logger(__name__)


def is_over(options: RunOptions, folder: RunFolder) -> bool:
    """Returns whether a resumed lock-step run has nothing left to train; logs that, or what it repeats.

    Call it before anything of the run is changed: a finished run stays unchanged.

    Args:
        options: The run file and the command line.
        folder: Folder of the run, open.
    """
    service = options.rollcast
    if service.lockstep is None or not folder.resuming or service.resume_checkpoint != LAST:
        return False
    state = read_run_state(folder.path)
    if state is None or not state.trainers:
        return False
    reached = {name: _newest_step(folder, name) for name in state.trainers}
    ends = _max_steps(options, reached)
    if ends and all(step >= ends[name] for name, step in reached.items()):
        for name, step in reached.items():
            log.warning(
                "nothing_to_train",
                behavior=name,
                step=step,
                max_steps=ends[name],
                action="this run is finished and its files do not change: raise max_steps to continue"
                f"{_from_round(state)}, in the run file or by --set behaviors.{name}.max_steps={2 * ends[name]}",
            )
        return True
    for name, step in reached.items():
        _tell_repeated(state, name, step)
    return False


def _max_steps(options: RunOptions, names: Iterable[str]) -> dict[str, int]:
    """Returns the last step of each behavior; empty if the run file lacks one of them, which the start reports."""
    try:
        return {name: options.settings_for(name).max_steps for name in names}
    except UnknownBehaviorError:
        return {}


def _newest_step(folder: RunFolder, behavior: str) -> int:
    """Returns the step of ``checkpoint.pt``; 0 without a readable one."""
    try:
        return read_behavior(folder.newest_checkpoint(behavior)).step
    except BadCheckpoint:
        return 0


def _tell_repeated(state: SavedRunState, behavior: str, newest_step: int) -> None:
    """Logs how far a run goes back; if it ends before `newest_step`, its model is older than the existing one."""
    trainer: Mapping[str, Any] = state.trainers[behavior]
    try:
        step = count(trainer, "steps_trained") + count(trainer, "steps_failed")
    except (KeyError, TypeError, ValueError):
        return  # a damaged state, or one of a trainer that counts differently: loading it reports the fault
    if newest_step <= step:
        return
    name = safe_name(behavior)
    log.warning(
        "lockstep_goes_back",
        behavior=behavior,
        step=step,
        newest_step=newest_step,
        note=f"the steps after{_round_of(state) or ' the run state'} are repeated; if the run ends before step {newest_step}, "
        f"its {name}.onnx and checkpoint.pt are older than now: copy {name}-{newest_step}.onnx and .pt to keep the newer ones",
    )


def _round_of(state: SavedRunState) -> str:
    try:
        return f" round {count(state.extra['lockstep'], 'round')}"
    except (KeyError, TypeError, ValueError):
        return ""


def _from_round(state: SavedRunState) -> str:
    found = _round_of(state)
    return f" from{found}" if found else ""
