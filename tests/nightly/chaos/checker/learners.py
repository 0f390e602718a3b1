"""Replays the history of each start of the learner on a model of its ledger."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from tests.nightly.chaos.checker.actors import Made
from tests.nightly.chaos.checker.reading import Line, Name, name_of
from tests.nightly.chaos.checker.violations import Invariant, Violation

Segment: TypeAlias = tuple[Name, int]


@dataclass(slots=True)
class Books:
    """The model's books of one behavior.

    Attributes:
        received, trained, dropped, lost, queued: As in the ledger.
        rolled_back: Lost steps that came after the run state which a start continued from.
    """

    received: int = 0
    trained: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    queued: int = 0
    rolled_back: int = 0

    def copy(self) -> Books:
        """Returns a copy."""
        return replace(self, dropped=Counter(self.dropped), lost=Counter(self.lost))

    def plain(self) -> dict[str, Any]:
        """Returns the books in the form of the ledger's state."""
        counts = {"received": self.received, "trained": self.trained, "queued": self.queued}
        return {**counts, "dropped": dict(+self.dropped), "lost": dict(+self.lost)}


@dataclass(slots=True)
class Cut:
    """The books of a run state."""

    start: Start
    at: int
    books: dict[str, Books]


class Start:
    """One start of the learner: its lines, and what they did.

    Args:
        lines: The lines.
        base: The run state that it continues from; None if it began from nothing.

    Attributes:
        queued: Line of each chunk that was queued, with its index.
        dropped: Line of each chunk that was dropped on arrival, with its index.
        fates: Line with which a segment was trained or dropped, with its index.
    """

    def __init__(self, lines: tuple[Line, ...], base: Cut | None) -> None:
        self.lines = lines
        self.base = base
        self.queued: dict[Name, tuple[int, Line]] = {}
        self.dropped: dict[Name, tuple[int, Line]] = {}
        self.fates: dict[Segment, tuple[int, Line]] = {}
        self.begun: dict[Segment, Line] = {}

    @property
    def generation(self) -> int:
        """Returns its number, which is in the name of its file."""
        return int(self.lines[0].file.split("-")[1]) if self.lines else 0

    def lineage(self) -> Iterator[tuple[Start, int]]:
        """Yields this start and those that it continues, each with the index at which the next one continues."""
        yield self, len(self.lines)
        base = self.base
        while base is not None:
            yield base.start, base.at
            base = base.start.base

    def fate(self, segment: Segment) -> Line | None:
        """Returns the line with which a segment was settled in this lineage; None if it was not."""
        return next((found[1] for start, end in self.lineage() if (found := _before(start.fates, segment, end))), None)

    def receipt(self, name: Name) -> Line | None:
        """Returns the line with which a chunk was queued or dropped in this lineage; None if it was not."""
        for start, end in self.lineage():
            found = _before(start.queued, name, end) or _before(start.dropped, name, end)
            if found is not None:
                return found[1]
        return None


def _before(lines: Mapping[Any, tuple[int, Line]], key: object, end: int) -> tuple[int, Line] | None:
    found = lines.get(key)
    return found if found is not None and found[0] < end else None


class LearnerChecker:
    """Replays the starts of the learner, in order.

    Args:
        made: What the actors made.
        max_lags: Most versions between acting and training, by behavior; behaviors without one have no limit.
    """

    def __init__(self, made: Made, max_lags: Mapping[str, int]) -> None:
        self._made = made
        self._max_lags = max_lags
        self.violations: list[Violation] = []
        self.newest: Start | None = None
        self.books: dict[str, Books] = {}
        self.starts: list[Start] = []
        self._cuts: dict[str, Cut] = {}
        self._written: set[str] = set()
        self._trained_digests: dict[str, dict[Name, Line]] = defaultdict(dict)

    def check(self, lines: tuple[Line, ...]) -> None:
        """Replays one start."""
        start = Start(lines, self._base(lines))
        self.starts.append(start)
        self.newest = start
        base = start.base
        self.books = defaultdict(Books, {} if base is None else {name: b.copy() for name, b in base.books.items()})
        self._start = start
        self._settled: dict[str, int] = {}
        self._fences: dict[str, Line] = {}
        self._taken: dict[Name, Line] = {}
        for index, line in enumerate(lines):
            self._take(index, line)

    def _base(self, lines: tuple[Line, ...]) -> Cut | None:
        resumed = next((line for line in lines if line.event == "resumed"), None)
        if resumed is None:
            return None
        cut = self._cuts.get(resumed["digest"])
        if cut is None or resumed["digest"] not in self._written:
            self._report(
                Invariant.BOOKS_ARE_SUMS, "the run state that the learner resumes from was never written", resumed
            )
        return cut

    def _report(self, invariant: Invariant, what: str, *lines: Line | None) -> None:
        self.violations.append(Violation(invariant, what, tuple(line for line in lines if line is not None)))

    def _take(self, index: int, line: Line) -> None:
        match line.event:
            case "opened":
                self._settled[line["session"]] = 0
            case "fenced":
                self._fences[line["session"]] = line
                self._settled[line["session"]] = line["settled"]
            case "received":
                self._check_epoch(line, line.chunk[0])
            case "queued":
                self._queue(index, line)
            case "dropped" if "chunk" in line.fields:
                self._settle(line)
                self._start.dropped[line.chunk] = index, line
                self.books[line["behavior"]].received += line["steps"]
                self.books[line["behavior"]].dropped[line["reason"]] += line["steps"]
            case "ack_out":
                self._check_ack(line)
            case "lost":
                self._lose(line)
            case "cut":
                self._cut(index, line)
            case _:
                self._take_of_trainers(index, line)

    def _take_of_trainers(self, index: int, line: Line) -> None:
        match line.event:
            case "taken":
                self._check_taken(line)
            case "update_begin":
                self._check_lag(line)
            case "update_end" | "remembered" | "dropped":
                self._end(index, line)
            case "run_state":
                self._written.add(line["digest"])

    def _check_epoch(self, line: Line, session: str) -> None:
        fence = self._fences.get(session)
        if fence is not None and line["epoch"] < fence["epoch"]:
            what = f"{line.event} of epoch {line['epoch']} after the fence of epoch {fence['epoch']}"
            self._report(Invariant.FENCED, what, fence, line)

    def _settle(self, line: Line) -> None:
        """Checks that chunks of a session are settled once and in order."""
        session, sequence, _ = line.chunk
        settled = self._settled.get(session, 0)
        if sequence != settled + 1:
            earlier = self._start.receipt(line.chunk)
            what = f"chunk {sequence} of session {session} is {line.event} after chunk {settled}"
            self._report(Invariant.TRAINED_ONCE if earlier else Invariant.ACKED_HAS_A_FATE, what, earlier, line)
        self._settled[session] = max(settled, sequence)

    def _queue(self, index: int, line: Line) -> None:
        self._settle(line)
        self._start.queued[line.chunk] = index, line
        self._check_made(line)
        self.books[line["behavior"]].received += line["steps"]
        self.books[line["behavior"]].queued += line["steps"]

    def _check_made(self, line: Line) -> None:
        """Checks that an actor made and sent a chunk with this content."""
        rows, sent = self._made.rows.get(line["digest"]), self._made.sent.get(line.chunk)
        if rows is None or sent is None or sent["digest"] != line["digest"]:
            what = f"chunk {line.chunk} with digest {line['digest']} is {line.event}, and no actor made and sent it"
            self._report(Invariant.MADE_BY_AN_ACTOR, what, sent, line)

    def _check_ack(self, line: Line) -> None:
        session = line["session"]
        self._check_epoch(line, session)
        settled = self._settled.get(session, 0)
        if line["through"] > settled:
            what = f"chunks through {line['through']} of session {session} are acked, and only {settled} are settled"
            self._report(Invariant.ACKED_HAS_A_FATE, what, line)

    def _check_taken(self, line: Line) -> None:
        queued = self._start.queued.get(line.chunk)
        self._taken[line.chunk] = line
        if queued is None:
            self._report(Invariant.ACKED_HAS_A_FATE, f"chunk {line.chunk} is taken, and was not queued", line)
        elif queued[1]["digest"] != line["digest"]:
            self._report(Invariant.MADE_BY_AN_ACTOR, "the trainer takes other columns than arrived", queued[1], line)
        self._check_made(line)

    def _check_lag(self, line: Line) -> None:
        limit = self._max_lags.get(line["behavior"])
        for name, segments in _chunks(line):
            taken = self._taken.get(name)
            rows = None if taken is None else self._made.rows.get(taken["digest"])
            for segment in segments:
                self._start.begun[name, segment] = line
                if limit is not None and rows and line["version"] - rows[0]["versions"][segment] > limit:
                    what = f"version {line['version']} trains rows of version {rows[0]['versions'][segment]}, limit {limit}"
                    self._report(Invariant.LAG_IS_LIMITED, what, rows[0], line)

    def _end(self, index: int, line: Line) -> None:
        books, has_trained = self.books[line["behavior"]], line.event != "dropped"
        for name, segments in _chunks(line):
            taken = self._taken.get(name)
            if taken is None:
                self._report(Invariant.ACKED_HAS_A_FATE, f"chunk {name} is settled, and was not taken", line)
                continue
            if has_trained:
                self._note_digest(taken["digest"], name, line)
            for segment in segments:
                self._check_fate(index, line, (name, segment))
                steps = taken["lengths"][segment]
                books.queued -= steps
                if has_trained:
                    books.trained += steps
                else:
                    books.dropped[line["reason"]] += steps

    def _check_fate(self, index: int, line: Line, segment: Segment) -> None:
        earlier = self._start.fate(segment)
        if earlier is not None:
            both = line.event != "dropped" and earlier.event != "dropped"
            what = f"segment {segment[1]} of chunk {segment[0]} is {line.event} after {earlier.event}"
            self._report(Invariant.TRAINED_ONCE if both else Invariant.ACKED_HAS_A_FATE, what, earlier, line)
        if line.event == "update_end" and segment not in self._start.begun:
            self._report(Invariant.TRAINED_ONCE, f"segment {segment} is in no update that began", line)
        self._start.fates.setdefault(segment, (index, line))

    def _note_digest(self, digest: str, name: Name, line: Line) -> None:
        """Checks that one sealed chunk is not trained under two names."""
        names = self._trained_digests[digest]
        names.setdefault(name, line)
        surviving = [known for known in names if self._start.receipt(known) is not None]
        made = self._made.rows.get(digest, [])
        if len(surviving) > max(1, len(made)):
            what = f"digest {digest} is trained as {surviving}, and was made {len(made)} times"
            self._report(Invariant.TRAINED_ONCE, what, *made, *(names[known] for known in surviving))

    def _lose(self, line: Line) -> None:
        books, steps = self.books[line["behavior"]], line["steps"]
        if line["queued"]:
            books.queued -= steps
        else:
            books.received += steps
            books.rolled_back += steps
        books.lost[line["reason"]] += steps

    def _cut(self, index: int, line: Line) -> None:
        for behavior, told in line["books"].items():
            found = self.books[behavior].plain()
            shown = {key: told[key] for key in ("received", "trained", "queued")}
            for key in ("dropped", "lost"):
                shown[key] = {reason: steps for reason, steps in told[key].items() if steps}
            if shown != found:
                what = f"the learner's books of {behavior} are {shown}, and its history adds up to {found}"
                self._report(Invariant.BOOKS_ARE_SUMS, what, line)
                self.books[behavior] = _as_told(told, self.books[behavior].rolled_back)  # reported once
        self._cuts[line["digest"]] = Cut(self._start, index, {name: b.copy() for name, b in self.books.items()})


def _as_told(told: Mapping[str, Any], rolled_back: int) -> Books:
    dropped, lost = Counter(told["dropped"]), Counter(told["lost"])
    return Books(told["received"], told["trained"], dropped, lost, told["queued"], rolled_back)


def _chunks(line: Line) -> Iterator[tuple[Name, list[int]]]:
    for name, segments in line["chunks"]:
        yield name_of(name), segments
