"""Reads settings from flags and variables; an error names the flag or variable at fault in one line."""

import difflib
import os
from collections.abc import Mapping
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsError

from actor_client.exits import ActorError, ExitCode
from actor_client.settings import PREFIX
from actor_client.settings.agents import PettingZooSettings
from actor_client.settings.boards import BoardsSettings, PlaySettings
from actor_client.settings.clients import ClientsSettings
from actor_client.settings.commands import GymSettings, UnitySettings
from actor_client.settings.conform import ConformSettings
from actor_client.settings.dm_env_rpc import DmEnvRpcSettings
from actor_client.settings.godot import GodotSettings

_ENV = f"give --env {{}} or --env module:callable, or set {PREFIX}ENV"
_GAME = f"give --game shogi or another game of OpenSpiel, or set {PREFIX}GAME"
_EXAMPLES: Mapping[type[BaseSettings], str] = {
    GymSettings: _ENV.format("CartPole-v1"),
    PettingZooSettings: _ENV.format("simple_spread_v3"),
    BoardsSettings: _GAME,
    PlaySettings: _GAME,
}
"""What to give in place of the missing name of an environment, by command."""

_OF_COMPOSE = frozenset({PREFIX + "IMAGE", PREFIX + "MEMORY"})
"""Variables that docker-compose.yml reads, and not the actor."""

_OLD_NAMES = {
    "LISTEN": "player_address",
    "MAX_SECONDS": "max_wall_seconds",
    "NUM_GAMES": "num_envs",
    "WIDTH": "search_width",
}
"""Older names of variables, which may still be set, and the settings that they set."""

_ARGUMENTS: Mapping[str, str] = {"model": "MODEL.onnx", "server": "HOST:PORT"}
"""What the help calls the settings that are no flags."""

_COMMANDS = (
    BoardsSettings,
    ClientsSettings,
    ConformSettings,
    DmEnvRpcSettings,
    GodotSettings,
    GymSettings,
    PettingZooSettings,
    PlaySettings,
    UnitySettings,
)

Settings = TypeVar("Settings", bound=BaseSettings)


def load(kind: type[Settings], flags: Mapping[str, object], environ: Mapping[str, str] | None = None) -> Settings:
    """Returns the settings that flags and variables resolve to.

    Args:
        kind: The class of the command's settings.
        flags: The values of the command line, by field.
        environ: The process's variables; names that no command reads are refused.

    Raises:
        ActorError: A value is wrong (USAGE); the message names the flag or variable.
    """
    environ = os.environ if environ is None else environ
    _refuse_strangers(kind, environ)
    flags = {**_from_old_names(kind, environ), **flags}
    try:
        return kind(**dict(flags))  # type: ignore[arg-type]
    except ValidationError as error:
        raise ActorError(
            ExitCode.USAGE, "; ".join(_explain(problem, flags, kind) for problem in error.errors())
        ) from None
    except SettingsError as error:  # a variable that must hold JSON and does not
        raise ActorError(ExitCode.USAGE, f"a {PREFIX} variable cannot be read: {error}") from None


def _from_old_names(kind: type[BaseSettings], environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings of a command that variables with older names set."""
    return {
        name: value
        for old, name in _OLD_NAMES.items()
        if name in kind.model_fields and (value := environ.get(PREFIX + old)) and not environ.get(PREFIX + name.upper())
    }


def _refuse_strangers(kind: type[BaseSettings], environ: Mapping[str, str]) -> None:
    """Refuses unknown variables with the prefix of settings, because a typing error would be ignored silently.

    Variables of other commands are allowed, because several commands may share an environment.

    Raises:
        ActorError: A variable is unknown (USAGE).
    """
    mine = {PREFIX + name.upper() for name in kind.model_fields}
    known = (
        mine
        | _OF_COMPOSE
        | {PREFIX + old for old in _OLD_NAMES}
        | {PREFIX + name.upper() for other in _COMMANDS for name in other.model_fields}
    )
    for variable in sorted(environ):
        if variable.upper().startswith(PREFIX) and variable.upper() not in known:
            near = difflib.get_close_matches(variable.upper(), mine, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the settings are {', '.join(sorted(mine))}"
            raise ActorError(ExitCode.USAGE, f"{variable} is not a setting of the actor; {hint}")


def _explain(problem: ErrorDetails, flags: Mapping[str, object], kind: type[BaseSettings]) -> str:
    """Returns a problem as text with its flag or variable."""
    message = problem["msg"].removeprefix("Value error, ")
    if not problem["loc"]:
        return message
    name = str(problem["loc"][0])
    flag = _ARGUMENTS.get(name) or "--" + name.replace("_", "-")
    if problem["type"] == "missing":
        example = _EXAMPLES.get(kind) if name in {"env", "game"} else None
        return f"{flag} is missing" if example is None else f"{flag} is missing: {example}"
    source = flag if name in flags else PREFIX + name.upper()
    return f"{source} {problem['input']!r}: {message[:1].lower()}{message[1:]}"
