"""Tests that the checker accepts a good history and reports each kind of fault, with the lines that show it."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.nightly.chaos.checker.check import check, check_folder
from tests.nightly.chaos.checker.reading import Histories, Line
from tests.nightly.chaos.checker.violations import Invariant
from tests.nightly.chaos.run import UNTOLD_STEPS, check_taken

Fields = dict[str, Any]
NOTHING_LOST: Fields = {"discarded": {}, "dropped": {}}
EMPTY: Fields = {"received": 0, "trained": 0, "dropped": {}, "queued": 0, "lost": {}, "duplicate": 0}


def event(name: str, **fields: Any) -> Fields:
    """Returns one event of behavior ``b``, or without one."""
    return {"event": name, "at": 0.0, **fields}


def actor() -> list[Fields]:
    """Returns the history of an actor that sends three chunks, sees two acks, and comes back after a restart."""
    lines = [event("opened", session="s", epoch=1, generation=1, kind="fresh", next_sequence=1, settled_through=0)]
    for number in (1, 2, 3):
        lines += [
            event("policy", behavior="b", team=0, generation=1, version=number - 1),
            event("rows", behavior="b", team=0, generation=1, digest=f"d{number}", steps=5, versions=[number - 1] * 2),
            event("sent", chunk=["s", number, 1], digest=f"d{number}", steps=5),
        ]
    lines += [event("ack_seen", session="s", epoch=1, generation=1, through=2)]
    lines += [
        event("opened", session="s", epoch=2, generation=2, kind="new_generation", next_sequence=3, settled_through=2)
    ]
    lines += [event("dropped", behavior="b", reason="generation", steps=5)]
    lines += [event("discarded", behavior="b", reason="shutdown", steps=1)]
    books = {"produced": 16, "open": 0, "unacked": 0, "acked": 10, "ghost": 0}
    lines += [event("closed", books={"b": books | {"discarded": {"shutdown": 1}, "dropped": {"generation": 5}}})]
    return lines


def first_start() -> list[Fields]:
    """Returns the history of a learner that trains one chunk, saves, queues a second one, and is killed."""
    chunk = {"chunk": ["s", 1, 1]}
    return [
        event("opened", session="s", actor="a"),
        event("ack_out", session="s", epoch=1, through=0),
        event("published", behavior="b", version=0),
        event("received", **chunk, epoch=1, steps=5),
        event("queued", **chunk, behavior="b", steps=5, digest="d1"),
        event("ack_out", session="s", epoch=1, through=1),
        event("taken", **chunk, behavior="b", digest="d1", lengths=[2, 3], versions=[0, 0]),
        event("update_begin", behavior="b", version=0, chunks=[[["s", 1, 1], [0, 1]]]),
        event("update_end", behavior="b", version=1, chunks=[[["s", 1, 1], [0, 1]]]),
        event("cut", digest="c1", books={"b": EMPTY | {"received": 5, "trained": 5}}),
        event("run_state", digest="c1", versions={"b": 1}),
        event("received", chunk=["s", 2, 1], epoch=1, steps=5),
        event("queued", chunk=["s", 2, 1], behavior="b", steps=5, digest="d2"),
        event("ack_out", session="s", epoch=1, through=2),
    ]


def second_start() -> list[Fields]:
    """Returns the history of the next start, where the second chunk is lost."""
    return [
        event("lost", behavior="b", reason="restart", steps=0, queued=True),
        event("resumed", digest="c1", written_by=1),
        event("lost", behavior="b", reason="rollback", steps=5, queued=False),
        event("fenced", session="s", epoch=2, settled=2),
        event("ack_out", session="s", epoch=2, through=2),
        event("cut", digest="c2", books={"b": EMPTY | {"received": 10, "trained": 5, "lost": {"rollback": 5}}}),
    ]


def write(path: Path, lines: list[Fields]) -> None:
    """Writes the history of a process."""
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def test_a_chunk_of_an_earlier_start_keeps_its_name(tmp_path: Path) -> None:
    """With replay memory, the next start takes a chunk of the one before, and calls it one of its own generation."""
    sender = actor()[:-3]
    sender += [
        event("sent", chunk=["s", 3, 1], digest="d3", steps=5),
        event("ack_seen", session="s", epoch=2, generation=2, through=3),
        event("closed", books={"b": {"produced": 15, "open": 0, "unacked": 0, "acked": 15, "ghost": 0} | NOTHING_LOST}),
    ]
    books = EMPTY | {"received": 15, "trained": 10, "lost": {"rollback": 5}}
    taken = {"chunk": ["s", 3, 2], "behavior": "b", "digest": "d3"}
    start = [
        *second_start()[:-1],
        event("received", chunk=["s", 3, 1], epoch=2, steps=5),
        event("queued", **taken, steps=5),
        event("ack_out", session="s", epoch=2, through=3),
        event("taken", **taken, lengths=[2, 3], versions=[2, 2]),
        event("remembered", behavior="b", chunks=[[["s", 3, 2], [0, 1]]]),
        event("cut", digest="c2", books={"b": books}),
    ]
    write(tmp_path / "actor-a.jsonl", sender)
    write(tmp_path / "learner-1-1.jsonl", first_start())
    write(tmp_path / "learner-2-1.jsonl", start)
    assert check_folder(tmp_path) == []
    other = [dict(line, chunk=["s", 3, 1], digest="d2") if line["event"] == "queued" else line for line in start]
    write(tmp_path / "learner-2-1.jsonl", other)
    assert Invariant.MADE_BY_AN_ACTOR in {violation.invariant for violation in check_folder(tmp_path)}


def found(
    actors: list[Fields], first: list[Fields], second: list[Fields], lag: int | None = 0
) -> dict[Invariant, list[str]]:
    """Returns the violations, with the events of their lines."""
    files = {"actor-a.jsonl": actors, "learner-1-7.jsonl": first, "learner-2-8.jsonl": second}
    lines = [
        tuple(Line(name, number, fields) for number, fields in enumerate(content, 1)) for name, content in files.items()
    ]
    violations = check(Histories((lines[0],), (lines[1], lines[2])), {} if lag is None else {"b": lag})
    return {each.invariant: [line.event for line in each.lines] for each in violations}


def position(lines: list[Fields], name: str, last: bool = False) -> int:
    """Returns the place of the first or the last line of an event."""
    places = [place for place, fields in enumerate(lines) if fields["event"] == name]
    return places[-1 if last else 0]


def test_a_good_history() -> None:
    """A history with a restart, a rolled back chunk and a drop is accepted."""
    assert found(actor(), first_start(), second_start()) == {}


def test_training_after_the_run_state_is_not_in_the_lineage() -> None:
    """A chunk that was trained after the run state may be trained again after the restart."""
    first, second = first_start(), second_start()
    name = {"chunk": ["s", 2, 1], "behavior": "b", "digest": "d2"}
    segments = {"behavior": "b", "version": 1, "chunks": [[["s", 2, 1], [0]]]}
    trained = [
        event("taken", **name, lengths=[5], versions=[1]),
        event("update_begin", **segments),
        event("update_end", **segments | {"version": 2}),
    ]
    sent_again = [event("fenced", session="s", epoch=2, settled=1), event("queued", **name, steps=5)]
    books = {"b": EMPTY | {"received": 10, "trained": 10}}
    second[2:] = [*sent_again, *trained, event("cut", digest="c2", books=books)]
    assert found(actor(), first + trained, second) == {}


def changed(lines: list[Fields], name: str, last: bool = False, **fields: Any) -> list[Fields]:
    """Returns lines with other fields in the first or the last line of an event."""
    at = position(lines, name, last)
    return [*lines[:at], lines[at] | fields, *lines[at + 1 :]]


def again(lines: list[Fields], name: str, **fields: Any) -> list[Fields]:
    """Returns lines with a copy of an event after it."""
    at = position(lines, name)
    return [*lines[: at + 1], lines[at] | fields, *lines[at + 1 :]]


def books(lines: list[Fields], name: str, **fields: Any) -> list[Fields]:
    """Returns lines with other books of the behavior in the first line of an event."""
    return changed(lines, name, books={"b": lines[position(lines, name)]["books"]["b"] | fields})


def early_ack() -> list[Fields]:
    """Returns a first start in which a chunk is acked before it is queued."""
    lines = first_start()
    lines.insert(position(lines, "queued"), event("ack_out", session="s", epoch=1, through=1))
    return lines


def vanished() -> list[Fields]:
    """Returns a second start in which acked steps are rolled back without a name."""
    lines = books(second_start(), "cut", received=5, lost={})
    del lines[position(lines, "lost", last=True)]
    return lines


def lost_too_many() -> list[Fields]:
    """Returns a second start that loses more steps than were received."""
    lines = changed(second_start(), "lost", last=True, steps=6)
    return books(lines, "cut", received=11, lost={"rollback": 6})


def after_the_fence(name: str) -> list[Fields]:
    """Returns a second start in which an event of an older epoch counts."""
    lines = second_start()
    late = event(name, session="s", chunk=["s", 3, 1], epoch=1, through=2, steps=5)
    lines.insert(position(lines, "fenced") + 1, late)
    return lines


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"first": again(first_start(), "update_end", version=2)},
            {Invariant.TRAINED_ONCE: ["update_end", "update_end"], Invariant.BOOKS_ARE_SUMS: ["cut"]},
        ),
        (
            {"first": again(first_start(), "queued")},
            {Invariant.TRAINED_ONCE: ["queued", "queued"], Invariant.BOOKS_ARE_SUMS: ["cut"]},
        ),
        ({"first": changed(first_start(), "taken", digest="other")}, {Invariant.MADE_BY_AN_ACTOR: ["sent", "taken"]}),
        ({"first": early_ack()}, {Invariant.ACKED_HAS_A_FATE: ["ack_out"]}),
        ({"second": vanished()}, {Invariant.ACKED_HAS_A_FATE: ["queued", "ack_seen"]}),
        ({"second": lost_too_many()}, {Invariant.ACKED_HAS_A_FATE: ["queued", "ack_seen"]}),
        (
            {"actors": changed(actor(), "policy", last=True, version=0)},
            {Invariant.VERSIONS_GROW: ["policy", "policy"]},
        ),
        ({"second": after_the_fence("received")}, {Invariant.FENCED: ["fenced", "received"]}),
        ({"second": after_the_fence("ack_out")}, {Invariant.FENCED: ["fenced", "ack_out"]}),
        (
            {"first": changed(first_start(), "update_begin", version=1)},
            {Invariant.LAG_IS_LIMITED: ["rows", "update_begin"]},
        ),
        ({"first": books(first_start(), "cut", received=6)}, {Invariant.BOOKS_ARE_SUMS: ["cut"]}),
        ({"first": books(first_start(), "cut", trained=6)}, {Invariant.BOOKS_ARE_SUMS: ["cut"]}),
        ({"first": books(first_start(), "cut", queued=1)}, {Invariant.BOOKS_ARE_SUMS: ["cut"]}),
        ({"actors": books(actor(), "closed", acked=11)}, {Invariant.BOOKS_ARE_SUMS: ["closed"]}),
        (
            {"second": changed(second_start(), "resumed", digest="unknown")},
            {Invariant.BOOKS_ARE_SUMS: ["cut"], Invariant.ACKED_HAS_A_FATE: ["queued", "ack_seen"] * 2},
        ),
    ],
)
def test_a_fault_is_found(change: dict[str, list[Fields]], expected: dict[Invariant, list[str]]) -> None:
    """Each fault is found with the lines that show it, and nothing else is."""
    given = {"actors": actor(), "first": first_start(), "second": second_start()} | change
    assert found(given["actors"], given["first"], given["second"]) == expected


def test_the_limit_of_the_lag_counts() -> None:
    """Rows that are as old as the limit allows are accepted."""
    first = changed(first_start(), "update_begin", version=1)
    assert found(actor(), first, second_start(), lag=1) == {}


@pytest.mark.parametrize(("taken", "outstanding"), [(1001, 0), (1000 - UNTOLD_STEPS - 1, 0), (1000, 1)])
def test_steps_that_no_environment_took_are_found(taken: int, outstanding: int) -> None:
    """Books with invented steps, with too many missing, or with steps at actors that have ended are refused."""
    for steps, left, is_right in ((1000, 0, True), (1000 - UNTOLD_STEPS, 0, True), (taken, outstanding, False)):
        summary = {"env_steps_taken": steps, "actor_books": {"outstanding": left}}
        with contextlib.nullcontext() if is_right else pytest.raises(AssertionError):
            check_taken(summary, 1000, killed=1)
