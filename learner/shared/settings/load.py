"""Loads a run's settings: the file, the layers above it, ML-Agents' merging, and the source of each value."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Final

import yaml
from pydantic import ValidationError

from learner.shared import plugins
from learner.shared.exits import ExitCode, UserError
from learner.shared.settings.base import Path, SettingsModel, Tree, Value
from learner.shared.settings.companions import Companions
from learner.shared.settings.hyperparameters import DEFAULT_TRAINER, hyperparameters_of
from learner.shared.settings.layers import (
    from_environment,
    from_flags,
    from_secrets,
    from_set_items,
    lay_over,
    leaves,
    settle_start,
)
from learner.shared.settings.lint import lint, old_format
from learner.shared.settings.options import RunOptions
from learner.shared.settings.problems import Problems
from learner.shared.settings.rewards import RewardSignals
from learner.shared.settings.rules import code_of_users, conflicts, warn
from learner.shared.settings.slots import slot_of
from learner.shared.settings.trainer import TrainerSettings
from learner.shared.settings.yaml_reader import Document, read_document

MOST_REPEATED = 20
"""Warnings of keys that are written twice."""
MASK = "**********"
"""Replaces a secret wherever settings are shown or written."""

_ANY: Final = "NAME"
"""Stands for the name of a behavior."""
_CODE: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
"""The form of `module:callable`."""


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A run's settings and their sources.

    Attributes:
        path: The run file, or None if there is none.
        options: The complete settings.
        sources: Source of each value, by its dotted path: "default", "yaml", "default_settings" (inherited), "derived"
            (computed from other values), "env ROLLCAST_X", "secret x", "--flag", "--set".
        warnings: Warnings for the user, one line each.
        places: Where the settings that name code of the user are written, for messages, by their dotted paths.
    """

    path: FilePath | None
    options: RunOptions
    sources: Mapping[str, str]
    warnings: tuple[str, ...]
    places: Mapping[str, str] = field(default_factory=dict)


def load_run_options(
    path: FilePath | None,
    *,
    cli: Mapping[str, object] | None = None,
    set_items: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> LoadedRun:
    """Loads a run's settings.

    The command line wins over the environment, then the secrets directory, the file and the defaults. On the command
    line, ``--set`` wins over flags.

    Args:
        path: The run file; None runs every behavior with ML-Agents' PPO defaults.
        cli: The given flags, by name (``run-id`` or ``run_id``) or dotted path; None means not given.
        set_items: Texts ``a.b.c=value``.
        environ: The environment; None reads none.

    Raises:
        UserError: A setting is invalid; ``details`` has every problem if there are several.
    """
    document = Document() if path is None else read_document(path, is_given=True)
    old = old_format(document.tree, RunOptions.model_fields)
    if old is not None:
        raise UserError(ExitCode.RUN_FILE, f"{path}: {old}")
    tree = copy.deepcopy(document.tree)
    problems = Problems("the settings" if path is None else str(path), document.lines)
    for place, line, text in document.repeated[:MOST_REPEATED]:
        problems.warnings.append(f"{path}:{line}: {'.'.join(place)} {text}")
    _fill_empty_blocks(tree)
    problems.origins = dict.fromkeys(leaves(tree), "yaml")
    _lay_over_all(tree, problems, cli or {}, set_items, environ or {})
    problems.beside_file = frozenset(
        path[:length]
        for path, origin in problems.origins.items()
        if origin != "yaml"
        for length in range(len(path) + 1)
    )
    settle_start(tree, problems)
    _check_levels(tree, problems)
    if path is not None and any(map(_CODE.fullmatch, _texts(tree))):
        plugins.search_beside(path)
    _check_code(tree, problems)
    _lint(tree, problems)
    options = _build(tree, problems)
    _check_has_behaviors(path, options, problems)
    for place, text in conflicts(options):
        problems.error(place, text)
    problems.raise_errors()
    if path is None and not options.behaviors and options.default_settings is None:
        problems.warnings.append(
            f"no run file was given: every behavior that actors declare is trained with the defaults of "
            f"{DEFAULT_TRAINER}; to choose settings, give a run file: rollcast serve RUN.yaml"
        )
    warn(options, problems)
    places = {setting: problems.place(place) for place, setting, _, _ in code_of_users(options)}
    return LoadedRun(path, options, _sources_of(options, problems.origins), tuple(problems.warnings), places)


def _fill_empty_blocks(tree: Tree) -> None:
    """Replaces blocks that are null, because all their lines are commented out, by empty ones."""
    for key, of_model in RunOptions.model_fields.items():
        slot = slot_of(of_model.annotation)
        if key in tree and tree[key] is None and slot.kind != "leaf" and not slot.nullable:
            tree[key] = {}


def _check_levels(tree: Tree, problems: Problems) -> None:
    """Finds sections of a behavior that are indented too little, and would be behaviors or unknown blocks.

    What ML-Agents accepts causes a warning: a behavior may have such a name. A section without settings is an error, as there.
    """
    sections = TrainerSettings.model_fields.keys()
    behaviors = tree.get("behaviors")
    for key in [key for key in tree if key in sections and (key,) not in problems.beside_file]:
        problems.error((key,), f"is a setting of a behavior: write it below behaviors.{_ANY}")
        del tree[key]
    if not isinstance(behaviors, dict):
        return
    above = _ANY
    for name, block in list(behaviors.items()):
        if name not in sections and name not in RunOptions.model_fields:
            above = name
            continue
        place = f"below behaviors.{above}" if name in sections else "at the level of behaviors"
        if isinstance(block, dict) and block.keys() <= sections:
            problems.warn(
                ("behaviors", name), f"is read as the name of a behavior; if it is a setting, write it {place}"
            )
        else:
            problems.error(("behaviors", name), f"is a setting, not the name of a behavior: write it {place}")
            del behaviors[name]


def _texts(value: Value) -> Iterator[str]:
    """Yields all texts in a tree, its keys among them."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value


def _check_code(tree: Tree, problems: Problems) -> None:
    """Imports the trainers, companions and reward signals of users, so that their errors name the line.

    Raises:
        UserError: Some cannot be imported or used.
    """
    blocks: dict[Path, Value] = {("default_settings",): tree.get("default_settings")}
    if isinstance(behaviors := tree.get("behaviors"), dict):
        blocks |= {("behaviors", name): block for name, block in behaviors.items()}
    found: list[str] = []
    for path, block in blocks.items():
        if not isinstance(block, dict):
            continue
        try:
            hyperparameters_of(str(block.get("trainer_type", DEFAULT_TRAINER)), problems.place((*path, "trainer_type")))
            for model in (RewardSignals, Companions):
                model.check_code(block, path, problems.place)
        except UserError as error:
            found.append(error.message)
    if found:
        problems.errors.extend(found)
        problems.raise_errors()


def _lay_over_all(
    tree: Tree, problems: Problems, cli: Mapping[str, object], set_items: Sequence[str], environ: Mapping[str, str]
) -> None:
    listed = tree.get("behaviors")
    names = list(listed) if isinstance(listed, dict) else []
    lay_over(tree, list(from_secrets(environ, problems)), problems)
    lay_over(tree, list(from_environment(environ, problems)), problems)
    lay_over(tree, list(from_flags(cli, names, problems)), problems)
    lay_over(tree, list(from_set_items(set_items, tree, problems)), problems)


def _lint(tree: Tree, problems: Problems) -> None:
    """Checks the keys of every block; a behavior without a trainer type is checked as the inherited type."""
    default = tree.get("default_settings")
    inherited = default.get("trainer_type", DEFAULT_TRAINER) if isinstance(default, dict) else DEFAULT_TRAINER
    behaviors = tree.get("behaviors")
    unset: list[Tree] = []
    if isinstance(behaviors, dict):
        unset = [block for block in behaviors.values() if isinstance(block, dict) and "trainer_type" not in block]
    for block in unset:
        block["trainer_type"] = inherited
    lint(RunOptions, tree, problems)
    for block in unset:
        del block["trainer_type"]


def _build(tree: Tree, problems: Problems) -> RunOptions:
    """Builds the tree of settings; uses defaults where errors were recorded."""
    default = build_default(tree.get("default_settings"), problems)
    behaviors: dict[str, TrainerSettings] = {}
    if default is not None or tree.get("default_settings") is None:
        behaviors = build_behaviors(tree.get("behaviors"), default, problems)
    try:
        return RunOptions.model_validate({**tree, "default_settings": default, "behaviors": behaviors})
    except ValidationError as error:
        problems.add_validation(error)
        return RunOptions()


def _check_has_behaviors(path: FilePath | None, options: RunOptions, problems: Problems) -> None:
    if path is not None and not problems.errors and not options.behaviors and options.default_settings is None:
        problems.errors.append(f"{path}: has neither behaviors nor default_settings; add the behaviors to train")


def _sources_of(options: RunOptions, origins: Mapping[Path, str]) -> dict[str, str]:
    """Returns the source of each value of the resolved settings, by its dotted path.

    Args:
        options: The settings.
        origins: Source of each written value, by its path in the run file.
    """
    tree: Tree = options.model_dump(mode="json")
    return {".".join(path): _source(path, options, origins) for path in leaves(tree)}


def _source(path: Path, options: RunOptions, origins: Mapping[Path, str]) -> str:
    if path in origins:
        return origins[path]
    if path[0] == "environment_parameters" and len(path) > 1:  # their spellings differ from the resolved form
        return next(origin for written, origin in origins.items() if written[:2] == path[:2])
    if path[0] == "behaviors" and ("default_settings", *path[2:]) in origins:
        return "default_settings"
    return "derived" if _is_derived(options, path) else "default"


def _is_derived(options: RunOptions, path: Path) -> bool:
    """Returns whether an unwritten value differs from its field's default because it follows from others."""
    block: object = options
    for key in path[:-1]:
        block = block[key] if isinstance(block, dict) else getattr(block, key)
    field = type(block).model_fields.get(path[-1]) if isinstance(block, SettingsModel) else None
    if field is None:
        return False
    default: object = field.get_default(call_default_factory=True, validated_data={})
    return bool(default != getattr(block, path[-1]))


def effective_document(loaded: LoadedRun) -> Tree:
    """Returns the complete settings for the run folder's ``configuration.yaml``, with secrets masked.

    Reading it back gives the same settings.
    """
    return _masked(loaded.options.model_dump(mode="json"), loaded.sources, ())


def to_yaml(document: Mapping[str, Value]) -> str:
    """Returns a document as YAML, keys in the order of the document."""
    text: str = yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True)
    return text


def _masked(tree: Tree, sources: Mapping[str, str], path: Path) -> Tree:
    masked: Tree = {}
    for key, value in tree.items():
        here = (*path, key)
        if isinstance(value, dict):
            masked[key] = _masked(value, sources, here)
        else:
            masked[key] = MASK if sources.get(".".join(here), "").startswith("secret ") else value
    return masked


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
    return _build_settings(raw, {}, ("default_settings",), problems)


def build_behaviors(raw: Value, default: TrainerSettings | None, problems: Problems) -> dict[str, TrainerSettings]:
    """Builds every behavior over the defaults, as ML-Agents does; records errors and omits invalid behaviors.

    ``default_settings`` is complete before each behavior's map is merged deeply over it. So reward signals are added, never
    replaced; a schedule completed in the defaults stays; and a map in the defaults can only be removed where null is allowed.
    """
    if not isinstance(raw, dict):
        if raw is not None:
            problems.error(("behaviors",), "must be a map of behavior names to settings")
        return {}
    base: Tree = {} if default is None else default.model_dump(mode="json")
    behaviors: dict[str, TrainerSettings] = {}
    for name, settings in raw.items():
        built = _build_settings({} if settings is None else settings, base, ("behaviors", name), problems)
        if built is not None:
            behaviors[name] = built
    return behaviors


def _build_settings(raw: Value, base: Tree, path: Path, problems: Problems) -> TrainerSettings | None:
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
