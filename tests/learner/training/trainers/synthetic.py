"""Chunks of any behavior, acted by the last published policy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rollcast.enums import ImageLayout, ObservationKind, SegmentEnd
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec
from rollcast.trajectories import Chunk

from learner.training.networks.distributions import branch_offsets, categorical_log_prob, gaussian_log_prob
from learner.training.networks.policy import PolicyOutput
from tests.learner.training.trainers.in_process import Bench

_STATE = ObservationSpec("state", np.dtype(np.float32), (5,), ObservationKind.VECTOR)
_PIXELS = ObservationSpec(
    "pixels", np.dtype(np.uint8), (20, 20, 3), ObservationKind.IMAGE, layout=ImageLayout.HWC, scale=255.0
)
_PIECE = ObservationSpec("piece", np.dtype(np.int32), (2,), ObservationKind.CATEGORICAL, categories=(3, 4))

CONTINUOUS = BehaviorSpec("Continuous", (_STATE,), ActionSpec(continuous_size=2))
HYBRID = BehaviorSpec("Hybrid", (_PIXELS, _STATE, _PIECE), ActionSpec(continuous_size=1, discrete_branches=(3, 2)))
BRANCHES = BehaviorSpec("Branches", (_PIECE,), ActionSpec(discrete_branches=(2, 2, 2)))


class SyntheticActor:
    """Makes chunks of random observations and rewards, with actions of the published policy.

    Args:
        bench: Where policies come from.
        seed: Of everything random.
        masked: Whether random actions are forbidden.
    """

    def __init__(self, bench: Bench, seed: int = 1, *, masked: bool = False) -> None:
        self.spec = bench.behavior.spec
        self._bench = bench
        self._rng = np.random.default_rng(seed)
        self._masked = masked

    def chunk(self, lengths: list[int], **changes: Any) -> Chunk:
        """Makes a chunk with segments of these lengths; ``columns`` replaces columns, other names replace fields."""
        rows = sum(lengths)
        columns: dict[str, NDArray[Any]] = {
            "reward": self._rng.normal(size=rows).astype(np.float32),
            "length": np.array(lengths, np.uint32),
            "first_step": np.zeros(len(lengths), np.uint32),
            "end": self._rng.choice([SegmentEnd.CUT, SegmentEnd.TERMINATED, SegmentEnd.TRUNCATED], len(lengths)).astype(
                np.uint8
            ),
        }
        for observation in self.spec.observations:
            columns[f"obs/{observation.name}"] = self._observe(observation, rows)
            columns[f"final_obs/{observation.name}"] = self._observe(observation, len(lengths))
        columns.update(self._act(columns, rows))
        columns.update(changes.pop("columns", {}))
        values = {
            "generation": 1,
            "base_version": self._bench.published.progress[-1].version,
            "segments": len(lengths),
            "rows": rows,
            "columns": columns,
        }
        return Chunk(**{**values, **changes})

    def _observe(self, spec: ObservationSpec, rows: int) -> NDArray[Any]:
        shape = (rows, *spec.shape)
        if spec.kind == ObservationKind.ENTITIES:  # about a third of them is padding
            values = self._rng.normal(0.0, 1.0, shape) * (self._rng.random(shape[:2]) < 0.7)[..., None]
            return values.astype(spec.dtype)
        if spec.kind == ObservationKind.VECTOR:
            return self._rng.normal(5.0, 2.0, shape).astype(spec.dtype)
        high = 256 if spec.kind == ObservationKind.IMAGE else np.array(spec.categories)
        return self._rng.integers(0, high, shape).astype(spec.dtype)

    @torch.no_grad()
    def _act(self, columns: dict[str, NDArray[Any]], rows: int) -> dict[str, NDArray[Any]]:
        network = self._bench.published.network
        if network is None:
            raise RuntimeError("nothing was published")
        observations = [torch.from_numpy(columns[f"obs/{spec.name}"]) for spec in self.spec.observations]
        masks = self._masks(rows)
        output = network(observations, None if masks is None else torch.from_numpy(masks))
        found: dict[str, NDArray[Any]] = {} if masks is None else {"action_mask": masks}
        return {**found, **self._draw(output)}

    def _masks(self, rows: int) -> NDArray[np.uint8] | None:
        if not self._masked:
            return None
        masks = self._rng.integers(0, 2, (rows, self.spec.action.mask_size)).astype(np.uint8)
        masks[:, branch_offsets(self.spec.action.discrete_branches).numpy()] = 1  # something is always allowed
        return masks

    def _draw(self, output: PolicyOutput) -> dict[str, NDArray[Any]]:
        found: dict[str, NDArray[Any]] = {}
        factors = []
        if output.mean is not None and output.log_std is not None:
            noise = torch.from_numpy(self._rng.normal(size=output.mean.shape).astype(np.float32))
            draws = output.mean + output.log_std.exp() * noise
            found["continuous_action"] = draws.numpy()
            factors.append(gaussian_log_prob(output.mean, output.log_std, draws))
        if output.logits is not None:
            noisy = output.logits + torch.from_numpy(self._rng.gumbel(size=output.logits.shape))
            branches = self.spec.action.discrete_branches
            actions = torch.stack([part.argmax(1) for part in torch.split(noisy, list(branches), 1)], 1)
            found["discrete_action"] = actions.numpy().astype(np.int32)
            factors.append(categorical_log_prob(output.logits, actions + branch_offsets(branches)))
        found["log_prob"] = torch.cat(factors, 1).numpy()
        return found
