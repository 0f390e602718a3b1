"""Tests that the checker accepts a good history and reports each kind of fault, with the lines that show it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.nightly.chaos.checker.check import check, check_folder
from tests.nightly.chaos.checker.reading import Histories, Line
from tests.nightly.chaos.checker.violations import Invariant

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


def test_a_segment_that_is_trained_twice() -> None:
    """(1) The lines of both updates are shown."""
    first = first_start()
    at = position(first, "update_end")
    first.insert(at + 1, first[at] | {"version": 2})
    assert found(actor(), first, second_start())[Invariant.TRAINED_ONCE] == ["update_end", "update_end"]


def test_a_chunk_that_is_queued_twice() -> None:
    """(1) Both lines are shown."""
    first = first_start()
    at = position(first, "queued")
    first.insert(at + 1, dict(first[at]))
    assert found(actor(), first, second_start())[Invariant.TRAINED_ONCE] == ["queued", "queued"]


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


def test_a_digest_that_no_actor_made() -> None:
    """(2) Rows that changed on their way are found."""
    first = first_start()
    first[position(first, "taken")]["digest"] = "other"
    assert found(actor(), first, second_start())[Invariant.MADE_BY_AN_ACTOR][-1] == "taken"


def test_an_early_ack() -> None:
    """(3) An ack before its chunk is queued is found."""
    first = first_start()
    at = position(first, "queued")
    first.insert(at, event("ack_out", session="s", epoch=1, through=1))
    assert found(actor(), first, second_start()) == {Invariant.ACKED_HAS_A_FATE: ["ack_out"]}


def test_an_acked_chunk_that_vanishes() -> None:
    """(3) Acked steps that are rolled back without a name are found, with the chunk and the ack."""
    second = second_start()
    del second[position(second, "lost", last=True)]
    second[-1]["books"] = {"b": EMPTY | {"received": 5, "trained": 5}}
    assert found(actor(), first_start(), second) == {Invariant.ACKED_HAS_A_FATE: ["queued", "ack_seen"]}


def test_more_lost_than_received() -> None:
    """(3) Steps that are lost and were never received are found."""
    second = second_start()
    second[position(second, "lost", last=True)]["steps"] = 6
    second[-1]["books"] = {"b": EMPTY | {"received": 11, "trained": 5, "lost": {"rollback": 6}}}
    assert Invariant.ACKED_HAS_A_FATE in found(actor(), first_start(), second)


def test_a_version_that_falls() -> None:
    """(4) Both lines are shown."""
    lines = actor()
    lines[position(lines, "policy", last=True)]["version"] = 0
    assert found(lines, first_start(), second_start()) == {Invariant.VERSIONS_GROW: ["policy", "policy"]}


@pytest.mark.parametrize("what", ["received", "ack_out"])
def test_an_older_epoch(what: str) -> None:
    """(5) What counts after the fence is found, with the fence."""
    second = second_start()
    late = event(what, session="s", chunk=["s", 3, 1], epoch=1, through=2, steps=5)
    second.insert(position(second, "fenced") + 1, late)
    assert found(actor(), first_start(), second) == {Invariant.FENCED: ["fenced", what]}


def test_rows_that_are_too_old() -> None:
    """(6) The lag is computed from the versions that the actor recorded."""
    first = first_start()
    first[position(first, "update_begin")]["version"] = 1
    assert found(actor(), first, second_start())[Invariant.LAG_IS_LIMITED] == ["rows", "update_begin"]
    assert found(actor(), first, second_start(), lag=1) == {}


@pytest.mark.parametrize("key", ["received", "trained", "queued"])
def test_the_learners_books(key: str) -> None:
    """(7) A ledger that differs from its history is found."""
    first = first_start()
    books = first[position(first, "cut")]["books"]["b"]
    first[position(first, "cut")]["books"] = {"b": books | {key: books[key] + 1}}
    assert found(actor(), first, second_start())[Invariant.BOOKS_ARE_SUMS] == ["cut"]


def test_an_actors_books() -> None:
    """(7) An actor's books that differ from its history are found."""
    lines = actor()
    lines[-1]["books"]["b"]["acked"] += 1
    assert found(lines, first_start(), second_start()) == {Invariant.BOOKS_ARE_SUMS: ["closed"]}


def test_a_run_state_that_was_never_written() -> None:
    """(7) A learner that continues from something else is found."""
    second = second_start()
    second[position(second, "resumed")]["digest"] = "unknown"
    assert Invariant.BOOKS_ARE_SUMS in found(actor(), first_start(), second)
