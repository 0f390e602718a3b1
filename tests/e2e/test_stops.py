"""Tests processes that are stopped for a while (SIGSTOP, a suspended machine)."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import toys
from tests.e2e.books import by_reason, total
from tests.e2e.processes import Child, LearnerProcess, Processes, processes_in
from tests.e2e.runs import small, write_run
from tests.e2e.state import Actor

NAME = "CartPole"
LEASE_SECONDS = 4.0


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LearnerProcess]:
    """Starts one learner for all tests here."""
    with processes_in(tmp_path_factory.mktemp("stops")) as started:
        yield started.learner(write_run(started.folder, {NAME: small()}, lease_seconds=LEASE_SECONDS))


def _start(learner: LearnerProcess, processes: Processes, *names: str) -> list[Child]:
    actors = [processes.actor(learner.address, "CartPole-v1", name=name) for name in names]
    learner.wait_for(lambda: all(_acked(learner.actor(name)) for name in names), "everybody takes part", *actors)
    return actors


def _acked(actor: Actor) -> int:
    return sum(entry.acked_steps for entry in actor.books)


def _goes_on(learner: LearnerProcess, name: str, *actors: Child) -> Actor:
    """Waits until more steps of an actor are acked than now, and returns its state then."""
    before = _acked(learner.actor(name))
    learner.wait_for(lambda: _acked(learner.actor(name)) > before, f"{name} goes on", *actors)
    return learner.actor(name)


def test_a_learner_that_stood_still_ends_no_session(learner: LearnerProcess, processes: Processes) -> None:
    """A learner that was stopped for longer than a lease ends no session, and no step is dropped or lost."""
    names = ("one", "two")
    actors = _start(learner, processes, *names)
    sessions = {name: learner.actor(name).session_id for name in names}
    learner.signal(signal.SIGSTOP)
    time.sleep(1.5 * LEASE_SECONDS)
    learner.signal(signal.SIGCONT)
    for name in names:
        actor = _goes_on(learner, name, *actors)
        assert actor.session_id == sessions[name]
        assert total(actor.books[0].dropped) + total(actor.books[0].discarded) == 0
    assert learner.events("service_stood_still")
    books = learner.behavior(NAME).books
    assert not by_reason(books.lost)
    assert set(by_reason(books.dropped)) <= {"stale"}
    assert books.unknown_sessions == 0


def test_an_actor_that_stood_still_for_less_than_its_lease_keeps_its_session(
    learner: LearnerProcess, processes: Processes
) -> None:
    """An actor stopped for less than its lease keeps its session, and nothing is dropped."""
    (actor,) = _start(learner, processes, "short")
    before = learner.actor("short")
    actor.signal(signal.SIGSTOP)
    time.sleep(LEASE_SECONDS / 8)
    actor.signal(signal.SIGCONT)
    after = _goes_on(learner, "short", actor)
    assert after.session_id == before.session_id
    assert total(after.books[0].dropped) + total(after.books[0].discarded) == 0


def test_an_actor_that_outslept_its_lease_takes_part_anew(learner: LearnerProcess, processes: Processes) -> None:
    """An actor stopped for longer than its lease gets a new session; its place goes to its replacement."""
    sleeper, other = _start(learner, processes, "long", "other")
    before = learner.actor("long")
    sleeper.signal(signal.SIGSTOP)
    learner.wait_for(lambda: not learner.actor("long").session_id, "its lease runs out", other)
    twin = processes.actor(learner.address, "CartPole-v1", name="long")
    learner.wait_for(lambda: _acked(learner.actor("long")), "its replacement takes part", other, twin)
    assert learner.actor("long").actor_index == before.actor_index
    sleeper.signal(signal.SIGCONT)

    def both() -> bool:
        acting = [actor for actor in learner.status().actors if actor.actor_name == "long" and _acked(actor)]
        return len(acting) == 2 and before.session_id not in {actor.session_id for actor in acting}

    learner.wait_for(both, "both of that name take part", other, twin, sleeper)
    for child in (sleeper, twin, other):
        child.signal(signal.SIGTERM)
        assert child.wait() == 0, child.said()
        (books,) = child.events("books")[-1:]
        given_up = sum(books["discarded"].values()) + sum(books["dropped"].values())
        assert books["produced"] == books["open"] + books["unacked"] + books["acked"] + given_up


@pytest.mark.parametrize("way", sorted(toys.Leaving.ways))
def test_what_an_actor_left_with_is_named(processes: Processes, tmp_path: Path, way: str) -> None:
    """The steps that the last actor had when its process was left or killed are given up by name, and none is outstanding."""
    run_file = write_run(tmp_path, {"Toy": small()}, lease_seconds=LEASE_SECONDS, resume_grace_seconds=0)
    learner = processes.learner(run_file)
    actor = processes.actor(learner.address, toys.named("leaving"), "--env-kwargs", json.dumps({"way": way}))
    event = "actor_left" if way == "sys.exit" else "actor_lost"
    actor.wait()
    learner.wait_for(lambda: learner.events(event), "its session ends")
    learner.signal(signal.SIGTERM)
    assert learner.wait() == 0, learner.said()
    summary = json.loads((learner.folder / "summary.json").read_text())
    books, ledger = summary["actor_books"], summary["ledger"]
    assert books["outstanding"] == 0
    given_up = sum(books["discarded"].values()) + sum(books["dropped"].values())
    assert summary["env_steps_taken"] == ledger["received"] + given_up
    assert 700 - 300 < summary["env_steps_taken"] <= 700, "an update's steps at most are missing, and none is invented"
    if way == "sys.exit":  # it said what it had
        assert summary["env_steps_taken"] == 700
        assert books["discarded"]["actor_gone"] > 0
