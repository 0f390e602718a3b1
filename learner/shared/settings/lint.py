"""Finds unknown, old and misplaced keys in the written settings, and files of old releases, before anything is merged.

An unknown key is an error if ML-Agents refuses it. If ML-Agents silently ignores it, it causes a warning and is
dropped. Both suggest the nearest key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from learner.shared.settings.base import LenientSettings, Path, SettingsModel, Tree, Value
from learner.shared.settings.lenient import STOCK_KEYS, as_in_mlagents
from learner.shared.settings.problems import Problems, did_you_mean
from learner.shared.settings.slots import Slot, slot_of

_MAX_LISTED_KEYS = 12
_MAX_LEVELS = 2
"""Levels of blocks that are searched for a misplaced key; deeper blocks share many keys."""
OWN_BLOCK = "rollcast"
"""The block that ML-Agents does not have."""
_FALSE_WORDS = frozenset({"false", "no", "off", "f", "n", "0"})
PAGE: Final = "actor_client/unity/README.md#old-run-files"
_FLAT: Final = frozenset(
    [
        "trainer",
        "use_recurrent",
        "batch_size",
        "buffer_size",
        "learning_rate",
        "beta",
        "epsilon",
        "lambd",
        "num_epoch",
        "num_layers",
        "hidden_units",
        "normalize",
        "memory_size",
        "sequence_length",
        "gamma",
        "use_curiosity",
        "curiosity_strength",
        "pretraining",
        "summary_path",
        "buffer_init_steps",
        "init_entcoef",
        "brain_to_imitate",
        "batches_per_epoch",
        "demo_path",
        "max_steps",
        "time_horizon",
        "summary_freq",
        "reward_signals",
    ]
)
"""Settings of a behavior before release 3 of ML-Agents, all in one block; the last ones are where they are today."""
_CURRICULUM: Final = frozenset({"measure", "thresholds", "min_lesson_length", "signal_smoothing", "parameters"})


def lint(model: type[SettingsModel], raw: Tree, problems: Problems, path: Path = ()) -> None:
    """Checks the keys of a block and of the blocks below it; removes unknown keys from ``raw``."""
    block = model.model_for(raw)
    for key in list(raw):
        here = (*path, key)
        if key in block.model_fields:
            if key in block.warned_keys and raw[key]:
                problems.warn(here, block.warned_keys[key])
            slot = slot_of(block.annotation_for(key, raw))
            if raw[key] is None and bool in slot.types and not slot.nullable:
                problems.warn(here, "is empty and is read as false")
                raw[key] = False
            if key in STOCK_KEYS and path[:1] != (OWN_BLOCK,) and here not in problems.beside_file:
                raw[key], note = as_in_mlagents(key, block.model_fields[key], slot, raw[key])
                if note is not None:
                    problems.warn(here, note)
            _lint_value(slot, raw[key], problems, here)
            continue
        if key in block.ignored_keys:
            problems.warn(here, block.ignored_keys[key])
        elif key in block.removed_keys:
            problems.error(here, block.removed_keys[key])
        elif issubclass(block, LenientSettings):
            problems.warn(here, f"unknown key {key!r} is ignored{_suggestion(block, raw, key)}")
        else:
            problems.error(here, f"unknown key {key!r}{_suggestion(block, raw, key)}")
        del raw[key]


def _lint_value(slot: Slot, value: Value, problems: Problems, path: Path) -> None:
    if slot.kind == "model" and slot.model is not None and isinstance(value, dict):
        lint(slot.model, value, problems, path)
    elif slot.kind == "map" and isinstance(value, dict):
        for key, item in value.items():
            _lint_value(slot_of(slot.item), item, problems, (*path, key))
    elif slot.kind == "list" and isinstance(value, list):
        for index, item in enumerate(value):
            _lint_value(slot_of(slot.item), item, problems, (*path, str(index)))
    elif bool in slot.types and problems.origins.get(path, "yaml") == "yaml" and _is_false_text(value):
        problems.warn(
            path, f"the text {value!r} is read as false (ML-Agents reads any text as true): remove the quotes"
        )


def _is_false_text(value: Value) -> bool:
    return isinstance(value, str) and value.lower() in _FALSE_WORDS


def _place_below(block: type[SettingsModel], raw: Tree, key: str) -> str | None:
    """Returns the dotted path of the highest block below this one that has a key."""
    level: list[tuple[str, type[SettingsModel], Tree]] = [("", block, raw)]
    for _ in range(_MAX_LEVELS):
        below: list[tuple[str, type[SettingsModel], Tree]] = []
        for prefix, parent, written in level:
            for name in parent.model_fields:
                slot, inner = slot_of(parent.annotation_for(name, written)), written.get(name)
                if slot.kind == "model" and slot.model is not None:
                    below.append((f"{prefix}{name}.", slot.model, inner if isinstance(inner, dict) else {}))
        for prefix, model, _inner in below:
            if key in model.model_fields:
                return prefix.rstrip(".")
        level = below
    return None


def _suggestion(block: type[SettingsModel], raw: Tree, key: str) -> str:
    hint = block.hint_for(key)
    if hint is not None:
        return f"; {hint}"
    near = did_you_mean(key, sorted(block.known_keys()))
    if near:
        return near
    place = _place_below(block, raw, key)
    if place is not None:
        return f"; it belongs under {place}"
    if len(block.model_fields) > _MAX_LISTED_KEYS:
        return ""
    return f"; known keys: {', '.join([*block.model_fields, *sorted(block.known_keys() - set(block.model_fields))])}"


def old_format(tree: Mapping[str, Value], known: Iterable[str]) -> str | None:
    """Returns what an old file is and the way out, for a message of one line; None for a file of today.

    Args:
        tree: The file.
        known: Keys of the top level today.
    """
    blocks = [block for block in tree.values() if isinstance(block, dict)]
    if not tree.keys() & frozenset(known):
        if _is_curriculum(tree) or any(map(_is_curriculum, blocks)):
            return _told("curriculum file", "before release 3", "environment_parameters: {NAME: {curriculum: [...]}}")
        if "resampling-interval" in tree or any("sampler-type" in block for block in blocks):
            return _told("sampler file", "before release 3", "environment_parameters: {NAME: {sampler_type: ...}}")
        if blocks and all(block.keys() & _FLAT for block in blocks):
            return _told(
                "trainer file", "before release 3", "behaviors: {NAME: {trainer_type: ..., hyperparameters: ...}}"
            )
    elif {"curriculum", "parameter_randomization"} & tree.keys():
        return _told("run file", "of the releases 3 to 6", "environment_parameters: {NAME: ...}")
    return None


def _is_curriculum(block: Mapping[str, Value]) -> bool:
    return "thresholds" in block and len(block.keys() & _CURRICULUM) > 1


def _told(kind: str, release: str, form: str) -> str:
    return f"is a {kind} of ML-Agents {release}; today its settings are in {form}, and {PAGE} has the place of each"
