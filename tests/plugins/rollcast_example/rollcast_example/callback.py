"""A callback: what a run came to, in one line beside its results."""

from __future__ import annotations

from learner.callbacks.base import Callback, PolicyUpdated, RunEnded


class Told(Callback):
    """Writes ``told.txt``: how many updates each behavior had, and why the run ended."""

    def __init__(self) -> None:
        self._versions: dict[str, int] = {}

    def on_update(self, event: PolicyUpdated) -> None:
        """Counts."""
        self._versions[event.behavior] = event.version

    def on_end(self, event: RunEnded) -> None:
        """Writes the line."""
        updates = ", ".join(f"{name} {version}" for name, version in sorted(self._versions.items()))
        (event.folder / "told.txt").write_text(f"{event.reason}: {updates}\n", encoding="utf-8")
