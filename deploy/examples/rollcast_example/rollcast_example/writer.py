"""A statistics writer: one JSON line per summary, in the run folder."""

from __future__ import annotations

import json
from collections.abc import Mapping

from learner.shared.observe.stats import StatSummary
from learner.training.run.writers import WriterContext


class Lines:
    """Writes ``lines.jsonl``.

    Args:
        context: The run.
    """

    def __init__(self, context: WriterContext) -> None:
        self._file = (context.run_folder / "lines.jsonl").open("a", encoding="utf-8")

    def write(self, category: str, summaries: Mapping[str, StatSummary], step: int) -> None:
        """Writes the means of the statistics."""
        means = {name: summary.mean for name, summary in summaries.items()}
        self._file.write(json.dumps({"behavior": category, "step": step, **means}) + "\n")
        self._file.flush()

    def write_text(self, category: str, title: str, text: str, step: int) -> None:
        """Ignores texts."""

    def restart(self, category: str, step: int) -> None:
        """Keeps the lines of earlier starts."""

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
