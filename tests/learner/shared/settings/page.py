"""Renders the tables of the page about run files from the settings classes.

``python -m tests.learner.shared.settings.page`` writes them into the page, below their headings.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from pydantic_core import PydanticUndefined

import learner.shared.settings
from learner.shared.settings import parameters, trainer
from learner.shared.settings.base import SettingsModel, to_bytes
from learner.shared.settings.companions import CompanionSettings, DataBufferSettings
from learner.shared.settings.environment import CheckpointSettings, EngineSettings, EnvironmentSettings, TorchSettings
from learner.shared.settings.network import MemorySettings, NetworkSettings, TowerSettings
from learner.shared.settings.options import RunOptions
from learner.shared.settings.service import EvaluationSettings, LockstepSettings, ServiceSettings
from tests.learner.training.trainers.pages import range_in_words

PAGE = Path(next(iter(learner.shared.settings.__path__))) / "README.md"

BLOCKS: dict[str, type[SettingsModel]] = {
    "The whole file": RunOptions,
    "A behavior": trainer.TrainerSettings,
    "network_settings": NetworkSettings,
    "network_settings.memory": MemorySettings,
    "network_settings.tower": TowerSettings,
    "companions": CompanionSettings,
    "data_buffers": DataBufferSettings,
    "self_play": trainer.SelfPlaySettings,
    "behavioral_cloning": trainer.BehavioralCloningSettings,
    "env_settings": EnvironmentSettings,
    "engine_settings": EngineSettings,
    "checkpoint_settings": CheckpointSettings,
    "torch_settings": TorchSettings,
    "environment_parameters": parameters.Sampler,
    "uniform": parameters.UniformParameters,
    "gaussian": parameters.GaussianParameters,
    "multirangeuniform": parameters.MultiRangeUniformParameters,
    "constant": parameters.ConstantParameters,
    "curriculum": parameters.Lesson,
    "completion_criteria": parameters.CompletionCriteria,
    "rollcast": ServiceSettings,
    "rollcast.lockstep": LockstepSettings,
    "rollcast.evaluation": EvaluationSettings,
}
"""The block behind each heading of the page that has a table."""

ELSEWHERE = ("Companions", "HyperparameterSettings", "RewardSignals")
"""Blocks that other pages have, or that have no keys of their own."""

_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def table(model: type[SettingsModel]) -> str:
    """Returns the table of a block: key, default, range, meaning; a key without a meaning is an error."""
    properties = model.model_json_schema()["properties"]
    lines = ["| key | default | range | meaning |", "|---|---|---|---|"]
    for key, field in model.model_fields.items():
        assert field.description, f"{model.__name__}.{key} has no description"
        default = field.get_default(call_default_factory=True, validated_data={})
        schema = properties[key]
        is_size = any(getattr(part, "func", None) is to_bytes for part in field.metadata) or "bytes" in key
        told = _size_range(schema) if is_size else _range(schema)
        lines.append(f"| `{key}` | {_default(default, is_size)} | {told} | {field.description} |")
    return "\n".join(lines)


def filled(page: str) -> str:
    """Returns the page with the tables that the code gives, each in the place of the one below its heading."""
    parts = re.split(r"^(#{2,3} .*\n)", page, flags=re.MULTILINE)
    for index in range(1, len(parts), 2):
        model = BLOCKS.get(parts[index].strip("# \n"))
        if model is not None:
            parts[index + 1] = re.sub(
                r"(?:^\|.*\n)+", lambda _, of=model: f"{table(of)}\n", parts[index + 1], count=1, flags=re.MULTILINE
            )
    return "".join(parts)


def _range(schema: dict[str, Any]) -> str:
    inner = [part for part in schema.get("anyOf", [schema]) if part != {"type": "null"}]
    if any("$ref" in part or part.get("type") == "object" for part in inner):
        return "a block" + (", or null" if len(inner) < len(schema.get("anyOf", inner)) else "")
    return range_in_words(schema)


def _size_range(schema: dict[str, Any]) -> str:
    inner = next(part for part in schema.get("anyOf", [schema]) if part != {"type": "null"})
    low, high = (inner.get(name, inner.get(short)) for name, short in (("minimum", "ge"), ("maximum", "le")))
    limits = f"{_size(low)} to {_size(high)}" if high is not None else f"from {_size(low)}"
    return f"{limits}{', or null' if 'anyOf' in schema else ''}"


def _size(value: int) -> str:
    for unit, name in _UNITS:
        if value >= unit and value % unit == 0:
            return f"{value // unit} {name}"
    return f"{value} bytes" if value != 1 else "1 byte"


def _default(value: Any, is_size: bool) -> str:
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, SettingsModel):
        value = value.model_dump(mode="json", exclude_defaults=True)
    if isinstance(value, dict):
        return str(yaml.safe_dump(value, default_flow_style=True)).strip()
    if is_size and value is not None:
        return _size(value)
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return str(
            yaml.safe_dump([list(item) if isinstance(item, tuple) else item for item in value], default_flow_style=True)
        ).strip()
    return str(yaml.safe_dump(value)).removesuffix("\n...\n").strip()


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
