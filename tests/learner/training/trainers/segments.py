"""Random ragged segments, and float64 loops over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray
from rollcast.enums import SegmentEnd
from rollcast.trajectories import Chunk
from torch import Tensor

from learner.training.networks.distributions import branch_offsets
from learner.training.trainers.actor_critic.experience import Experience
from learner.training.trainers.actor_critic.loss import log_probability
from learner.training.trainers.actor_critic.targets import Valued
from learner.training.trainers.actor_critic.trainer import ActorCriticTrainer
from tests.learner.training.trainers.started import single_network

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Segments:
    """Consecutive segments: the steps of each, then its final row.

    Attributes:
        lengths: Steps of each segment.
        ends: Of each segment and signal, ``[S, K]``: True where nothing bootstraps.
        rewards: ``[R, K]``.
        values: ``[R, K]``.
        log_ratio: ``[R]``.
        gamma: ``[K]``.
    """

    lengths: tuple[int, ...]
    ends: NDArray[np.bool_]
    rewards: Array
    values: Array
    log_ratio: Array
    gamma: Array

    def arguments(self) -> tuple[Any, Valued]:
        """Returns the arguments of the rules in `learner.training.trainers.actor_critic.targets`."""
        finals = np.cumsum(np.array(self.lengths) + 1) - 1
        is_step = np.ones(len(self.values))
        is_step[finals] = 0.0
        continues = is_step.copy()
        continues[finals - 1] = 0.0
        bootstraps = np.repeat(is_step[:, None], len(self.gamma), 1)
        bootstraps[finals - 1] = ~self.ends
        rewards, values, gamma = tensor(self.rewards), tensor(self.values), tensor(self.gamma)
        plan = SimpleNamespace(is_step=tensor(is_step), continues=tensor(continues), longest=max(self.lengths) + 1)
        return plan, Valued(rewards, values, tensor(bootstraps), gamma, lambda: tensor(self.log_ratio))


def tensor(array: Array) -> Tensor:
    """Returns a float64 tensor."""
    return torch.from_numpy(np.asarray(array, np.float64))


@st.composite
def segments(draw: st.DrawFn) -> Segments:
    """Returns one to eight segments of one to forty steps, with one to three signals."""
    lengths = tuple(draw(st.lists(st.integers(1, 40), min_size=1, max_size=8)))
    signals = draw(st.integers(1, 3))
    gamma = draw(st.lists(st.floats(0.0, 1.0), min_size=signals, max_size=signals))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = sum(lengths) + len(lengths)
    scale = draw(st.sampled_from([1e-3, 1.0, 1e3]))
    return Segments(
        lengths=lengths,
        ends=rng.random((len(lengths), signals)) < 0.5,
        rewards=rng.normal(size=(rows, signals)) * scale,
        values=rng.normal(size=(rows, signals)) * scale,
        log_ratio=rng.normal(size=rows) * draw(st.sampled_from([0.0, 0.3, 3.0, 2000.0])),
        gamma=np.array(gamma),
    )


@dataclass
class Looped:
    """The results of the loops; final rows are 0.

    Attributes:
        advantages: Generalized advantages, ``[R, K]``.

        vtrace_values: ``[R, K]``.
        vtrace_advantages: ``[R, K]``.
    """

    advantages: Array

    vtrace_values: Array
    vtrace_advantages: Array


def loop(given: Segments, lambd: float, rho_bar: float, c_bar: float) -> Looped:
    """Loops from the end of each segment to its start, step by step and signal by signal."""
    found = Looped(*(np.zeros_like(given.values) for _ in range(3)))
    first = 0
    for segment, length in enumerate(given.lengths):
        for signal in range(len(given.gamma)):
            _loop_one(given, found, range(first, first + length), (segment, signal), (lambd, rho_bar, c_bar))
        first += length + 1
    return found


def _loop_one(
    given: Segments,
    found: Looped,
    rows: range,
    place: tuple[int, int],
    parameters: tuple[float, float, float],
) -> None:
    lambd, rho_bar, c_bar = parameters
    signal = place[1]
    gamma = float(given.gamma[signal])
    last = 0.0 if given.ends[place] else float(given.values[rows.stop, signal])
    next_value = next_target = last
    next_advantage = 0.0
    for row in reversed(rows):
        reward, value = float(given.rewards[row, signal]), float(given.values[row, signal])
        ratio = float(np.exp(min(given.log_ratio[row], 700.0)))  # the largest exponent of float64
        delta = reward + gamma * next_value - value
        next_advantage = delta + gamma * lambd * next_advantage

        found.advantages[row, signal] = next_advantage

        found.vtrace_advantages[row, signal] = reward + gamma * next_target - value
        trace = lambd * min(c_bar, ratio)
        next_target = value + min(rho_bar, ratio) * delta + gamma * trace * (next_target - next_value)
        found.vtrace_values[row, signal] = next_target
        next_value = value


@torch.no_grad()
def of_chunk(trainer: ActorCriticTrainer, chunk: Chunk, gamma: Sequence[float], rewards: Array) -> Segments:
    """Returns a chunk under the current networks of its trainer, whose outputs are values.

    Args:
        trainer: The trainer.
        chunk: Its only experience.
        gamma: Discount of each signal; all but the first ignore ends.
        rewards: ``[N, K]``, of the steps.
    """
    columns: dict[str, NDArray[Any]] = dict(chunk.columns)
    lengths = columns["length"].astype(np.int64)
    ends = np.cumsum(lengths)
    names = [observation.name for observation in trainer.context.behavior.spec.observations]
    rows = [np.insert(columns[f"obs/{name}"], ends, columns[f"final_obs/{name}"], axis=0) for name in names]
    values = single_network(trainer).values([torch.from_numpy(part) for part in rows]).double().numpy()
    output = trainer.policy([torch.from_numpy(columns[f"obs/{name}"]) for name in names])
    continuous, discrete = (torch.from_numpy(columns[f"{kind}_action"]) for kind in ("continuous", "discrete"))
    branches = trainer.context.behavior.spec.action.discrete_branches
    now = log_probability(output, continuous, discrete.long() + branch_offsets(branches), "joint").double().numpy()
    is_terminal = columns["end"] == SegmentEnd.TERMINATED
    # Behind a terminal step, signals that ignore ends go on with the mean value of the episodes' first observations.
    begins = values[np.arange(len(ends)) + ends - lengths].mean(0)
    values[(ends + np.arange(len(ends)))[is_terminal], 1:] = begins[1:]
    return Segments(
        lengths=tuple(lengths.tolist()),
        ends=np.stack([is_terminal, *[np.zeros_like(is_terminal)] * (len(gamma) - 1)], 1),
        rewards=np.insert(rewards, ends, 0.0, axis=0),
        values=values,
        log_ratio=np.insert(now[:, 0] - columns["log_prob"].astype(np.float64).sum(1), ends, 0.0),
        gamma=np.array(gamma),
    )


def of_steps(given: Segments, numbers: Array) -> Array:
    """Removes final rows."""
    return np.delete(numbers, np.cumsum(np.array(given.lengths) + 1) - 1, axis=0)


def experience_of(trainer: ActorCriticTrainer) -> Experience:
    """Returns the experience of an update with all that was collected."""
    plan, storage = trainer.update_buffer.plan(), trainer.update_buffer.ring.storage
    return trainer._maker.make(plan, storage, trainer._maker.recorded(plan, storage, trainer.version))
