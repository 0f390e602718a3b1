"""Describes the run to actors that open a session."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from rollcast.v1 import policy_pb2, session_pb2

from learner.shared.settings.options import RunOptions


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The run, as actors see it.

    Attributes:
        run_id: Name of the run.
        generation: Grows with each start of the learner.
        run_seed: Seed from which the environments' seeds are derived.
        behaviors: Names in the run file; empty if any name is accepted.
        limits: Limits of chunks.
        environment_settings: Settings of the simulator.
        engine_settings: Settings of the engine.
        server_version: Version of the learner, for logs.
        assignment: What actors do besides learning with the newest policy; None if they only learn.
    """

    run_id: str
    generation: int
    run_seed: int
    behaviors: tuple[str, ...] = ()
    limits: session_pb2.ChunkLimits = field(default_factory=session_pb2.ChunkLimits)
    environment_settings: session_pb2.EnvironmentSettings = field(default_factory=session_pb2.EnvironmentSettings)
    engine_settings: session_pb2.EngineSettings = field(default_factory=session_pb2.EngineSettings)
    server_version: str = ""
    assignment: policy_pb2.Assignment | None = None

    @classmethod
    def from_options(
        cls,
        options: RunOptions,
        *,
        run_id: str,
        generation: int,
        run_seed: int,
        server_version: str = "",
        assignment: policy_pb2.Assignment | None = None,
    ) -> Self:
        """Creates the description from a run file."""
        is_open = options.default_settings is not None
        return cls(
            run_id=run_id,
            generation=generation,
            run_seed=run_seed,
            behaviors=() if is_open else tuple(options.behaviors),
            limits=_limits(options),
            environment_settings=_environment(options),
            engine_settings=_engine(options),
            server_version=server_version,
            assignment=_until_rounds_begin(options, assignment),
        )


def _until_rounds_begin(options: RunOptions, asked: policy_pb2.Assignment | None) -> policy_pb2.Assignment | None:
    """Returns the first assignment of actors; in lock-step they wait for a round."""
    lockstep = options.rollcast.lockstep
    if lockstep is None:
        return asked
    assignment = policy_pb2.Assignment()
    if asked is not None:
        assignment.CopyFrom(asked)
    assignment.lockstep_quota_steps = lockstep.quota_steps or 1  # marks lock-step; each round sets its own quota
    return assignment


def _limits(options: RunOptions) -> session_pb2.ChunkLimits:
    service = options.rollcast
    return session_pb2.ChunkLimits(
        max_chunk_bytes=service.max_chunk_bytes,
        target_chunk_bytes=service.target_chunk_bytes,
        max_chunk_age_ms=max(1, round(service.max_chunk_age_seconds * 1000)),
        max_chunk_steps=service.max_chunk_steps or 0,
    )


def _environment(options: RunOptions) -> session_pb2.EnvironmentSettings:
    settings = options.env_settings
    return session_pb2.EnvironmentSettings(
        env_args=settings.env_args or (),
        num_areas=settings.num_areas,
        timeout_wait_seconds=settings.timeout_wait,
        max_lifetime_restarts=settings.max_lifetime_restarts,
        restarts_rate_limit_n=settings.restarts_rate_limit_n,
        restarts_rate_limit_period_seconds=settings.restarts_rate_limit_period_s,
    )


def _engine(options: RunOptions) -> session_pb2.EngineSettings:
    settings = options.engine_settings
    return session_pb2.EngineSettings(
        width=settings.width,
        height=settings.height,
        quality_level=settings.quality_level,
        time_scale=settings.time_scale,
        target_frame_rate=settings.target_frame_rate,
        capture_frame_rate=settings.capture_frame_rate,
        no_graphics=settings.no_graphics,
        no_graphics_monitor=settings.no_graphics_monitor,
    )
