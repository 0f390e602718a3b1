"""Environments whose steps are recorded, whoever steps them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rollcast.demonstrations.writing import Action
from rollcast.enums import SegmentEnd
from rollcast.specs import BehaviorSpec

from actor_client.demos.recorder import DemoRecorder
from actor_client.envs.base import EnvBatch, FloatArray, IntArray, MaskArray, Observations, StepResult

Wrap = Callable[[EnvBatch], EnvBatch]


class RecordedBatch:
    """A batch of environments that tells a recorder of each step; else it is the batch (`EnvBatch`).

    Args:
        batch: the environments.
        recorder: is told; agents are the environments' numbers.
    """

    def __init__(self, batch: EnvBatch, recorder: DemoRecorder) -> None:
        self._batch = batch
        self._recorder = recorder
        self._seen: Observations = []

    @property
    def spec(self) -> BehaviorSpec:
        """Spec of the observations and actions."""
        return self._batch.spec

    @property
    def num_envs(self) -> int:
        """Number of environments, E."""
        return self._batch.num_envs

    @property
    def action_masks(self) -> MaskArray | None:
        """Allowed choices; see `EnvBatch.action_masks`."""
        return self._batch.action_masks

    def reset(self, seeds: Sequence[int]) -> Observations:
        """Begins a new episode everywhere; those that have not ended are not recorded."""
        self._recorder.drop_all()
        self._seen = self._batch.reset(seeds)
        return self._seen

    def step(self, continuous: FloatArray | None, discrete: IntArray | None) -> StepResult:
        """Takes one action in each environment, and records it.

        Raises:
            ActorError: The file cannot be written.
        """
        seen, masks = self._seen, self._batch.action_masks
        try:
            result = self._batch.step(continuous, discrete)
        except Exception:
            self._recorder.drop_all()
            raise
        places = {env: place for place, env in enumerate(result.ended)}
        for env in range(self._batch.num_envs):
            if result.ignored is not None and result.ignored[env]:
                continue
            ended = places.get(env)
            following = (
                _row(result.observations, env)
                if ended is None or result.final_observations is None
                else _row(result.final_observations, ended)
            )
            action = Action(
                None if continuous is None else continuous[env],
                None if discrete is None else discrete[env],
                None if masks is None else masks[env],
            )
            self._recorder.step(env, _row(seen, env), action, float(result.rewards[env]), following=following)
            if ended is not None:
                self._recorder.end(env, following, interrupted=result.ends[ended] == SegmentEnd.TRUNCATED)
        self._seen = result.observations
        return result

    def close(self) -> None:
        """Frees what the environments hold."""
        self._batch.close()


def _row(observations: Observations, row: int) -> list[NDArray[Any]]:
    return [np.asarray(values[row]) for values in observations]


@contextmanager
def recorded(
    path: Path | None, name: str, *, episodes: int = 0, on_enough: Callable[[str], object] = lambda _: None
) -> Iterator[Wrap]:
    """Records what environments do within the block, in one file, though they may be remade.

    Args:
        path: the file; None records nothing.
        name: of the behavior.
        episodes: how many to record; 0 = no limit.
        on_enough: see `DemoRecorder`.

    Yields:
        What makes recorded environments of environments; the file is there once the first ones are.

    Raises:
        ActorError: see `DemoRecorder`.
    """
    recorders: list[DemoRecorder] = []

    def wrap(batch: EnvBatch) -> EnvBatch:
        if path is None:
            return batch
        if not recorders:
            recorders.append(DemoRecorder(path, replace(batch.spec, name=name), episodes=episodes, on_enough=on_enough))
        return RecordedBatch(batch, recorders[0])

    failed = True
    try:
        yield wrap
        failed = False
    finally:
        for recorder in recorders:
            recorder.close(failed=failed)
