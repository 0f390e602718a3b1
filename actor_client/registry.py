"""Finds the commands of `rollcast act` that installed packages declare as entry points; no package is imported to list them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, distributions
from typing import Final, NamedTuple

from rollcast.text import in_one_line, printable

from actor_client.command_line import Command
from actor_client.exits import ActorError, ExitCode

GROUP: Final = "rollcast.actors"
_OWN: Final = "rollcast"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_ORDER: Final = ("gym", "unity", "pettingzoo", "godot", "boards", "clients")
"""Names that come first, in this order; the others follow the alphabet."""


class Entry(NamedTuple):
    """The entry points of one name.

    Attributes:
        name: The name of the command.
        points: Its entry points, one of each package.
    """

    name: str
    points: tuple[EntryPoint, ...]

    @property
    def is_own(self) -> bool:
        """True if only Rollcast declares it."""
        return [_package(point) for point in self.points] == [_OWN]

    @property
    def help(self) -> str:
        """The line of a command of another package, which is not imported for it."""
        return f"of the package {' and the package '.join(map(_with_version, self.points))}"

    def load(self) -> Command:
        """Imports the command.

        Raises:
            ActorError: Several packages declare this name (USAGE), or it cannot be imported (UNKNOWN_ENVIRONMENT).
        """
        if len(self.points) > 1:
            packages = " and ".join(map(_with_version, self.points))
            raise ActorError(
                ExitCode.USAGE,
                f"several packages declare the command {self.name} (entry points {GROUP}): {packages}; uninstall all but one",
            )
        with self.guarded():
            found: object = self.points[0].load()
            if not isinstance(found, Command):
                raise TypeError(f"it is {type(found).__name__}, and not actor_client.command_line.Command")
        return found

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Turns what the code of another package raises into one line; Rollcast's own errors pass.

        Raises:
            ActorError: The package's code failed (UNKNOWN_ENVIRONMENT).
        """
        try:
            yield
        except BaseException as error:  # SystemExit included: a signal raises nothing here
            if self.is_own:
                raise
            raise ActorError(
                ExitCode.UNKNOWN_ENVIRONMENT,
                f"the command {self.name} {self.help} ({self.points[0].value}) cannot be used: {in_one_line(error)}",
            ) from error


def entries() -> list[Entry]:
    """Returns the commands that packages declare.

    Raises:
        ActorError: Rollcast's own are missing: its installation is older than its code.
    """
    found: dict[str, dict[str, EntryPoint]] = {}
    seen: set[str] = set()
    for distribution in distributions():
        try:
            text = distribution.read_text("entry_points.txt")
            if text is None or GROUP not in text:
                continue
            points = [point for point in distribution.entry_points if point.group == GROUP]
            package = _normalized(distribution.metadata["Name"])
        except Exception:  # noqa: BLE001, S112 - a damaged installation of another package stops no command
            continue
        if package in seen:  # installed twice; Python imports the first
            continue
        seen.add(package)
        for point in points:
            if _NAME.fullmatch(point.name):
                found.setdefault(point.name, {})[package] = point
    if _OWN not in seen:
        raise ActorError(
            ExitCode.USAGE,
            f"the installation of Rollcast lists no actors (entry points {GROUP}), because it is older than its code; "
            "install it again",
        )
    rank = {name: place for place, name in enumerate(_ORDER)}
    names = sorted(found, key=lambda name: (rank.get(name, len(rank)), name))
    return [Entry(name, tuple(found[name].values())) for name in names]


def _normalized(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


def _package(point: EntryPoint) -> str:
    return "" if point.dist is None else _normalized(point.dist.name)


def _with_version(point: EntryPoint) -> str:
    return "" if point.dist is None else printable(f"{point.dist.name} {point.dist.version}")
