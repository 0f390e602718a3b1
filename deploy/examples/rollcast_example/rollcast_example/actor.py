"""An actor of its own, `rollcast act lamps`: the rooms of `rollcast_example.lamps`, stepped together as arrays."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from rollcast.enums import ImageLayout, ObservationKind, SegmentEnd
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec
from rollcast.v1 import policy_pb2

from actor_client.adapters import BatchAdapter
from actor_client.command_line import Command, add_common, add_recording, add_stepping
from actor_client.envs.base import EnvBatch, StepResult
from actor_client.exits import ExitCode
from actor_client.running import run_actor
from actor_client.settings.commands import SteppingSettings
from actor_client.settings.loading import load

HEIGHT, WIDTH = 32, 24


class LampsSettings(SteppingSettings):
    """Settings of every actor that steps environments, and two more."""

    behavior: str | None = Field(default=None, min_length=1)
    steps: int = Field(default=32, ge=1, le=10_000)


class Rooms:
    """Dark rooms with two lamps; choosing the half that glows lights a room.

    Args:
        num_envs: Number of rooms, E.
        steps: Steps of an episode.
    """

    active = None
    action_masks = None
    takes_parameters = False

    def __init__(self, num_envs: int, steps: int) -> None:
        pixels = ObservationSpec(
            "room",
            np.dtype(np.uint8),
            (HEIGHT, WIDTH, 3),
            ObservationKind.IMAGE,
            layout=ImageLayout.HWC,
            scale=255.0,
        )
        self.spec = BehaviorSpec("Lamps", (pixels,), ActionSpec(discrete_branches=(2,)))
        self.num_envs = num_envs
        self._steps = steps

    def assign(self, assignment: policy_pb2.Assignment) -> None:
        """Ignores environment parameters; see `takes_parameters`."""

    def set_paused(self, *, is_paused: bool) -> None:
        """Ignores a pause: nothing happens in a room without a step."""

    def reset(self, seeds: Sequence[int]) -> list[NDArray[Any]]:
        """Begins in the dark."""
        self._numbers = np.random.default_rng(list(seeds))
        self._left = np.full(self.num_envs, self._steps)
        return [self._pictures(np.zeros(self.num_envs, np.bool_))]

    def step(self, continuous: NDArray[np.float32] | None, discrete: NDArray[np.int32] | None) -> StepResult:
        """Chooses the left (0) or the right (1) half of each room."""
        assert discrete is not None  # noqa: S101 - the action has one branch
        is_lit = discrete[:, 0] == self._sides
        self._left -= 1
        after = self._pictures(is_lit)
        ended = np.flatnonzero(self._left == 0)
        final = [after[ended]] if len(ended) else None  # a copy
        self._left[ended] = self._steps
        after[ended] -= np.where(is_lit[ended], 128, 0).astype(np.uint8)[:, None, None, None]  # they begin in the dark
        return StepResult(
            [after],
            is_lit.astype(np.float32),
            ended=ended.tolist(),
            ends=np.full(len(ended), SegmentEnd.TRUNCATED, np.uint8),
            final_observations=final,
            final_masks=None,
            infos=[{}] * len(ended),
            ignored=None,
        )

    def close(self) -> None:
        """Does nothing."""

    def _pictures(self, is_lit: NDArray[np.bool_]) -> NDArray[np.uint8]:
        self._sides = self._numbers.integers(2, size=self.num_envs)
        glow = np.arange(WIDTH) // (WIDTH // 2) == self._sides[:, None]
        rows = np.where(is_lit, 128, 0)[:, None] + np.where(glow, 64, 0)
        return np.broadcast_to(rows[:, None, :, None], (self.num_envs, HEIGHT, WIDTH, 3)).astype(np.uint8)


class LampsAdapter(BatchAdapter):
    """Makes the rooms.

    Args:
        settings: The user's settings.
    """

    simulator = "Lamps"

    def __init__(self, settings: LampsSettings) -> None:
        super().__init__(settings, "lamps", "Lamps", settings.behavior)
        self._rooms = settings.num_envs, settings.steps

    def make(self) -> EnvBatch:
        """Returns new rooms."""
        return Rooms(*self._rooms)


def run(flags: Mapping[str, object]) -> ExitCode:
    """Steps the rooms for a learner."""
    return run_actor(LampsAdapter, load(LampsSettings, flags))


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags, whose values `LampsSettings` checks."""
    parser.add_argument("--num-envs", metavar="N", help="rooms stepped together (default: 1)")
    parser.add_argument("--behavior", metavar="NAME", help="behavior to train (default: the only one of the run)")
    parser.add_argument("--steps", metavar="N", help="steps of an episode (default: 32)")
    add_stepping(parser)
    add_recording(parser)
    add_common(parser)


COMMAND = Command(
    "step dark rooms with lamps", "Steps dark rooms with two lamps.", add_flags, "rollcast_example.actor:run"
)
