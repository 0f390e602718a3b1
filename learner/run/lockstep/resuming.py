"""What ``--resume`` means for a run in lock-step: its run state is of a round, and what came after is repeated.

So the newest checkpoint may be ahead of what a restart goes on from. Where that checkpoint is the end of training, nothing
is repeated; else it is said how far back the run goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import structlog

from learner.checkpoints.choice import read_behavior
from learner.checkpoints.documents import BadCheckpoint
from learner.checkpoints.names import LAST, safe_name
from learner.checkpoints.runfolder import RunFolder
from learner.checkpoints.store import SavedRunState, read_run_state
from learner.common.saved_values import count
from learner.settings.options import RunOptions, UnknownBehaviorError

log = structlog.get_logger(__name__)


def is_over(options: RunOptions, folder: RunFolder) -> bool:
    """Says whether a resumed run in lock-step has nothing left to train, and logs that, or what it repeats.

    Call it before anything of the run is touched: a run that is over stays as it is.

    Args:
        options: the run file and the command line.
        folder: of the run, open.
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
                action="this run has reached max_steps, and its files stay as they are: raise it to train on"
                f"{_from_round(state)}",
            )
        return True
    for name, step in reached.items():
        _tell_repeated(state, name, step)
    return False


def _max_steps(options: RunOptions, names: Iterable[str]) -> dict[str, int]:
    """Returns where each behavior is done; nothing where the run file has one of them no more, as the start will say."""
    try:
        return {name: options.settings_for(name).max_steps for name in names}
    except UnknownBehaviorError:
        return {}


def _newest_step(folder: RunFolder, behavior: str) -> int:
    """Returns the step of ``checkpoint.pt``; 0 where there is none that can be read."""
    try:
        return read_behavior(folder.newest_checkpoint(behavior)).step
    except BadCheckpoint:
        return 0


def _tell_repeated(state: SavedRunState, behavior: str, newest_step: int) -> None:
    """Says how far a run goes back: ended before it is there again, it leaves an older model."""
    trainer: Mapping[str, Any] = state.trainers[behavior]
    try:
        step = count(trainer, "steps_trained") + count(trainer, "steps_failed")
    except (KeyError, TypeError, ValueError):
        return  # of a trainer that counts in another way, or damaged: whoever loads it says so
    if newest_step <= step:
        return
    name = safe_name(behavior)
    log.warning(
        "lockstep_goes_back",
        behavior=behavior,
        step=step,
        newest_step=newest_step,
        note=f"what came after{_round_of(state) or ' the run state'} is repeated; ended before step {newest_step}, the run "
        f"leaves an older {name}.onnx and checkpoint.pt than there are now: copy {name}-{newest_step}.onnx and .pt to keep "
        "them for sure",
    )


def _round_of(state: SavedRunState) -> str:
    try:
        return f" round {count(state.extra['lockstep'], 'round')}"
    except (KeyError, TypeError, ValueError):
        return ""


def _from_round(state: SavedRunState) -> str:
    found = _round_of(state)
    return f", which goes on from{found}" if found else ""
