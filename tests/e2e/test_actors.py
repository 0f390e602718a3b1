"""Tests actors that are killed, stopped and restarted, and their memory."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.e2e.books import fates_of
from tests.e2e.processes import TRACEBACK, Child, LearnerProcess, Processes, peak_memory_bytes

MAX_MEMORY_BYTES = 150 * 2**20


def _trained(learner: LearnerProcess, behavior: str) -> int:
    return learner.behavior(behavior).books.trained


def _take_part(learner: LearnerProcess, behavior: str, actor: Child, name: str) -> None:
    """Waits until steps of an actor were received, and more than an update was trained since."""
    before = _trained(learner, behavior)
    learner.wait_for(lambda: any(b.acked_steps for b in learner.actor(name).books), f"steps of {name}", actor)
    learner.wait_for(lambda: _trained(learner, behavior) > before + 256, f"an update after {name} came", actor)


def test_a_killed_actor_is_replaced(shared_learner: LearnerProcess, processes: Processes) -> None:
    """After SIGKILL, an actor of the same name and a new one take part, and the books balance."""

    def start(name: str) -> Child:
        arguments = ("--behavior", "Killed", "--num-envs", "2")
        return processes.actor(shared_learner.address, "CartPole-v1", *arguments, name=name)

    first = start("rig")
    shared_learner.wait_for_version("Killed", 2, first)
    index = shared_learner.actor("rig").actor_index
    first.kill()
    same = start("rig")
    _take_part(shared_learner, "Killed", same, "rig")
    assert shared_learner.actor("rig").actor_index == index, "a name keeps its place in the run"
    other = start("other")
    _take_part(shared_learner, "Killed", other, "other")
    assert shared_learner.actor("other").actor_index != index
    books = shared_learner.behavior("Killed").books
    assert books.duplicate == 0
    assert not books.lost


def test_a_stopped_actor_says_goodbye(shared_learner: LearnerProcess, processes: Processes) -> None:
    """On SIGTERM an actor sends its steps and ends with 0, and every step is accounted for."""
    actor = processes.actor(shared_learner.address, "Pendulum-v1", "--behavior", "Leaving", name="leaving")
    shared_learner.wait_for_version("Leaving", 1, actor)

    def plays_on() -> bool:
        return any(books.produced_steps > 256 for books in shared_learner.actor("leaving").books)

    shared_learner.wait_for(plays_on, "steps of the second update", actor)
    actor.signal(signal.SIGTERM)
    assert actor.wait() == 0, actor.said()
    assert TRACEBACK not in actor.err()
    books = actor.events("books")[-1]
    assert books["produced"] == books["acked"] > 256
    # Commands share a status for a moment, and on a busy machine the call that closes the session may come late.
    shared_learner.wait_for(lambda: shared_learner.actor("leaving").session_id == "", "the end of the session")
    row = shared_learner.behavior("Leaving")
    assert row.env_steps_taken == row.books.received == books["produced"]


def test_an_actor_is_small(shared_learner: LearnerProcess, processes: Processes) -> None:
    """A CartPole actor needs less than 150 MB and does not import torch."""
    actor = _running(shared_learner, processes)
    assert peak_memory_bytes(actor.pid) < MAX_MEMORY_BYTES
    maps = Path(f"/proc/{actor.pid}/maps").read_text()
    assert "onnxruntime" in maps
    assert "torch" not in maps


def test_an_actor_reports_its_own_books(shared_learner: LearnerProcess, processes: Processes) -> None:
    """An actor's books reach the learner's status, balanced and with the acting policy."""
    actor = _running(shared_learner, processes)

    def reported() -> bool:
        status = shared_learner.actor("small")
        return any(b.acked_steps for b in status.books) and any(p.version for p in status.policies)

    shared_learner.wait_for(reported, "books and policy of the actor", actor)
    status = shared_learner.actor("small")
    assert status.connected
    assert status.books[0].produced_steps == fates_of(status.books[0])
    assert status.policies[0].generation == 1
    assert not status.policies[0].error


def _running(learner: LearnerProcess, processes: Processes) -> Child:
    """Starts an actor, and returns it when it has had two policies."""
    before = learner.behavior("Equal").version
    arguments = ("--behavior", "Equal", "--num-envs", "4")
    actor = processes.actor(learner.address, "CartPole-v1", *arguments, name="small")
    learner.wait_for_version("Equal", before + 2, actor)
    return actor
