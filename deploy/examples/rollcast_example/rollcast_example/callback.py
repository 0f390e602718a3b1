"""A callback that writes one line about a run into its folder."""

from __future__ import annotations

from learner.training.callbacks.base import Callback, PolicyUpdated, RunEnded


class Told(Callback):
    """Writes ``told.txt`` with the number of updates of each behavior and the reason of the end."""

    def __init__(self) -> None:
        self._versions: dict[str, int] = {}

    def on_update(self, event: PolicyUpdated) -> None:
        """Counts the updates."""
        self._versions[event.behavior] = event.version

    def on_end(self, event: RunEnded) -> None:
        """Writes the line."""
        updates = ", ".join(f"{name} {version}" for name, version in sorted(self._versions.items()))
        (event.folder / "told.txt").write_text(f"{event.reason}: {updates}\n", encoding="utf-8")
