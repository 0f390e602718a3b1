"""From flags and variables to settings, or to one line that names the flag or variable at fault."""

import difflib
import os
from collections.abc import Mapping
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import SettingsError

from actor_client.exits import ActorError, ExitCode
from actor_client.settings import PREFIX
from actor_client.settings.commands import CommonSettings, GymSettings, UnitySettings

Settings = TypeVar("Settings", bound=CommonSettings)


def load(kind: type[Settings], flags: Mapping[str, object], environ: Mapping[str, str] | None = None) -> Settings:
    """Returns the settings that flags and variables resolve to.

    Args:
        kind: Of which command.
        flags: What the command line gave, by field.
        environ: The process's variables; searched for names that no command reads.

    Raises:
        ActorError: Something is wrong (USAGE); the message names the flag or variable.
    """
    _refuse_strangers(kind, os.environ if environ is None else environ)
    try:
        return kind(**dict(flags))  # type: ignore[arg-type]
    except ValidationError as error:
        raise ActorError(ExitCode.USAGE, "; ".join(_explain(problem, flags) for problem in error.errors())) from None
    except SettingsError as error:  # a variable that shall hold JSON and does not
        raise ActorError(ExitCode.USAGE, f"a {PREFIX} variable cannot be read: {error}") from None


def _refuse_strangers(kind: type[CommonSettings], environ: Mapping[str, str]) -> None:
    """Refuses variables that look like settings and are none: a typing error would be ignored in silence.

    A variable of another command is none of this one's: both may run from one environment.

    Raises:
        ActorError: There is one (USAGE).
    """
    mine = {PREFIX + name.upper() for name in kind.model_fields}
    known = mine | {PREFIX + name.upper() for other in (GymSettings, UnitySettings) for name in other.model_fields}
    for variable in sorted(environ):
        if variable.upper().startswith(PREFIX) and variable.upper() not in known:
            near = difflib.get_close_matches(variable.upper(), mine, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(mine))}"
            raise ActorError(ExitCode.USAGE, f"{variable} is no setting of the actor; {hint}")


def _explain(problem: ErrorDetails, flags: Mapping[str, object]) -> str:
    """Returns one problem with the flag or variable that it came from."""
    message = problem["msg"].removeprefix("Value error, ")
    if not problem["loc"]:
        return message
    name = str(problem["loc"][0])
    flag = "--" + name.replace("_", "-")
    if problem["type"] == "missing":
        return f"{flag} is missing"
    source = flag if name in flags else PREFIX + name.upper()
    return f"{source} {problem['input']!r}: {message[:1].lower()}{message[1:]}"
