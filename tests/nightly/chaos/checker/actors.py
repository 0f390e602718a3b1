"""Checks the history of each actor, and collects what they made, sent, and saw acked."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from tests.nightly.chaos.checker.reading import Line, Name
from tests.nightly.chaos.checker.violations import Invariant, Violation


@dataclass(slots=True)
class Made:
    """Everything that the actors of a run made.

    Attributes:
        rows: Lines of sealed chunks by digest; more than one where chunks are equal by chance.
        sent: First line of each sent chunk.
        acked: Line of the ack that an actor saw, by chunk.
        returned: Last generation for which a process opened each session.
    """

    rows: dict[str, list[Line]] = field(default_factory=lambda: defaultdict(list))
    sent: dict[Name, Line] = field(default_factory=dict)
    acked: dict[Name, Line] = field(default_factory=dict)
    returned: dict[str, int] = field(default_factory=dict)


class ActorChecker:
    """Checks one actor's process.

    Args:
        made: Receives what it made.
    """

    def __init__(self, made: Made) -> None:
        self._made = made
        self.violations: list[Violation] = []
        self._versions: dict[tuple[str, int, int], Line] = {}
        self._unacked: dict[Name, Line] = {}
        self._behavior_of: dict[str, str] = {}
        self._rows: Counter[str] = Counter()
        self._discarded: dict[str, Counter[str]] = defaultdict(Counter)
        self._dropped: dict[str, Counter[str]] = defaultdict(Counter)
        self._acked: Counter[str] = Counter()

    def check(self, lines: tuple[Line, ...]) -> None:
        """Checks the lines of one process."""
        session = ""
        for line in lines:
            if line.event == "opened":
                before, session = session, line["session"]
                for known in {before, session} - {""}:  # a session that the learner did not know is settled then
                    self._made.returned[known] = line["generation"]
            self._take(line)

    def _take(self, line: Line) -> None:
        match line.event:
            case "rows":
                self._made.rows[line["digest"]].append(line)
                self._behavior_of[line["digest"]] = line["behavior"]
                self._rows[line["behavior"]] += line["steps"]
            case "policy":
                self._check_version(line)
            case "sent":
                self._made.sent.setdefault(line.chunk, line)
                self._unacked[line.chunk] = line
            case "ack_seen":
                self._ack(line, line["session"], line["through"])
            case "dropped":
                self._dropped[line["behavior"]][line["reason"]] += line["steps"]
            case "discarded":
                self._discarded[line["behavior"]][line["reason"]] += line["steps"]
            case "opened" if line["kind"] in {"new_generation", "lost"}:
                for session in {name[0] for name in self._unacked}:  # the one before, whose id a lost session changes
                    self._ack(line, session, line["settled_through"])
                self._unacked.clear()  # dropped, or sent again under other numbers
            case "closed":
                self._check_books(line)

    def _ack(self, line: Line, session: str, through: int) -> None:
        settled = [name for name in self._unacked if name[0] == session and name[1] <= through]
        for name in settled:
            sent = self._unacked.pop(name)
            self._made.acked[name] = line
            self._acked[self._behavior_of[sent["digest"]]] += sent["steps"]

    def _check_version(self, line: Line) -> None:
        key = line["behavior"], line["team"], line["generation"]
        before = self._versions.get(key)
        if before is not None and line["version"] < before["version"]:
            what = f"version {line['version']} of {line['behavior']} acts after version {before['version']}"
            self.violations.append(Violation(Invariant.VERSIONS_GROW, what, (before, line)))
        self._versions[key] = line

    def _check_books(self, line: Line) -> None:
        for behavior, books in line["books"].items():
            found = {
                "produced": self._rows[behavior] + self._discarded[behavior].total() + books["open"],
                "discarded": dict(+self._discarded[behavior]),
                "dropped": dict(+self._dropped[behavior]),
                "acked": self._acked[behavior],
            }
            told = {key: books[key] for key in found}
            for key in ("discarded", "dropped"):
                told[key] = {reason: steps for reason, steps in told[key].items() if steps}
            if found != told:
                what = f"the actor's books of {behavior} are {told}, and its history adds up to {found}"
                self.violations.append(Violation(Invariant.BOOKS_ARE_SUMS, what, (line,)))
