"""Keeps the snapshots of a behavior's policy that opponents play."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from learner.shared.policies import PolicyKey
from learner.shared.saved_values import count, text

CURRENT: Final = -1
"""Slot of the newest policy, as in an ELO array: its last entry."""
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A published policy that opponents play.

    Attributes:
        key: Its generation, version and digest.
        step: Trained steps of its behavior when it was saved.
        number: Number of snapshots saved before it.
    """

    key: PolicyKey
    step: int
    number: int


class Pool:
    """The newest `window` snapshots of one behavior; each new one replaces the oldest.

    Args:
        window: Most snapshots.

    Attributes:
        saved: Number of snapshots saved so far.
    """

    def __init__(self, window: int) -> None:
        self.saved = 0
        self._window = window
        self._snapshots: dict[int, Snapshot] = {}  # by number, ascending

    def __len__(self) -> int:
        return len(self._snapshots)

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """All snapshots, oldest first."""
        return tuple(self._snapshots.values())

    def slot(self, number: int) -> int:
        """Returns the entry of a snapshot in the ELO array; a later snapshot has the same entry."""
        return number % self._window

    def save(self, key: PolicyKey, step: int) -> Snapshot:
        """Adds a snapshot and returns it.

        Args:
            key: Generation, version and digest of the policy.
            step: Trained steps of the behavior.
        """
        added = Snapshot(key, step, self.saved)
        self._snapshots.pop(self.saved - self._window, None)
        self._snapshots[self.saved] = added
        self.saved += 1
        return added

    def discard_others(self, keys: Collection[PolicyKey]) -> list[Snapshot]:
        """Removes and returns the snapshots whose policies are not among these."""
        lost = [each for each in self._snapshots.values() if each.key not in keys]
        for each in lost:
            del self._snapshots[each.number]
        return lost

    def state_dict(self) -> dict[str, Any]:
        """Returns the snapshots as plain values."""
        return {
            "saved": self.saved,
            "snapshots": [
                {
                    "generation": each.key.generation,
                    "version": each.key.version,
                    "sha256": each.key.sha256.hex(),
                    "step": each.step,
                    "number": each.number,
                }
                for each in self._snapshots.values()
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state_dict`; a smaller window keeps the newest snapshots.

        Raises:
            KeyError, TypeError, ValueError: The state is not one that was saved here.
        """
        saved = count(state, "saved")
        found = [Snapshot(_key(each), count(each, "step"), count(each, "number")) for each in state["snapshots"]]
        numbers = [each.number for each in found]
        if numbers != sorted(set(numbers)) or any(number >= saved for number in numbers):
            raise ValueError(f"the numbers of {len(found)} snapshots do not ascend below {saved}")
        self.saved = saved
        self._snapshots = {each.number: each for each in found if each.number >= saved - self._window}


def _key(state: Mapping[str, Any]) -> PolicyKey:
    digest = text(state, "sha256")
    if _DIGEST.fullmatch(digest) is None:
        raise ValueError("the SHA-256 of a snapshot is not one of 64 hexadecimal digits")
    return PolicyKey(count(state, "generation"), count(state, "version"), bytes.fromhex(digest))
