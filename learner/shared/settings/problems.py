"""Collects the problems of a run's settings, and reports them with a remedy.

Each problem is reported with the source of the value: the line of the file, the environment variable, the flag.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from learner.shared.exits import ExitCode, UserError
from learner.shared.settings.base import Path

_MAX_SHOWN_CHARACTERS = 60

_MESSAGES: Mapping[str, str] = {
    "missing": "is required but missing",
    "model_type": "must be a map of settings",
    "dict_type": "must be a map of settings",
    "tuple_type": "must be a list",
    "string_type": "must be text",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
}
"""Messages for pydantic's error types whose own messages refer to Python."""

_FOLLOWS_FROM_ANOTHER = "default_factory_not_called"
"""Pydantic's error for a default that depends on an invalid value, which is already reported."""

_WITHOUT_VALUE = frozenset({"missing", "invalid_as_told"})


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Returns the known name most similar to a wrong one, or None if none is similar."""
    names = {key.lower(): key for key in known}
    matches = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.6)
    return names[matches[0]] if matches else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns ``; did you mean 'x'?`` as the end of a message, or an empty text."""
    match = nearest(name, known)
    return f"; did you mean {match!r}?" if match is not None else ""


@dataclass(slots=True)
class Problems:
    """Errors and warnings about one run, with the source of each value.

    Attributes:
        file: Name of the run file, for messages.
        lines: Line of each value in the file.
        origins: Source of each written value: "yaml", "env ROLLCAST_X", "secret x", "--flag".
        beside_file: Paths of values that are not from the run file, and of the blocks around them.
    """

    file: str
    lines: Mapping[Path, int] = field(default_factory=dict)
    origins: dict[Path, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    beside_file: frozenset[Path] = frozenset()

    def place(self, path: Path) -> str:
        """Returns where the value at a path, or the nearest block above it, was written."""
        dotted = ".".join(path)
        below = {origin for written, origin in self.origins.items() if written[: len(path)] == path}
        if len(below) == 1 and "yaml" not in below:
            return f"{below.pop()}: {dotted}"
        for length in range(len(path), 0, -1):
            origin = self.origins.get(path[:length])
            if origin is not None and origin != "yaml":
                return f"{origin}: {dotted}"
            if path[:length] in self.lines:
                return f"{self.file}:{self.lines[path[:length]]}: {dotted}"
        return f"{self.file}: {dotted}" if dotted else self.file

    def error(self, path: Path, message: str) -> None:
        """Records an error at a path."""
        self.errors.append(f"{self.place(path)}: {message}")

    def warn(self, path: Path, message: str) -> None:
        """Records a warning at a path."""
        self.warnings.append(f"{self.place(path)}: {message}")

    def add_validation(self, error: ValidationError, prefix: Path = ()) -> None:
        """Records each error of a pydantic validation of the block at ``prefix``, except those caused by another one."""
        for details in error.errors(include_url=False):
            if details["type"] == _FOLLOWS_FROM_ANOTHER:
                continue
            path = (*prefix, *(str(part) for part in details["loc"]))
            self.error(self._as_written(path), self._message(details, path))

    def raise_errors(self) -> None:
        """Raises the recorded errors.

        Raises:
            UserError: There are errors; its details list each.
        """
        if not self.errors:
            return
        more = f" (and {len(self.errors) - 1} more)" if len(self.errors) > 1 else ""
        raise UserError(ExitCode.RUN_FILE, self.errors[0] + more, self.errors if more else ())

    def _as_written(self, path: Path) -> Path:
        """Returns the path of an environment parameter as the file has it, without the parts of its full notation."""
        if path[:1] == ("environment_parameters",):
            full = (*path[:2], "curriculum")
            if path[2:5] == ("curriculum", "0", "value") and full not in self.lines and full not in self.origins:
                path = (*path[:2], *path[5:])
            if path[-2:] == ("sampler_parameters", "value") and path[:-1] not in self.lines:
                path = path[:-2]
        return path

    def _message(self, details: ErrorDetails, path: Path) -> str:
        kind = details["type"]
        if kind == "extra_forbidden":
            return f"unknown key {path[-1]!r}"
        text = _MESSAGES.get(kind)
        if text is None:
            text = details["msg"].replace("Input should be", "must be")
        if kind in _WITHOUT_VALUE or self.origins.get(path, "").startswith("secret "):
            return text
        shown = repr(details["input"])
        if len(shown) > _MAX_SHOWN_CHARACTERS:
            shown = shown[:_MAX_SHOWN_CHARACTERS] + "..."
        return f"{text}, got {shown}"
