"""Reads the histories that the processes of a run wrote (`rollcast.history`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

Name: TypeAlias = tuple[str, int, int]
"""Session, sequence and generation of a chunk."""


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """One event."""

    file: str
    number: int
    fields: dict[str, Any]

    @property
    def event(self) -> str:
        """Returns the name of the event."""
        return str(self.fields["event"])

    def __getitem__(self, key: str) -> Any:
        return self.fields[key]

    def __str__(self) -> str:
        return f"{self.file}:{self.number} {json.dumps(self.fields)[:400]}"

    @property
    def chunk(self) -> Name:
        """Returns the name of its chunk."""
        return name_of(self["chunk"])


@dataclass(frozen=True, slots=True)
class Histories:
    """The files of a run.

    Attributes:
        actors: Lines of each actor's process.
        learners: Lines of each start of the learner, in the order of generations.
    """

    actors: tuple[tuple[Line, ...], ...]
    learners: tuple[tuple[Line, ...], ...]


def read(folder: Path) -> Histories:
    """Reads all files of a folder."""
    actors = [_lines(path) for path in sorted(folder.glob("actor-*.jsonl"))]
    learners = sorted(folder.glob("learner-*.jsonl"), key=lambda path: int(path.name.split("-")[1]))
    return Histories(tuple(actors), tuple(_as_sent(_lines(path)) for path in learners))


def name_of(fields: Any) -> Name:
    """Returns the name of a chunk from its JSON."""
    session, sequence, generation = fields
    return str(session), int(sequence), int(generation)


def _as_sent(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """Returns a learner's lines with each chunk under the name that its actor sent.

    With replay memory, a learner that restarted takes chunks of earlier generations, and calls them chunks of its own.
    """
    sent: dict[tuple[str, int], int] = {}

    def renamed(fields: Any) -> list[Any]:
        session, sequence, generation = name_of(fields)
        return [session, sequence, sent.get((session, sequence), generation)]

    found = []
    for line in lines:
        fields = dict(line.fields)
        if line.event == "received":
            session, sequence, generation = line.chunk
            sent[session, sequence] = generation
        elif "chunk" in fields:
            fields["chunk"] = renamed(fields["chunk"])
        elif "chunks" in fields:
            fields["chunks"] = [[renamed(name), segments] for name, segments in fields["chunks"]]
        found.append(Line(line.file, line.number, fields))
    return tuple(found)


def _lines(path: Path) -> tuple[Line, ...]:
    """Reads a file; the last line of a process that was killed may be cut off."""
    with path.open(encoding="utf-8") as file:
        texts = [text for text in file if text.endswith("\n")]
    return tuple(Line(path.name, number, json.loads(text)) for number, text in enumerate(texts, 1))
