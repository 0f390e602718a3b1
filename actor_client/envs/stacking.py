"""Stacks the newest observations, for policies without memory (`--frame-stack`)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import ImageLayout, ObservationKind
from rollcast.specs import ObservationSpec

from actor_client.envs.base import EnvBatch, FloatArray, IntArray, Observations, StepResult, WrappedBatch
from actor_client.envs.errors import UnsupportedSpace


class StackedBatch(WrappedBatch):
    """Shows the newest N observations of each environment as one, the oldest first.

    Images are stacked in their channels, vectors and categories are concatenated. An episode begins with N copies of
    its first observation. Stacking follows the conversion to arrays, so it is the same for all environments.

    Args:
        batch: The environments.
        count: N, at least 2.

    Raises:
        UnsupportedSpace: An observation is a list of entities.
    """

    def __init__(self, batch: EnvBatch, count: int) -> None:
        super().__init__(batch)
        self._count = count
        self._axes = [_axis(spec) for spec in batch.spec.observations]
        stacked = tuple(
            _stacked(spec, axis, count) for spec, axis in zip(batch.spec.observations, self._axes, strict=True)
        )
        self.spec = replace(batch.spec, observations=stacked)
        self._shown: Observations = []

    def reset(self, seeds: Sequence[int]) -> Observations:
        """Begins new episodes in all environments; see `EnvBatch.reset`."""
        self._shown = self._filled(self._batch.reset(seeds))
        return self._shown

    def step(self, continuous: FloatArray | None, discrete: IntArray | None) -> StepResult:
        """Takes one action in each environment; see `EnvBatch.step`."""
        result = self._batch.step(continuous, discrete)
        finals = result.final_observations
        if finals is not None:
            finals = self._pushed([shown[result.ended] for shown in self._shown], finals)
        shown = self._pushed(self._shown, result.observations)
        begun = np.zeros(self.num_envs, np.bool_) if result.ignored is None else result.ignored.copy()
        begun[result.ended] = True
        if begun.any():
            firsts = self._filled([values[begun] for values in result.observations])
            for values, first in zip(shown, firsts, strict=True):
                values[begun] = first
        self._shown = shown
        return result._replace(observations=shown, final_observations=finals)

    def _filled(self, observations: Observations) -> Observations:
        return [
            np.concatenate([values] * self._count, axis=axis)
            for values, axis in zip(observations, self._axes, strict=True)
        ]

    def _pushed(self, shown: Observations, newest: Observations) -> Observations:
        """Returns stacks without their oldest and with a newer observation, [B, ...] each."""
        return [
            np.concatenate([_without_oldest(old, values.shape[axis], axis), values], axis=axis)
            for old, values, axis in zip(shown, newest, self._axes, strict=True)
        ]


def _axis(spec: ObservationSpec) -> int:
    """Returns the axis of a batch along which observations are stacked.

    Raises:
        UnsupportedSpace: The observation cannot be stacked.
    """
    if spec.kind is ObservationKind.ENTITIES:
        raise UnsupportedSpace(
            f"observation {spec.name} is a list of entities, which --frame-stack cannot stack; leave out --frame-stack and "
            "give the policy a memory (network_settings: memory)"
        )
    is_last = spec.kind is ObservationKind.IMAGE and spec.layout is ImageLayout.HWC
    return len(spec.shape) if is_last else 1


def _stacked(spec: ObservationSpec, axis: int, count: int) -> ObservationSpec:
    shape = list(spec.shape)
    shape[axis - 1] *= count
    return replace(spec, shape=tuple(shape), categories=spec.categories * count)


def _without_oldest(stack: NDArray[np.generic], size: int, axis: int) -> NDArray[np.generic]:
    return stack[(slice(None),) * axis + (slice(size, None),)]
