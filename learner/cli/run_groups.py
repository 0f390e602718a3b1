"""Groups runs for a comparison: runs whose settings differ only in the seed are runs of one configuration."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

from rollcast.text import printable

from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.curves import Curve
from learner.shared.runfolder.names import CONFIGURATION, safe_name
from learner.shared.settings.base import Value
from learner.shared.settings.layers import values_in
from learner.shared.settings.yaml_reader import read_document

BY_SETTINGS, BY_NAME, BY_RUN = "settings", "name", "run"
MAX_LABEL_CHARS = 40
_MAX_VALUE_CHARS = 24
_MAX_KEY_CHARS = 100
_MAX_KEYS_IN_LABEL = 2
_MISSING = "-"
_SEED = "env_settings.seed"
_START = "checkpoint_settings.initialize_from"
_NUMBER_AT_END = re.compile(r"(?<=.)[-_. ](?:seed|s)?[-_. ]?\d+$")

_Key = TypeVar("_Key")

# Settings that name, watch or save a run, and do not change what it learns.
_OTHER_BLOCKS = ("checkpoint_settings.", "rollcast.evaluation.")
_OTHER_KEYS = frozenset(
    {
        _SEED, "env_settings.base_port", "debug",
        "keep_checkpoints", "even_checkpoints", "checkpoint_interval", "summary_freq",
        *(
            f"rollcast.{key}" for key in (
                "address", "insecure", "http", "http_address", "page_address", "http_hosts", "operator_token_file", "reflection",
                "certs", "tls_cert", "tls_key", "tls_ca", "tls_client_ca", "token_file",
                "max_sessions", "lease_seconds", "resume_grace_seconds", "drain_seconds", "keep_actors", "resume_checkpoint", "checkpoint_seconds",
                "return_buckets", "target_return", "target_rating", "max_wall_seconds", "stats_writers", "video", "torch_threads",
                "log_format", "log_level", "summary_seconds",
            )
        ),
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Member:
    """One run of a group.

    Attributes:
        folder: Run folder.
        curve: The compared statistic.
        settings: Values by dotted path, those of the behavior without ``behaviors.<name>.``; empty if they were not read.
    """

    folder: Path
    curve: Curve
    settings: Mapping[str, str]

    @property
    def seed(self) -> str:
        """Returns the seed of the run; empty if its settings were not read."""
        return self.settings.get(_SEED, "")


@dataclass(frozen=True, slots=True)
class Group:
    """Runs of one configuration.

    Attributes:
        label: Name in tables and pictures, different from those of other groups.
        members: Its runs, at least one.
        differences: Settings that differ from other groups', by dotted path; filled for `BY_SETTINGS` only.
    """

    label: str
    members: tuple[Member, ...]
    differences: Mapping[str, str] = field(default_factory=dict)


def read_settings(folder: Path, behavior_folder: str) -> dict[str, str]:
    """Returns the settings of a run as text, by dotted path.

    Args:
        folder: Run folder.
        behavior_folder: Name of the folder of the behavior, whose settings have no prefix.

    Raises:
        UserError: The run has no settings, or they cannot be read.
    """
    path = folder / CONFIGURATION
    if not path.is_file():
        raise UserError(
            ExitCode.USAGE,
            f"{printable(str(folder))} has no {CONFIGURATION}; --by name and --by run group runs without settings",
        )
    tree = read_document(path).tree
    blocks = tree.get("behaviors")
    names = blocks if isinstance(blocks, dict) else {}
    own = next((f"behaviors.{name}." for name in names if safe_name(name) == behavior_folder), "default_settings.")
    return {_whole(dotted.removeprefix(own)): _text(value) for dotted, value in values_in(tree).items()}


def grouped(members: Sequence[Member], by: str) -> list[Group]:
    """Returns the groups of runs, in the order of their first runs.

    Args:
        members: Runs with the same behavior.
        by: `BY_SETTINGS`, `BY_NAME` (the name without its end such as ``-1`` or ``_s1``), `BY_RUN` (each run alone), or a setting.

    Raises:
        UserError: No run has the setting.
    """
    if by == BY_SETTINGS:
        return _by_settings(members)
    if by == BY_RUN:
        return _groups([member.curve.run_id for member in members], [[member] for member in members])
    if by == BY_NAME:
        parts = _parts([_stem(member.curve.run_id) for member in members], members)
        return _groups(list(parts), list(parts.values()))
    if not any(by in member.settings for member in members):
        raise UserError(ExitCode.USAGE, _unknown_key(by, members))
    parts = _parts([member.settings.get(by, _MISSING) for member in members], members)
    return _groups([_named(by, value) for value in parts], list(parts.values()))


def _by_settings(members: Sequence[Member]) -> list[Group]:
    keys = [frozenset(item for item in member.settings.items() if _matters(item[0])) for member in members]
    parts = _parts(keys, members)
    settings = [dict(key) for key in parts]
    differing = [
        key
        for key in sorted(set().union(*settings), key=lambda key: (key.count("."), key))
        if len({setting.get(key) for setting in settings}) > 1
    ]
    differences = [{key: setting.get(key, _MISSING) for key in differing} for setting in settings]
    names = [_common_name(part) for part in parts.values()]
    if None in names or len(set(names)) < len(names):
        names = [
            _short(difference) if len(differing) <= _MAX_KEYS_IN_LABEL else f"{part[0].curve.run_id} ..."
            for part, difference in zip(parts.values(), differences, strict=True)
        ]
    groups = _groups([name or "" for name in names], list(parts.values()))
    return [replace(group, differences=found) for group, found in zip(groups, differences, strict=True)]


def _parts(keys: Sequence[_Key], members: Sequence[Member]) -> dict[_Key, list[Member]]:
    parts: dict[_Key, list[Member]] = {}
    for key, member in zip(keys, members, strict=True):
        parts.setdefault(key, []).append(member)
    return parts


def _groups(labels: Sequence[str], parts: Sequence[Sequence[Member]]) -> list[Group]:
    """Returns groups with printable labels, numbered where two would be equal."""
    taken: set[str] = set()
    groups = []
    for label, part in zip(labels, parts, strict=True):
        name = shown = printable(label, MAX_LABEL_CHARS)
        number = 1
        while shown in taken:
            number += 1
            shown = f"{name} ({number})"
        taken.add(shown)
        groups.append(Group(shown, tuple(part)))
    return groups


def _common_name(part: Sequence[Member]) -> str | None:
    """Returns the name of a single run, or the beginning that the names of several have before their numbers."""
    if len(part) == 1:
        return part[0].curve.run_id
    stems = {_stem(member.curve.run_id) for member in part}
    return stems.pop() if len(stems) == 1 else None


def _stem(run_id: str) -> str:
    return _NUMBER_AT_END.sub("", run_id)


def _short(difference: Mapping[str, str]) -> str:
    return ", ".join(_named(key, value) for key, value in difference.items())


def _named(key: str, value: str) -> str:
    return f"{key.rpartition('.')[2]}={printable(value, _MAX_VALUE_CHARS)}"


def _matters(key: str) -> bool:
    return key not in _OTHER_KEYS and (not key.startswith(_OTHER_BLOCKS) or key == _START)


def _text(value: Value) -> str:
    return _whole(value if isinstance(value, str) else json.dumps(value))


def _whole(text: str) -> str:
    return printable(text, len(text))


def _unknown_key(by: str, members: Sequence[Member]) -> str:
    known = {key for member in members for key in member.settings if len(key) <= _MAX_KEY_CHARS}
    near = get_close_matches(by, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"it is a dotted path in {CONFIGURATION}"
    return f"--by {printable(by)!r}: no run has this setting; {hint}"
