"""Checks that nothing between the first and last minibatch of an update waits for the device.

On a CUDA device torch itself says so, by its debug mode for synchronizations. On a CPU the whole training is done on a
device that is only pretended (`tests.tools.gpu.pretended`), which also finds operations that mix host and device.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
from rollcast.trajectories import Chunk

from learner.training.trainers.actor_critic import trainer as actor_critic
from learner.training.trainers.base import Trainer
from learner.training.trainers.replay import ReplayTrainer
from tests.tools.gpu.cases import Case, cases, record, start
from tests.tools.gpu.check import Outcome, Setup
from tests.tools.gpu.devices import waits_are_errors
from tests.tools.gpu.pretended import PRETENDED, PretendedDevice

Watch = Callable[[], AbstractContextManager[None]]


def check(setup: Setup) -> Outcome:
    """Trains everything with both eyes on the loop over minibatches."""
    entered, faults = 0, []
    chosen = cases(setup)
    for case in chosen:
        chunks = record(case, setup.folder, 6 if case.kind == "signals" else 3).chunks  # sac clones every 50 updates
        pretended = PretendedDevice() if setup.device.type == "cpu" else None
        device, watch = (
            (setup.device, waits_are_errors) if pretended is None else (PRETENDED, pretended.waits_are_errors)
        )
        try:
            with pretended or nullcontext():
                entered += watched(case, device, setup, chunks, watch)
        except RuntimeError as error:
            faults.append(f"{case.name}: {str(error).splitlines()[0]}")
    text = f"{entered} loops over minibatches of {len(chosen)} trainers and networks, none waited"
    return Outcome(not faults, "; ".join(faults) or text, {"loops": float(entered)})


def watched(case: Case, device: torch.device, setup: Setup, chunks: list[Chunk], watch: Watch) -> int:
    """Trains, and watches each loop over minibatches but those of the first chunk; returns how many.

    What is made once (workspaces, plans of cuDNN) may wait.
    """
    started = start(case, device, setup.folder)
    started.feed(chunks[0])
    with _around_loops(started.trainer, watch) as entered:
        for chunk in chunks[1:]:
            started.feed(chunk)
    if not entered:
        raise RuntimeError("no loop was entered")
    return len(entered)


@contextmanager
def _around_loops(trainer: Trainer, watch: Watch) -> Iterator[list[str]]:
    """Wraps the loops of a trainer and yields an entry for each that was entered."""
    entered: list[str] = []

    def around(loop: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with watch():
                entered.append(trainer.brain_name)
                return loop(*args, **kwargs)

        return call

    loops: list[tuple[Any, str]] = [
        (trainer, "_update_once") if isinstance(trainer, ReplayTrainer) else (actor_critic, "run_epochs")
    ]
    cloning = getattr(trainer, "cloning", None)
    if cloning is not None:
        loops.append((cloning, "update"))
    with ExitStack() as patches:
        for place, name in loops:
            patches.enter_context(patch.object(place, name, around(getattr(place, name))))
        yield entered
