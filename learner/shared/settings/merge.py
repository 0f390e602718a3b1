"""Combines defaults and behaviors as ML-Agents does.

``default_settings`` is completed first; then each behavior's map is merged deeply over it. So reward signals are added,
never replaced; a schedule completed in the defaults stays; and a map in the defaults can only be removed where null is
allowed.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from learner.shared.settings.base import Path, Tree, Value
from learner.shared.settings.hyperparameters import DEFAULT_TRAINER, hyperparameters_of
from learner.shared.settings.problems import Problems
from learner.shared.settings.trainer import TrainerSettings


def deep_merge(base: Mapping[str, Value], over: Mapping[str, Value]) -> Tree:
    """Returns ``base`` with ``over`` merged into it; maps merge, other values are replaced."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = deep_merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def build_default(raw: Value, problems: Problems) -> TrainerSettings | None:
    """Builds ``default_settings``; None if the file has none or they are invalid, which is recorded."""
    if raw is None:
        return None
    return _build(raw, {}, ("default_settings",), problems)


def build_behaviors(raw: Value, default: TrainerSettings | None, problems: Problems) -> dict[str, TrainerSettings]:
    """Builds every behavior over the defaults; records errors and omits invalid behaviors."""
    if not isinstance(raw, dict):
        if raw is not None:
            problems.error(("behaviors",), "must be a map of behavior names to settings")
        return {}
    base: Tree = {} if default is None else default.model_dump(mode="json")
    behaviors: dict[str, TrainerSettings] = {}
    for name, settings in raw.items():
        built = _build({} if settings is None else settings, base, ("behaviors", name), problems)
        if built is not None:
            behaviors[name] = built
    return behaviors


def _build(raw: Value, base: Tree, path: Path, problems: Problems) -> TrainerSettings | None:
    if not isinstance(raw, dict):
        problems.error(path, f"must be a map of settings, got {raw!r}")
        return None
    merged = deep_merge(base, raw)
    if "hyperparameters" in merged and "trainer_type" not in merged:
        text = f"is given without a trainer_type; add trainer_type: {DEFAULT_TRAINER} next to it"
        problems.error((*path, "hyperparameters"), text)
        return None
    foreign = _foreign_hyperparameters(merged, base)
    if foreign:
        problems.error(
            (*path, "trainer_type"),
            f"is {merged['trainer_type']!r}, but default_settings is for {base['trainer_type']!r} and sets "
            f"hyperparameters that {merged['trainer_type']!r} does not have ({', '.join(foreign)}): give both the same "
            "trainer_type",
        )
        return None
    try:
        return TrainerSettings.model_validate(merged)
    except ValidationError as error:
        problems.add_validation(error, path)
        return None


def _foreign_hyperparameters(merged: Tree, base: Tree) -> list[str]:
    """Returns the inherited hyperparameters that a behavior's own trainer lacks."""
    model = hyperparameters_of(str(merged.get("trainer_type")))
    inherited = base.get("hyperparameters")
    if model is None or not isinstance(inherited, dict):
        return []
    return [key for key in inherited if key not in model.model_fields]
