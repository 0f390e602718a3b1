"""The flags of ``rollcast-learner serve`` that set a value of the run file, and which value each sets.

The names of ML-Agents' own flags are those of ``mlagents-learn``, so that known command lines work.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from learner.settings.base import Path

DETERMINISTIC_FLAG = "deterministic"
"""Sets ``network_settings.deterministic`` of every behavior the run file lists."""


def _block(block: str, *keys: str) -> dict[str, Path]:
    return {key.replace("_", "-"): (block, key) for key in keys}


FLAGS: Mapping[str, Path] = MappingProxyType(
    {
        "env": ("env_settings", "env_path"),
        **_block("env_settings", "env_args", "base_port", "num_envs", "num_areas", "timeout_wait", "seed"),
        **_block("env_settings", "max_lifetime_restarts", "restarts_rate_limit_n", "restarts_rate_limit_period_s"),
        **_block("engine_settings", "width", "height", "quality_level", "time_scale", "target_frame_rate"),
        **_block("engine_settings", "capture_frame_rate", "no_graphics", "no_graphics_monitor"),
        **_block("checkpoint_settings", "run_id", "initialize_from", "resume", "force", "inference", "results_dir"),
        "load": ("checkpoint_settings", "load_model"),
        "train": ("checkpoint_settings", "train_model"),
        "torch-device": ("torch_settings", "device"),
        "checkpoint": ("rollcast", "resume_checkpoint"),
        "debug": ("debug",),
        **_block("rollcast", "address", "insecure", "control_address", "http", "http_address", "reflection"),
        **_block("rollcast", "max_sessions"),
        **_block("rollcast", "target_return", "max_wall_seconds", "torch_threads", "log_format"),
    }
)
"""Path of each flag, by its name without the leading dashes."""


def flag_name(name: str) -> str:
    """Returns the flag of an argument name as argparse keeps it: ``run_id`` is ``run-id``."""
    return name.replace("_", "-")
