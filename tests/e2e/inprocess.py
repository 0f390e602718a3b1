"""Runs an actor inside the test, with environments that the command line cannot name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from rollcast.enums import SegmentEnd
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec
from rollcast.v1 import policy_pb2

from actor_client.connection.link import LearnerLink
from actor_client.envs.base import EnvBatch, FloatArray, IntArray, MaskArray, Observations, StepResult
from actor_client.policy.runner import Policy
from actor_client.rollout.vector.loop import LoopLimits, RolloutLoop
from tests.e2e.processes import SECONDS

LENGTH = 10
MEANWHILE_AT = 300


class HybridBatch:
    """Environments with a continuous and a discrete action, which must agree.

    Args:
        num_envs: E.
        name: Of the behavior.
        in the meantime: called in the stepping thread, once, during the run; what an actor with several behaviors does.
    """

    def __init__(self, num_envs: int, name: str, meanwhile: Callable[[], None] | None = None) -> None:
        self.num_envs = num_envs
        self.active: int | None = None
        self.action_masks: MaskArray | None = None
        action = ActionSpec(2, (3, 2), continuous_low=(-1.0, -1.0), continuous_high=(1.0, 1.0))
        self.spec = BehaviorSpec(name, (ObservationSpec("state", np.dtype(np.float32), (4,)),), action)
        self._rng = np.random.default_rng(0)
        self._left = np.zeros(num_envs, np.int64)
        self._steps = 0
        self._meanwhile = meanwhile

    def reset(self, seeds: Sequence[int]) -> Observations:
        """Starts an episode in every copy."""
        self._rng = np.random.default_rng(list(seeds))
        self._left = 1 + np.arange(self.num_envs) % LENGTH
        return [self._observe(self.num_envs)]

    def step(self, continuous: FloatArray | None, discrete: IntArray | None) -> StepResult:
        """Returns a reward if the sign of the number matches the choice."""
        if continuous is None or discrete is None:
            raise TypeError("both kinds of actions are needed")
        self._steps += 1
        if self._meanwhile is not None and self._steps == MEANWHILE_AT:
            self._meanwhile()
        rewards = np.where((continuous[:, 0] > 0) == (discrete[:, 1] > 0), 1.0, 0.0).astype(np.float32)
        self._left -= 1
        ended = np.flatnonzero(self._left == 0)
        self._left[ended] = LENGTH
        return StepResult(
            observations=[self._observe(self.num_envs)],
            rewards=rewards,
            ended=ended.tolist(),
            ends=np.full(len(ended), SegmentEnd.TRUNCATED, np.uint8),
            final_observations=[self._observe(len(ended))] if len(ended) else None,
            final_masks=None,
            infos=[{} for _ in ended],
            ignored=None,
        )

    takes_parameters = False

    def assign(self, assignment: policy_pb2.Assignment) -> None:
        """Takes no parameters."""

    def set_paused(self, *, is_paused: bool) -> None:
        """Does nothing in a pause."""

    def close(self) -> None:
        """Does nothing."""

    def _observe(self, rows: int) -> FloatArray:
        return self._rng.normal(5.0, 3.0, (rows, 4)).astype(np.float32)


@contextmanager
def connected(address: str, name: str) -> Iterator[LearnerLink]:
    """Opens a session and closes it with the block."""
    link = LearnerLink(address, actor_name=name, load=Policy.load, client_version="test")
    link.start()
    try:
        link.open(SECONDS)
        yield link
    finally:
        link.close()


def step(link: LearnerLink, make_batch: Callable[[], EnvBatch], steps: int) -> None:
    """Declares a behavior in a session and takes this many steps."""
    batch = make_batch()
    RolloutLoop(
        make_batch,
        batch,
        link,
        lambda: link.declare(batch.spec, 0, batch.num_envs, SECONDS),
        limits=LoopLimits(max_steps=steps),
    ).run()
