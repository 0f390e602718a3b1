"""Environments whose steps are recorded."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rollcast.demonstrations.writing import Action
from rollcast.enums import SegmentEnd

from actor_client.demos.recorder import DemoRecorder
from actor_client.envs.base import EnvBatch, FloatArray, IntArray, Observations, StepResult, WrappedBatch

Wrap = Callable[[EnvBatch], EnvBatch]


class RecordedBatch(WrappedBatch):
    """Reports each step of a batch of environments to a recorder; otherwise it behaves as the batch (`EnvBatch`).

    Args:
        batch: The environments.
        recorder: Takes the steps; an environment's number is the number of its agent.
    """

    def __init__(self, batch: EnvBatch, recorder: DemoRecorder) -> None:
        super().__init__(batch)
        self._recorder = recorder
        self._seen: Observations = []

    def reset(self, seeds: Sequence[int]) -> Observations:
        """Begins new episodes in all environments; unfinished ones are not recorded."""
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


def _row(observations: Observations, row: int) -> list[NDArray[Any]]:
    return [np.asarray(values[row]) for values in observations]


@contextmanager
def recorded(
    path: Path | None, name: str, *, episodes: int = 0, on_enough: Callable[[str], object] = lambda _: None
) -> Iterator[Wrap]:
    """Records the steps of environments within the block, in one file, even if the environments are remade.

    Args:
        path: The file; None records nothing.
        name: Name of the behavior.
        episodes: Episodes to record; 0 = no limit.
        on_enough: See `DemoRecorder`.

    Yields:
        A function that wraps environments; the file is created with the first ones.

    Raises:
        ActorError: See `DemoRecorder`.
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
