"""Writes demonstration files of any behavior with the real writer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rollcast.demonstrations.writing import Action, DemonstrationWriter
from rollcast.enums import Squash
from rollcast.specs import BehaviorSpec

from learner.training.rewards.demonstrations import DemonstrationBuffer

Chooser = Callable[[list[NDArray[Any]]], Action]


def seen(spec: BehaviorSpec, generator: np.random.Generator) -> list[NDArray[Any]]:
    """Returns a random observation, [*shape] each."""
    found: list[NDArray[Any]] = []
    for observation in spec.observations:
        if observation.categories:
            values: NDArray[Any] = generator.integers(0, observation.categories, observation.shape)
        elif observation.dtype.kind == "f":
            values = generator.normal(size=observation.shape)
        else:
            values = generator.integers(0, 256, observation.shape)
        found.append(np.asarray(values).astype(observation.dtype))
    return found


def drawn(spec: BehaviorSpec, generator: np.random.Generator) -> Chooser:
    """Returns random actions in [-1, 1]."""
    action = spec.action
    return lambda _: Action(
        generator.uniform(-1, 1, action.continuous_size).astype(np.float32) if action.continuous_size else None,
        generator.integers(0, action.discrete_branches).astype(np.int32) if action.discrete_branches else None,
    )


def demonstrate(
    path: Path, spec: BehaviorSpec, lengths: Sequence[int] = (5, 3), choose: Chooser | None = None, seed: int = 1
) -> Path:
    """Writes episodes of these lengths; the reward of a step is its number, the last episode is interrupted."""
    generator = np.random.default_rng(seed)
    choose = choose or drawn(spec, generator)
    with DemonstrationWriter(path, spec) as writer:
        for episode, length in enumerate(lengths):
            now = seen(spec, generator)
            for step in range(length):
                writer.step(1, now, choose(now), float(step))
                now = seen(spec, generator)
            writer.end(1, now, interrupted=episode == len(lengths) - 1)
    return path


def loaded(path: Path, spec: BehaviorSpec, squash: Squash = Squash.CLIP3_DIV3) -> DemonstrationBuffer:
    """Returns a buffer of a file."""
    return DemonstrationBuffer.load(str(path), spec, torch.device("cpu"), squash, setting="demo_path")
