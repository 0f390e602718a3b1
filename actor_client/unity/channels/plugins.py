"""Side channels of users: raw bytes to and from players."""

import importlib
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable
from uuid import UUID

from actor_client.exits import ActorError, ExitCode
from actor_client.unity.channels.records import ENGINE_CHANNEL, PARAMETERS_CHANNEL, STATS_CHANNEL

ENTRY_POINT_GROUP: Final = "rollcast.side_channels"
_MLAGENTS: Final = "mlagents_envs"
PAGE: Final = "actor_client/unity/README.md#your-own-side-channel"
RESERVED_CHANNELS: Final = frozenset({ENGINE_CHANNEL, PARAMETERS_CHANNEL, STATS_CHANNEL})

Send = Callable[[bytes], None]
"""Queues a payload for one player, which gets it with its next answer. Any thread may call it."""


@runtime_checkable
class ChannelPlugin(Protocol):
    """A user's side channel; one object serves all players of an actor.

    Both methods are called in the stepping thread, and every player waits for them. Their exceptions are logged and
    never end the run.

    Attributes:
        channel_id: The UUID that the C# side registers its channel with.
    """

    channel_id: UUID

    def on_player(self, worker: int, send: Send) -> None:
        """Handles the start or restart of a player; data sent in this call reaches it before its first scene."""

    def on_message(self, worker: int, data: bytes) -> None:
        """Handles a payload that a player sent."""


def load_plugins(names: Iterable[str] = ()) -> tuple[ChannelPlugin, ...]:
    """Creates the plug-ins that installed packages declare, and the named ones.

    Args:
        names: `module:callable`, as in `--side-channel`; the working directory is searched too. The callable takes no
            arguments and returns a plug-in.

    Raises:
        ActorError: A plug-in cannot be imported or created, is not a plug-in, or uses a channel that is taken.
    """
    points = [*entry_points(group=ENTRY_POINT_GROUP), *(_point(name) for name in names)]
    plugins = tuple(_made(point) for point in points)
    _check_channels(plugins, points)
    return plugins


def _point(name: str) -> EntryPoint:
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    return EntryPoint(name, name, ENTRY_POINT_GROUP)


def _made(point: EntryPoint) -> ChannelPlugin:
    module, _, attribute = point.value.partition(":")
    try:
        found: Any = importlib.import_module(module.strip())
        for part in attribute.strip().split("."):
            found = getattr(found, part)
        is_of_mlagents = _is_of_mlagents(found)
        plugin: Any = None if is_of_mlagents else found()
    except BaseException as error:  # a user's module may raise anything, SystemExit included
        if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == _MLAGENTS:
            raise _of_mlagents(point) from error
        reason = " ".join(str(error).split())
        raise ActorError(
            ExitCode.USAGE, f"side channel {point.value} cannot be created: {type(error).__name__}: {reason}"
        ) from error
    if is_of_mlagents or _is_of_mlagents(plugin):
        raise _of_mlagents(point)
    missing = [name for name in ("channel_id", "on_player", "on_message") if not hasattr(plugin, name)]
    if missing:
        raise ActorError(
            ExitCode.USAGE,
            f"side channel {point.value} returned {type(plugin).__name__}, which has no {', '.join(missing)}",
        )
    if not isinstance(plugin.channel_id, UUID):
        kind = type(plugin.channel_id).__name__
        raise ActorError(
            ExitCode.USAGE, f"side channel {point.value}: channel_id has the type {kind}; it must be a uuid.UUID"
        )
    made: ChannelPlugin = plugin
    return made


def _is_of_mlagents(found: object) -> bool:
    """Returns whether a class or an object is of ML-Agents' class, or has its members; ML-Agents is not imported."""
    kind = found if isinstance(found, type) else type(found)
    of_package = any(each.__module__.partition(".")[0] == _MLAGENTS for each in kind.__mro__)
    return of_package or all(hasattr(kind, name) for name in ("on_message_received", "queue_message_to_send"))


def _of_mlagents(point: EntryPoint) -> ActorError:
    return ActorError(
        ExitCode.USAGE,
        f"side channel {point.value} is written for ML-Agents' SideChannel, which gets IncomingMessage and queues "
        "OutgoingMessage; here it is a class with channel_id, on_player and on_message, whose payloads are bytes: see "
        f"{PAGE}",
    )


def _check_channels(plugins: Sequence[ChannelPlugin], points: Sequence[EntryPoint]) -> None:
    taken: dict[UUID, str] = dict.fromkeys(RESERVED_CHANNELS, "Rollcast itself")
    for plugin, point in zip(plugins, points, strict=True):
        owner = taken.get(plugin.channel_id)
        if owner is not None:
            raise ActorError(
                ExitCode.USAGE, f"side channel {point.value}: channel {plugin.channel_id} belongs to {owner}"
            )
        taken[plugin.channel_id] = f"side channel {point.value}"
