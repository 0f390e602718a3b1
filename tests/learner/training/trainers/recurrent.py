"""Chunks of agents with memories, acted step by step by the last published policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rollcast.enums import SegmentEnd
from rollcast.trajectories import Chunk
from torch import Tensor

from tests.learner.training.trainers.in_process import Bench
from tests.learner.training.trainers.synthetic import SyntheticActor

CUT, TERMINATED, TRUNCATED = SegmentEnd.CUT, SegmentEnd.TERMINATED, SegmentEnd.TRUNCATED
Played = tuple[int, int, SegmentEnd]
"""Number of the agent, steps, and how the segment ends."""


@dataclass
class RememberingAgent:
    """One agent in its episode.

    Attributes:
        memory: ``[1, memory_size]``; None at the beginning.
        episode: Its number.
        steps: Of the episode.
    """

    memory: Tensor | None = None
    episode: int = 1
    steps: int = 0


class RecurrentActor(SyntheticActor):
    """Makes chunks of random observations with actions of a recurrent policy.

    Args:
        bench: Where policies come from.
        seed: Of everything random.
        masked: Whether random actions are forbidden.
    """

    def __init__(self, bench: Bench, seed: int = 1, *, masked: bool = False) -> None:
        super().__init__(bench, seed, masked=masked)
        self.agents: dict[int, RememberingAgent] = {}
        self._memories: list[NDArray[np.float32]] = []
        self._segments: list[Played] = []

    def play(self, segments: list[Played], **changes: Any) -> Chunk:
        """Returns a chunk with these segments; memories continue between chunks."""
        lengths = [steps for _, steps, _ in segments]
        self._memories, self._segments = [], segments
        found = self.chunk(lengths)
        before = [self._place(agent, steps, end) for agent, steps, end in segments]
        found.columns.update(
            {
                "end": np.array([end for _, _, end in segments], np.uint8),
                "env": np.zeros(len(segments), np.uint32),
                "agent": np.array([agent for agent, _, _ in segments], np.uint64),
                "episode": np.array([episode for episode, _ in before], np.uint64),
                "first_step": np.array([first for _, first in before], np.uint32),
                "memory": np.concatenate(self._memories),
                **changes.pop("columns", {}),
            }
        )
        return found

    def _place(self, number: int, steps: int, end: SegmentEnd) -> tuple[int, int]:
        agent = self.agents[number]
        place = agent.episode, agent.steps
        agent.steps += steps
        if end != CUT:
            agent.episode, agent.steps = agent.episode + 1, 0
        return place

    @torch.no_grad()
    def _act(self, columns: dict[str, NDArray[Any]], rows: int) -> dict[str, NDArray[Any]]:
        """Acts in each segment step by step."""
        network = self._bench.published.network
        if network is None:
            raise RuntimeError("nothing was published")
        stride = self._bench.behavior.memory_stride
        masks = self._masks(rows)
        parts: list[dict[str, NDArray[Any]]] = []
        row = 0
        for number, steps, end in self._segments:
            agent = self.agents.setdefault(number, RememberingAgent())
            for step in range(steps):
                memory = torch.zeros(1, network.memory_size) if agent.memory is None else agent.memory
                if step % stride == 0:
                    self._memories.append(memory.numpy())
                seen = [torch.from_numpy(columns[f"obs/{spec.name}"][row : row + 1]) for spec in self.spec.observations]
                output = network(seen, None if masks is None else torch.from_numpy(masks[row : row + 1]), memory)
                parts.append(self._draw(output))
                agent.memory = output.recurrent_out
                row += 1
            if end != CUT:
                agent.memory = None
        found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return found if masks is None else {**found, "action_mask": masks}


def recurrent_settings(**changes: Any) -> dict[str, Any]:
    """Returns settings with a small memory."""
    hyper = {"buffer_size": 40, "batch_size": 16, "num_epoch": 2, **changes.pop("hyper", {})}
    return {
        "trainer_type": changes.pop("trainer_type", "ppo"),
        "hyperparameters": hyper,
        "network_settings": {
            "hidden_units": 8,
            "num_layers": 1,
            "memory": {"memory_size": 6, "sequence_length": 4},
            **changes.pop("network", {}),
        },
        "time_horizon": 10,
        **changes,
    }
