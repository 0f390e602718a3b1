"""Refuses groups of agents with several behaviors, which no trainer of groups can train."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rollcast.errors import Untrainable
from rollcast.trajectories import Chunk

from learner.service.ingest.behaviors import Behavior
from learner.service.ingest.session import Account, ActorSession

MAX_GROUPS: Final = 4096
"""Most groups that are remembered of a session and behavior, the newest."""


def note_groups(
    session: ActorSession, account: Account, chunk: Chunk, behavior_of: Callable[[int], Behavior | None]
) -> None:
    """Notes the groups in a chunk, and refuses one that also has agents of a behavior that is trained by groups.

    Args:
        session: The session.
        account: Its account with the chunk's behavior.
        chunk: The chunk, whose form is valid.
        behavior_of: Returns a behavior by its index.

    Raises:
        Untrainable: A group has agents of two behaviors, one of which is trained by groups.
    """
    groups = chunk.columns.get("group")
    if groups is None:
        return
    present = dict.fromkeys(groups[groups != 0].tolist())
    for other in session.accounts.values():
        shared = present.keys() & other.groups.keys() if other is not account else set()
        trained = [
            name
            for name, index in ((account.behavior, account.index), (other.behavior, other.index))
            if (found := behavior_of(index)) is not None and found.settings.traits.grouped
        ]
        if shared and trained:
            group = min(shared)
            first, second = sorted((account.behavior, other.behavior))
            raise Untrainable(
                f"group {group & 0xFFFFFFFF} of environment {group >> 32} has agents of {first} and of {second}, but "
                f"{trained[0]} is trained with a critic of whole groups, which must have one behavior: give all agents of "
                "a group the same behavior, or use another trainer_type",
                metadata={"behavior": account.behavior, "other": other.behavior, "group": str(group)},
            )
    for group in present:
        account.groups.pop(group, None)
        account.groups[group] = None
    for group in list(account.groups)[: max(0, len(account.groups) - MAX_GROUPS)]:
        del account.groups[group]
