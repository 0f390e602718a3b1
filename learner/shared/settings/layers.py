"""Applies the layers above the run file: the secrets directory, the environment, the command line; the later one wins.

The environment and the secrets directory set single values outside ``behaviors`` only: ``ROLLCAST_ADDRESS`` is
``rollcast.address`` and ``ROLLCAST_ENV_SETTINGS__SEED`` is ``env_settings.seed``. Variable names have no case, so they
cannot name a behavior. The command line reaches everything with ``--set behaviors.CartPole.max_steps=1e5``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from types import MappingProxyType

from rollcast.files import read_regular
from rollcast.history import VARIABLE as HISTORY_VARIABLE

from learner.shared.plugins import SEARCH_VARIABLE
from learner.shared.settings.base import Path, Tree, Value
from learner.shared.settings.options import RunOptions
from learner.shared.settings.problems import Problems, did_you_mean
from learner.shared.settings.slots import scalar_paths, slot_at
from learner.shared.settings.yaml_reader import parse_value

DETERMINISTIC_FLAG = "deterministic"
"""Flag that sets ``network_settings.deterministic`` of every behavior in the run file."""


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
        **_block("rollcast", "address", "insecure", "http", "http_address", "reflection"),
        **_block("rollcast", "certs", "tls_cert", "tls_key", "tls_ca", "tls_client_ca", "token_file"),
        **_block("rollcast", "max_sessions"),
        **_block(
            "rollcast",
            "target_return",
            "target_rating",
            "max_wall_seconds",
            "torch_threads",
            "trainers",
            "trainer_address",
        ),
        **_block("rollcast", "log_format", "log_level"),
    }
)
"""Path of each flag, by its name without the leading dashes."""

EVERY_BEHAVIOR: Path = ("behaviors", "*")
"""Begins a path of ``--set`` that sets a value of every behavior, and of those that the run file does not list."""
PREFIX = "ROLLCAST_"
SECRETS_DIRECTORY = "ROLLCAST_SECRETS_DIR"
_OF_COMPOSE = ("BIND", "PORT", "HTTP_PORT", "RUN_FILE", "FILES", "ENV", "NUM_ENVS", "ENVIRONMENTS", "LEARNER", "SECRETS",
               "LEARNER_IMAGE", "LEARNER_MEMORY", "UNITY_BUILD", "UNITY_NAME", "UNITY_NUM_ENVS", "UNITY_ALLOW_ENV_ARGS")  # fmt: skip
"""Names that docker-compose.yml reads, which people export, or keep in an .env that other tools export."""
RESERVED_NAMES = frozenset({"ROLLCAST_REVISION", SECRETS_DIRECTORY, HISTORY_VARIABLE, SEARCH_VARIABLE})
"""Variables with the prefix that are not settings of the run file."""
ACTOR_PREFIX = "ROLLCAST_ACTOR_"
MAX_SECRET_BYTES = 64 * 1024

_NULL_WORDS = frozenset({"null", "none", "~"})
_PATH_PART = re.compile(r'"([^"]*)"(?:\.|$)|([^."]+)(?:\.|$)')

_SERVICE_LINK = re.compile(r"_SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$")


@dataclass(frozen=True, slots=True)
class Override:
    """One value set above the file, with its source."""

    path: Path
    value: Value
    origin: str


def variables() -> dict[str, Path]:
    """Returns the known environment variables, with the path that each sets."""
    names: dict[str, Path] = {}
    for path in scalar_paths(RunOptions):
        parts = path[1:] if path[0] == "rollcast" else path
        if path[0] != "default_settings":
            names[PREFIX + "__".join(parts).upper()] = path
    return names


def from_environment(environ: Mapping[str, str], problems: Problems) -> Iterator[Override]:
    """Reads the ``ROLLCAST_`` variables; an empty one counts as unset, an unknown one is an error."""
    known = variables()
    for_compose = sorted(name for name in environ if name.upper().removeprefix(PREFIX) in _OF_COMPOSE and environ[name])
    if for_compose:
        problems.warnings.append(f"only docker-compose.yml reads {', '.join(for_compose)}; here they set nothing")
    for name in sorted(environ.keys() - for_compose):
        upper = name.upper()
        if not name.startswith(PREFIX) or upper in RESERVED_NAMES or upper.startswith(ACTOR_PREFIX):
            continue
        if upper not in known:
            if not _is_service_link(upper, environ[name]):
                problems.errors.append(_unknown_variable(f"environment variable {name}", upper, known))
        elif environ[name]:
            yield Override(known[upper], from_text(environ[name], known[upper], {}), f"env {name}")


def from_secrets(environ: Mapping[str, str], problems: Problems) -> Iterator[Override]:
    """Reads the files of the secrets directory whose names match variables, in any case."""
    directory = environ.get(SECRETS_DIRECTORY)
    if not directory:
        return
    known = variables()
    try:
        files = sorted(file for file in FilePath(directory).iterdir() if file.name.upper().startswith(PREFIX))
    except OSError as error:
        problems.errors.append(f"{SECRETS_DIRECTORY}: {directory} cannot be read: {error.strerror or error}")
        return
    for file in files:
        upper = file.name.upper()
        if upper not in known:
            problems.errors.append(_unknown_variable(f"secret {file}", upper, known))
            continue
        try:
            text = read_regular(file, MAX_SECRET_BYTES).decode().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            problems.errors.append(f"secret {file}: cannot be read as text: {reason}")
            continue
        if text:
            yield Override(known[upper], from_text(text, known[upper], {}), f"secret {file.name}")


def flag_name(name: str) -> str:
    """Returns the flag for argparse's name of an argument: ``run_id`` is ``run-id``."""
    return name.replace("_", "-")


def from_flags(cli: Mapping[str, object], behaviors: Sequence[str], problems: Problems) -> Iterator[Override]:
    """Reads the given flags; a key is a flag's name or a dotted path, and None means not given."""
    for name, value in cli.items():
        flag = flag_name(name)
        path = FLAGS.get(flag) or (tuple(name.split(".")) if "." in name else None)
        if value is None:
            continue
        if flag == DETERMINISTIC_FLAG:
            if not behaviors:
                problems.warnings.append(
                    "--deterministic has no effect: it applies to the behaviors listed in the run file, which lists none; "
                    "set default_settings.network_settings.deterministic"
                )
            for behavior in behaviors:
                yield Override(
                    ("behaviors", behavior, "network_settings", "deterministic"), bool(value), "--deterministic"
                )
        elif path is None:
            problems.errors.append(f"--{flag}: is not a setting of the run file{did_you_mean(flag, FLAGS)}")
        else:
            origin = f"--{flag}" if flag in FLAGS else f"--{flag_name(path[-1])}"
            yield Override(path, _plain(value), origin)


def from_set_items(items: Sequence[str], tree: Tree, problems: Problems) -> Iterator[Override]:
    """Reads ``--set a.b.c=value``; a key that contains a dot is written in double quotes, and ``behaviors.*`` means every behavior."""
    listed = tree.get("behaviors")
    for item in items:
        name, separator, text = item.partition("=")
        path = _split_path(name.strip())
        if not separator or path is None:
            problems.errors.append(f"--set {item}: must have the form KEY=VALUE, such as env_settings.seed=7")
            continue
        if path[:2] == EVERY_BEHAVIOR:
            paths = [("behaviors", name, *path[2:]) for name in listed] if isinstance(listed, dict) else []
            if not paths or "default_settings" in tree:
                paths.append(("default_settings", *path[2:]))
        elif path[0] == "behaviors" and len(path) > 1 and isinstance(listed, dict) and listed and path[1] not in listed:
            near = did_you_mean(path[1], listed) or f"; it lists {', '.join(listed)}"
            problems.errors.append(f"--set {item}: the run file lists no behavior {path[1]!r}{near}")
            continue
        else:
            paths = [path]
        try:
            for each in paths:
                yield Override(each, from_text(text, each, tree), "--set")
        except ValueError as error:
            problems.errors.append(f"--set {item}: the value cannot be read: {error}")


def lay_over(tree: Tree, overrides: Sequence[Override], problems: Problems) -> None:
    """Writes overrides into the tree in order, and records the source of each value."""
    for override in overrides:
        block = tree
        for key in override.path[:-1]:
            below = block.get(key)
            if not isinstance(below, dict):
                below = {}
                block[key] = below
            block = below
        block[override.path[-1]] = override.value
        for path in list(problems.origins):
            shared = min(len(path), len(override.path))
            if path[:shared] == override.path[:shared]:
                del problems.origins[path]
        for leaf in leaves(override.value, override.path):
            problems.origins[leaf] = override.origin


def leaves(value: Value, path: Path = ()) -> Iterator[Path]:
    """Yields the paths of the values in a tree; a list is one value, and an empty map has none."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif path:
        yield path


def values_in(tree: Tree) -> dict[str, Value]:
    """Returns the values of a tree by their dotted paths."""
    found: dict[str, Value] = {}
    for path in leaves(tree):
        value: Value = tree
        for key in path:
            value = value[key] if isinstance(value, dict) else None
        found[".".join(path)] = value
    return found


def from_text(text: str, path: Path, tree: Tree) -> Value:
    """Reads text according to its place: text stays unchanged, blocks and lists are YAML.

    Raises:
        ValueError: The text for a block or a list is not YAML.
    """
    slot = slot_at(RunOptions, tree, path)
    if slot is not None and slot.nullable and text.strip().lower() in _NULL_WORDS:
        return None
    if slot is not None and slot.kind == "leaf" and not (slot.may_be_list and text.lstrip().startswith("[")):
        return text
    return parse_value(text)


def _split_path(name: str) -> Path | None:
    parts: list[str] = []
    position = 0
    while position < len(name):
        match = _PATH_PART.match(name, position)
        if match is None:
            return None
        parts.append(match.group(1) if match.group(1) is not None else match.group(2))
        position = match.end()
    return tuple(parts) if parts and not name.endswith(".") else None


def _plain(value: object) -> Value:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    return str(value)


def _is_service_link(name: str, value: str) -> bool:
    """Returns whether Kubernetes set a variable, as it does in every pod next to a Service named rollcast-something."""
    return _SERVICE_LINK.search(name) is not None or (name.endswith("_PORT") and "://" in value)


def _unknown_variable(shown: str, name: str, known: Mapping[str, Path]) -> str:
    block = name.removeprefix(PREFIX).partition("__")[0]
    if block in {"BEHAVIORS", "DEFAULT_SETTINGS", "ENVIRONMENT_PARAMETERS"}:
        return f"{shown}: {block.lower()} cannot be set here; use --set {block.lower()}.KEY=VALUE or the run file"
    return f"{shown}: names no setting{did_you_mean(name, known)}"


_BLOCK = "checkpoint_settings"
_TRUE_WORDS = frozenset({"true", "yes", "on", "y", "t", "1", "auto"})


def settle_start(tree: Tree, problems: Problems) -> None:
    """Resolves ``resume`` against ``initialize_from``, and reads the old name ``load_model`` as ``resume``.

    The higher layer wins (the command line over the others); within one layer ``resume`` does.
    """
    block = tree.get(_BLOCK)
    if not isinstance(block, dict):
        return
    if _is_set(block.get("load_model")) and not _is_set(block.get("resume")):
        block["resume"] = True
        problems.origins[_BLOCK, "resume"] = problems.origins.get((_BLOCK, "load_model"), "yaml")
    if not _is_set(block.get("resume")) or block.get("initialize_from") is None:
        return
    resume_rank = _rank(problems.origins.get((_BLOCK, "resume"), "yaml"))
    initialize_rank = _rank(problems.origins.get((_BLOCK, "initialize_from"), "yaml"))
    loser, winner = ("resume", "initialize_from") if initialize_rank > resume_rank else ("initialize_from", "resume")
    path: Path = (_BLOCK, loser)
    problems.warn(path, f"is ignored, because {winner} is also given")
    block[loser] = False if loser == "resume" else None


def _is_set(value: Value) -> bool:
    return value is True or (isinstance(value, str) and value.lower() in _TRUE_WORDS)


def _rank(origin: str) -> int:
    """Returns the rank of a layer: file, secrets, environment, command line."""
    for rank, prefix in ((3, "--"), (2, "env "), (1, "secret ")):
        if origin.startswith(prefix):
            return rank
    return 0
