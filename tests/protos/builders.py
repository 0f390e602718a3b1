"""Valid specs, chunks and policies that tests of the contract modify."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rollcast.chunks import GameRecord, GameResult
from rollcast.enums import (
    ColumnRole,
    DimensionProperty,
    Distribution,
    ImageLayout,
    ObservationKind,
    ObservationRole,
    SegmentEnd,
    Squash,
)
from rollcast.limits import MAX_DECODED_CHUNK_BYTES
from rollcast.policies import PolicyDescription
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec
from rollcast.trajectories import Chunk, decode_chunk
from rollcast.transforms import ActionTransform
from rollcast.v1 import trajectory_pb2

CARTPOLE = BehaviorSpec(
    "CartPole", (ObservationSpec("state", np.dtype(np.float32), (4,)),), ActionSpec(discrete_branches=(2,))
)

CAMERA = ObservationSpec(
    "camera", np.dtype(np.uint8), (4, 5, 3), ObservationKind.IMAGE, layout=ImageLayout.HWC, scale=255.0
)

EVERYTHING = BehaviorSpec(
    "Crawler",
    (
        ObservationSpec("state", np.dtype(np.float32), (3,)),
        replace(
            CAMERA,
            dimension_properties=(
                DimensionProperty.TRANSLATIONAL_EQUIVARIANCE,
                DimensionProperty.TRANSLATIONAL_EQUIVARIANCE,
                DimensionProperty.NONE,
            ),
        ),
        ObservationSpec("tile", np.dtype(np.int64), (2,), ObservationKind.CATEGORICAL, categories=(5, 7)),
        ObservationSpec("others", np.dtype(np.float16), (6, 2), ObservationKind.ENTITIES),
        ObservationSpec("goal", np.dtype(np.bool_), (2,), role=ObservationRole.GOAL),
    ),
    ActionSpec(
        continuous_size=2,
        discrete_branches=(2, 3),
        continuous_low=(-1.0, 0.0),
        continuous_high=(1.0, 0.1),
        descriptions=("left", "right", "jump", "look"),
    ),
    grouped=True,
)

MEMORY_SIZE = 4
MEMORY_STRIDE = 2


def observe(spec: ObservationSpec, rows: int, rng: np.random.Generator) -> NDArray[Any]:
    """Draws `[rows, *shape]` allowed observations."""
    shape = (rows, *spec.shape)
    if spec.categories:
        draws = rng.integers(0, 2**31, shape)
        return np.asarray(draws % np.asarray(spec.categories), spec.dtype)
    if spec.dtype.kind == "f":
        return rng.normal(size=shape).astype(spec.dtype)
    return rng.integers(0, 2 if spec.dtype.kind == "b" else 100, shape).astype(spec.dtype)


def small_chunk(spec: BehaviorSpec = CARTPOLE, lengths: tuple[int, ...] = (3, 2), seed: int = 0) -> Chunk:
    """Returns a chunk with the required columns only."""
    rng = np.random.default_rng(seed)
    rows, segments = sum(lengths), len(lengths)
    step: dict[str, NDArray[Any]] = {f"obs/{entry.name}": observe(entry, rows, rng) for entry in spec.observations}
    if spec.action.continuous_size:
        step["continuous_action"] = rng.normal(size=(rows, spec.action.continuous_size)).astype(np.float32)
    if spec.action.discrete_branches:
        draws = rng.integers(0, 2**31, (rows, len(spec.action.discrete_branches)))
        step["discrete_action"] = (draws % np.asarray(spec.action.discrete_branches)).astype(np.int32)
    step["log_prob"] = -rng.random((rows, spec.action.factors), np.float32)
    step["reward"] = rng.random(rows, np.float32)
    segment: dict[str, NDArray[Any]] = {
        "length": np.asarray(lengths, np.uint32),
        "end": np.full(segments, SegmentEnd.CUT, np.uint8),
        "env": np.zeros(segments, np.uint32),
        "agent": np.arange(segments, dtype=np.uint64),
        "episode": np.arange(segments, dtype=np.uint64),
        "first_step": np.zeros(segments, np.uint32),
    }
    final: dict[str, NDArray[Any]] = {
        f"final_obs/{entry.name}": observe(entry, segments, rng) for entry in spec.observations
    }
    chunk = Chunk(
        sequence=1, generation=3, base_version=7, produced_steps=rows, segments=segments, rows=rows, agents=segments
    )
    for role, columns in ((ColumnRole.STEP, step), (ColumnRole.SEGMENT, segment), (ColumnRole.FINAL, final)):
        for name, array in columns.items():
            put(chunk, name, role, array)
    return chunk


def full_chunk(spec: BehaviorSpec = EVERYTHING, lengths: tuple[int, ...] = (3, 2), seed: int = 0) -> Chunk:
    """Returns a chunk with every column of the contract and of plug-ins, for specs with branches."""
    chunk = small_chunk(spec, lengths, seed)
    rows, segments, mask_size = chunk.rows, chunk.segments, spec.action.mask_size
    put(chunk, "group_reward", ColumnRole.STEP, np.ones(rows, np.float32))
    put(chunk, "version_offset", ColumnRole.STEP, np.arange(rows, dtype=np.uint32))
    put(chunk, "group_step", ColumnRole.STEP, np.arange(rows, dtype=np.int32))
    put(chunk, "action_source", ColumnRole.STEP, np.ones(rows, np.uint8))
    put(chunk, "action_mask", ColumnRole.STEP, np.ones((rows, mask_size), np.uint8))
    put(chunk, "dist/logits", ColumnRole.STEP, np.zeros((rows, mask_size), np.float32))
    put(chunk, "extra/contact", ColumnRole.STEP, np.zeros((rows, 2, 2), np.uint16))
    put(chunk, "extra/level", ColumnRole.SEGMENT, np.zeros(segments, np.int8))
    for name in ("group", "group_episode", "assignment"):
        put(chunk, name, ColumnRole.SEGMENT, np.arange(segments, dtype=np.uint64))
    put(chunk, "group_end", ColumnRole.SEGMENT, np.ones(segments, np.uint8))
    put(chunk, "purpose", ColumnRole.SEGMENT, np.ones(segments, np.uint8))
    put(chunk, "prev_reward", ColumnRole.SEGMENT, np.zeros(segments, np.float32))
    branches = len(spec.action.discrete_branches)
    put(chunk, "prev_discrete_action", ColumnRole.SEGMENT, np.full((segments, branches), -1, np.int32))
    if spec.action.continuous_size:
        previous = np.zeros((segments, spec.action.continuous_size), np.float32)
        put(chunk, "prev_continuous_action", ColumnRole.SEGMENT, previous)
    put(chunk, "final_action_mask", ColumnRole.FINAL, np.ones((segments, mask_size), np.uint8))
    memory_rows = sum(-(-length // MEMORY_STRIDE) for length in lengths)
    put(chunk, "memory", ColumnRole.MEMORY, np.zeros((memory_rows, MEMORY_SIZE), np.float32))
    _add_episodes(chunk)
    chunk.stat_keys = ("Environment/Height", "Environment/Speed")
    for name, array in (
        ("key", np.asarray([0, 1, 1], np.uint32)),
        ("aggregation", np.asarray([1, 2, 3], np.uint8)),
        ("env", np.zeros(3, np.uint32)),
        ("value", np.asarray([0.5, 1.5, np.nan], np.float32)),
    ):
        put(chunk, f"stat/{name}", ColumnRole.STAT, array)
    chunk.discarded = {"env_error": 4, "reset": 1}
    chunk.age_seconds = 0.025
    chunk.ghost_steps = 2
    chunk.game_record = GameRecord(21, "go(board_size=9)", 1, GameResult.WON, ("B c4", "W PASS"))
    return chunk


def _add_episodes(chunk: Chunk) -> None:
    chunk.episodes = 2
    chunk.opponents = ("Crawler?team=1",)
    numbers: dict[str, NDArray[Any]] = {
        "return": np.asarray([1.5, -2.0], np.float32),
        "group_return": np.zeros(2, np.float32),
        "last_reward": np.zeros(2, np.float32),
        "last_group_reward": np.zeros(2, np.float32),
        "env": np.zeros(2, np.uint32),
        "length": np.asarray([10, 20], np.uint32),
        "end": np.asarray([SegmentEnd.TERMINATED, SegmentEnd.TRUNCATED], np.uint8),
        "purpose": np.ones(2, np.uint8),
        "team": np.zeros(2, np.int32),
        "opponent": np.asarray([0, -1], np.int32),
        "role": np.asarray([1, 2], np.uint8),
        "result": np.asarray([-1, 127], np.int8),
        "group_end": np.ones(2, np.uint8),
    }
    for name in (
        "agent", "episode", "first_version", "last_version", "settings_revision", "assignment", "opponent_version",
        "opponent_generation", "match", "group", "group_episode", "seed",
    ):  # fmt: skip
        numbers[name] = np.arange(2, dtype=np.uint64)
    for name, array in numbers.items():
        put(chunk, f"episode/{name}", ColumnRole.EPISODE, array)
    put(chunk, "info/success", ColumnRole.EPISODE, np.asarray([1.0, np.nan], np.float32))


def put(chunk: Chunk, name: str, role: ColumnRole, array: NDArray[Any]) -> None:
    """Adds or replaces a column."""
    chunk.columns[name] = array
    chunk.roles[name] = role


def drop(chunk: Chunk, name: str) -> None:
    """Removes a column."""
    del chunk.columns[name]
    del chunk.roles[name]


def decode_any(message: trajectory_pb2.Chunk, spec: BehaviorSpec, max_bytes: int = MAX_DECODED_CHUNK_BYTES) -> Chunk:
    """Decodes with the memory of `full_chunk` if the chunk has any."""
    recurrent = any(column.name == "memory" for column in message.columns)
    return decode_chunk(
        message,
        spec,
        max_bytes=max_bytes,
        memory_size=MEMORY_SIZE if recurrent else 0,
        memory_stride=MEMORY_STRIDE if recurrent else 0,
    )


def description(**changes: Any) -> PolicyDescription:
    """Returns a valid description of a hybrid policy without its payload."""
    values: dict[str, Any] = {
        "behavior_index": 1,
        "behavior": "Crawler",
        "generation": 3,
        "version": 12,
        "optimizer_steps": 360,
        "env_steps_trained": 24576,
        "architecture_hash": bytes(range(32)),
        "inputs": ("obs_0", "obs_1", "action_masks"),
        "outputs": ("mean", "log_std", "logits"),
        "continuous_distribution": Distribution.GAUSSIAN_CLIP3,
        "discrete_distribution": Distribution.CATEGORICAL,
        "action_transform": ActionTransform(Squash.CLIP3_DIV3, (-1.0, 0.0), (1.0, 0.1)),
    }
    return PolicyDescription(**(values | changes))
