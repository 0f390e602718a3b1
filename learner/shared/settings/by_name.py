"""Finds settings of a run by the names that programs and sweeps give them, such as ``learning_rate``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from learner.shared.settings.layers import EVERY_BEHAVIOR
from learner.shared.settings.network import NetworkSettings
from learner.shared.settings.service import ServiceSettings
from learner.shared.settings.trainer import TrainerSettings

_OF_EXTRINSIC: Final = frozenset({"gamma", "strength"})


def settings_by_name(name: str, value: object) -> Iterator[tuple[str, str]]:
    """Yields the dotted path of a setting, or of each one in a block, and its value as text, for ``--set``.

    Args:
        name: A dotted path, a setting of the service, or one of the trainer, which counts for every behavior.
        value: Its value; a mapping is a block.
    """
    if "." in name:
        path = name
    elif name == "trainer":
        path = ".".join((*EVERY_BEHAVIOR, "trainer_type"))
    elif name in TrainerSettings.model_fields:
        path = ".".join((*EVERY_BEHAVIOR, name))
    elif name in NetworkSettings.model_fields:
        path = ".".join((*EVERY_BEHAVIOR, "network_settings", name))
    elif name in _OF_EXTRINSIC:
        path = ".".join((*EVERY_BEHAVIOR, "reward_signals", "extrinsic", name))
    elif name in ServiceSettings.model_fields:
        path = f"rollcast.{name}"
    else:
        path = ".".join((*EVERY_BEHAVIOR, "hyperparameters", name))
    yield from _leaves(path, value)


def _leaves(path: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from _leaves(f'{path}."{key}"' if "." in key else f"{path}.{key}", each)
    else:
        yield path, value if isinstance(value, str) else json.dumps(value)
