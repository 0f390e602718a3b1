"""Makes specs, chunks, policies and run files for tests of service and ingest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from rollcast.enums import ColumnRole, Distribution, SegmentEnd
from rollcast.policies import PolicyDescription, describe_payload
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec
from rollcast.trajectories import Chunk

from learner.shared.policies import StoredPolicy
from learner.shared.settings.options import RunOptions

NAME = "CartPole"


def make_spec(name: str = NAME, size: int = 4) -> BehaviorSpec:
    """Returns a behavior with `size` numbers and one branch of two choices."""
    return BehaviorSpec(
        name, (ObservationSpec("state", np.dtype(np.float32), (size,)),), ActionSpec(discrete_branches=(2,))
    )


def make_chunk(rows: int = 3, *, sequence: int = 1, generation: int = 1, size: int = 4, **changes: Any) -> Chunk:
    """Returns a chunk of one segment."""
    columns: dict[str, npt.NDArray[Any]] = {
        "obs/state": np.ones((rows, size), np.float32),
        "discrete_action": np.zeros((rows, 1), np.int32),
        "log_prob": np.full((rows, 1), -0.7, np.float32),
        "reward": np.ones(rows, np.float32),
        "length": np.array([rows], np.uint32),
        "end": np.array([SegmentEnd.CUT], np.uint8),
        "env": np.zeros(1, np.uint32),
        "agent": np.zeros(1, np.uint64),
        "episode": np.ones(1, np.uint64),
        "first_step": np.zeros(1, np.uint32),
        "final_obs/state": np.ones((1, size), np.float32),
    }
    segment = {"length", "end", "env", "agent", "episode", "first_step"}
    roles = {name: ColumnRole.SEGMENT if name in segment else ColumnRole.STEP for name in columns}
    roles["final_obs/state"] = ColumnRole.FINAL
    chunk = Chunk(
        sequence=sequence,
        generation=generation,
        produced_steps=rows * sequence,
        segments=1,
        rows=rows,
        agents=1,
        columns=columns,
        roles=roles,
    )
    return replace(chunk, **changes)


def make_policy(version: int, *, generation: int = 1, size: int = 1000, name: str = NAME) -> StoredPolicy:
    """Returns a policy with `size` arbitrary bytes."""
    payload = bytes([version % 256]) * size
    description = PolicyDescription(
        behavior_index=0,
        behavior=name,
        generation=generation,
        version=version,
        architecture_hash=bytes(32),
        inputs=("obs_0", "action_masks"),
        outputs=("logits",),
        discrete_distribution=Distribution.CATEGORICAL,
    )
    return StoredPolicy(describe_payload(description, payload), payload)


def make_options(**service: Any) -> RunOptions:
    """Returns a run file with one behavior."""
    return RunOptions.model_validate({"behaviors": {NAME: {"time_horizon": 8}}, "rollcast": service})
