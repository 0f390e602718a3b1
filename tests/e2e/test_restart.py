"""Tests that actors survive a killed or stopped learner and that every step has an outcome."""

from __future__ import annotations

import json
import signal
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from learner.shared.exits import ExitCode
from tests.e2e.books import by_reason, fates_of, total
from tests.e2e.processes import Child, LearnerProcess, Processes, processes_in
from tests.e2e.runs import cartpole, small, write_run
from tests.e2e.state import Behavior
from tests.learner.service.calls.harness import Actor, read_policy
from tests.learner.service.calls.samples import make_chunk

NAME = "CartPole"
ACTORS = ("one", "two", "gone")


@dataclass
class Saved:
    """The state recorded in a recovery checkpoint."""

    version: int
    env_steps_trained: int
    episodes: int
    received: int
    queued: int
    received_of: dict[str, int]

    @classmethod
    def read(cls, folder: Path) -> Saved:
        """Reads the newest one of a run."""
        state: dict[str, Any] = torch.load(folder / "run_state.pt", weights_only=True)
        trainer, books = state["trainers"][NAME], state["ledger"][NAME]
        sessions = state["sessions"]["sessions"]
        return cls(
            version=trainer["version"],
            env_steps_trained=trainer["steps_trained"],
            episodes=trainer["tally"]["episodes"],
            received=books["received"],
            queued=books["queued"],
            received_of={entry["actor_name"]: entry["accounts"][0]["received_steps"] for entry in sessions},
        )


def _start(processes: Processes, **rollcast: Any) -> tuple[LearnerProcess, Path, dict[str, Child]]:
    run_file = write_run(processes.folder, {NAME: cartpole()}, **rollcast)
    learner = processes.learner(run_file)
    options = ("--num-envs", "2")
    actors = {name: processes.actor(learner.address, "CartPole-v1", *options, name=name) for name in ACTORS}
    return learner, run_file, actors


def _port(learner: LearnerProcess) -> int:
    return int(learner.address.rpartition(":")[2])


def _is_ahead(learner: LearnerProcess, steps: int) -> bool:
    """Returns whether the run has learned something, and received so many steps since its newest checkpoint."""
    row = learner.behavior(NAME)
    if row.version < 6 or row.mean_return_100 < 40 or not (learner.folder / "run_state.pt").exists():
        return False
    return row.books.received > Saved.read(learner.folder).received + steps


def _check_continues(row: Behavior, saved: Saved) -> None:
    """Checks that no counter is smaller than in the checkpoint."""
    assert row.version >= saved.version
    assert row.env_steps_trained >= saved.env_steps_trained
    assert row.episodes >= saved.episodes
    assert row.books.received >= saved.received
    assert row.books.trained >= saved.env_steps_trained


def test_a_killed_learner_goes_on_from_its_checkpoint(processes: Processes) -> None:
    """After SIGKILL the learner resumes, actors reconnect, counters continue and the books balance."""
    learner, run_file, actors = _start(processes, checkpoint_seconds=1.5)
    learner.wait_for(lambda: _is_ahead(learner, 600), "learning, and a checkpoint that is behind", *actors.values())
    port, before = _port(learner), learner.behavior(NAME)
    learner.kill()
    actors["gone"].kill()
    saved = Saved.read(learner.folder)
    stay = [actors["one"], actors["two"]]

    again = processes.learner(run_file, "--resume", port=port)
    status = again.status()
    assert status.generation == 2
    _check_continues(status.behaviors[0], saved)
    again.wait_for_version(NAME, saved.version + 2, *stay)
    # The one that was killed cannot say what it had sent.
    again.wait_for(lambda: again.behavior(NAME).books.unknown_sessions == 1, "two of three actors are back", *stay)
    row = again.behavior(NAME)
    lost = by_reason(row.books.lost)
    assert set(lost) == {"restart"}
    assert lost["restart"] >= saved.queued + before.books.received - saved.received, "the steps of the killed one too"
    again.wait_for(
        lambda: again.behavior(NAME).mean_return_100 >= 0.8 * before.mean_return_100, "learning is kept", *stay
    )
    _check_quiet(again, saved, stay)


def _check_quiet(learner: LearnerProcess, saved: Saved, actors: list[Child]) -> None:
    """Pauses the run and checks that actors' and learner's books are equal."""
    learner.operator.pause()

    def settled() -> bool:
        acked = {name: entry.acked_steps for name in ("one", "two") for entry in learner.actor(name).books}
        has_new = all(steps > saved.received_of[name] for name, steps in acked.items())  # not the report of a return
        return has_new and learner.behavior(NAME).books.received >= saved.received_of["gone"] + sum(acked.values())

    learner.wait_for(settled, "actors and learner agree", *actors)
    for name in ("one", "two"):
        (books,) = learner.actor(name).books
        assert books.produced_steps == fates_of(books)
        assert set(by_reason(books.dropped)) | set(by_reason(books.discarded)) <= {"generation"}
    row = learner.behavior(NAME)
    assert row.books.received == row.books.trained + row.books.queued + total(row.books.dropped) + total(row.books.lost)


async def test_steps_acked_before_the_first_run_state_are_named(tmp_path: Path) -> None:
    """800 steps are acked, learner and actor die before the first run state, and the books of the next start name them."""
    hyperparameters = {"batch_size": 64, "buffer_size": 10_240}
    run_file = write_run(
        tmp_path, {NAME: small(hyperparameters=hyperparameters)}, lease_seconds=60.0
    )  # it never renews
    with processes_in(tmp_path) as processes:
        learner = processes.learner(run_file)
        async with Actor(_port(learner)) as actor:
            upload = await actor.join()
            await read_policy(actor.subscribe())
            for sequence in range(1, 26):
                await upload.send(make_chunk(32, sequence=sequence))
                await upload.ack(sequence)
            learner.kill()
        assert not (learner.folder / "run_state.pt").exists()
        again = processes.learner(run_file, "--resume=auto")
        async with Actor(_port(again), "another") as actor:
            await actor.join()
            books = again.behavior(NAME).books
        assert (books.received, by_reason(books.lost), books.queued) == (800, {"restart": 800}, 0)
        assert again.events("acked_steps_lost")
        # A new run in the folder begins its books at zero.
        again.kill()
        fresh = processes.learner(run_file, "--force")
        async with Actor(_port(fresh), "third") as actor:
            await actor.join()
            assert fresh.behavior(NAME).books.received == 0


def test_a_stopped_learner_is_waited_for(processes: Processes) -> None:
    """After SIGTERM and --resume=auto the actors reconnect, and they exit at the target."""
    learner, run_file, actors = _start(processes, reward_buffer_episodes=20)
    learner.wait_for_version(NAME, 4, *actors.values())
    port = _port(learner)
    learner.signal(signal.SIGTERM)
    assert learner.wait() == 0, learner.said()
    summary = json.loads((learner.folder / "summary.json").read_text())
    saved = Saved.read(learner.folder)
    assert summary["stop_reason"] == "signal"
    assert summary["policy_version"] == saved.version >= 4
    assert (learner.folder / f"{NAME}.onnx").stat().st_size > 0
    assert (learner.folder / NAME / "checkpoint.pt").exists()
    assert not (learner.folder / "address.json").exists()
    assert all(actor.is_running for actor in actors.values())

    again = processes.learner(run_file, "--resume=auto", "--target-return", "200", port=port)
    again.operator.pause()  # else it might end before the last actor is back
    again.wait_for(lambda: len(again.status().actors) == len(actors), "all actors are back", *actors.values())
    row = again.behavior(NAME)
    _check_continues(row, saved)
    assert by_reason(row.books.lost) in ({}, {"restart": saved.queued}), "nothing was acked after the checkpoint"
    again.operator.resume()
    assert again.wait() == 0, again.said()
    assert {name: actor.wait() for name, actor in actors.items()} == dict.fromkeys(ACTORS, 0)
    summary = json.loads((again.folder / "summary.json").read_text())
    assert summary["stop_reason"] == "target_return"
    assert summary["generation"] == 2
    assert summary["mean_return_100"] >= 200
    assert summary["policy_version"] > saved.version
    ledger = summary["ledger"]
    fates = ledger["trained"] + ledger["queued"] + sum(ledger["dropped"].values()) + sum(ledger["lost"].values())
    assert ledger["received"] == fates
    last_books = [actor.events("books")[-1] for actor in actors.values()]
    for kind in ("discarded", "dropped"):
        given_up = sum((Counter(books[kind]) for books in last_books), Counter[str]())
        assert summary["actor_books"][kind] == given_up, "the run's books have what its actors gave up"
    assert 0 < summary["active_seconds"] < summary["wall_seconds"], "the pause was no active time"
    for books in last_books:
        assert books["open"] == 0
        assert books["produced"] == books["acked"] + books["unacked"] + sum(
            steps for reason in ("discarded", "dropped") for steps in books[reason].values()
        )


def test_a_second_learner_in_the_folder_ends_the_first(processes: Processes) -> None:
    """Without the lock, as on NFS, the older learner ends with its own code, and writes nothing over the newer one's files."""
    run_file = write_run(processes.folder, {NAME: small()}, checkpoint_seconds=1.0)
    older = processes.learner(run_file)
    actor = processes.actor(older.address, "CartPole-v1")
    older.wait_for((older.folder / "run_state.pt").exists, "a run state", actor)
    (older.folder / ".lock").unlink()
    newer = processes.learner(run_file, "--resume")
    assert newer.status().generation == 2
    last_line = older.fails_with(ExitCode.SUPERSEDED)
    assert "another learner was started" in last_line
    assert not (newer.folder / "summary.json").exists()
    assert newer.status().generation == 2, "address.json is the newer one's"
    notes = [json.loads(line) for line in (newer.folder / "events.jsonl").read_text().splitlines()]
    assert not any(note["event"] in {"failed", "finished"} for note in notes)
    assert (newer.folder / "generation").read_text() == "2\n"
    actor.end()
    with_newer = processes.actor(newer.address, "CartPole-v1", name="with-newer")
    newer.wait_for_version(NAME, newer.behavior(NAME).version + 2, with_newer)
    newer.operator.save_checkpoint()
    assert torch.load(newer.folder / "run_state.pt", weights_only=True)["generation"] == 2


def test_a_stopped_learner_leaves_a_folder_that_another_one_took_over(processes: Processes) -> None:
    """A learner that had nothing to save notices at its end, writes neither state nor summary, and keeps the address."""
    run_file = write_run(processes.folder, {NAME: small()})
    older = processes.learner(run_file)
    assert older.status().generation == 1
    (older.folder / ".lock").unlink()
    newer = processes.learner(run_file, "--resume=auto")
    assert newer.status().generation == 2
    older.signal(signal.SIGTERM)
    assert "another learner was started" in older.fails_with(ExitCode.SUPERSEDED)
    assert not {"summary.json", "run_state.pt"} & {path.name for path in newer.folder.iterdir()}
    assert newer.status().generation == 2
    newer.signal(signal.SIGTERM)
    assert newer.wait() == 0, newer.said()
    assert json.loads((newer.folder / "summary.json").read_text())["generation"] == 2


def test_a_finished_run_can_be_made_longer(processes: Processes) -> None:
    """A run that reached max_steps trains on when resumed with more steps."""
    run_file = write_run(processes.folder, {NAME: small()})
    versions = []
    for limit in ("1000", "3000"):
        learner = processes.learner(run_file, "--resume=auto", "--set", f"behaviors.{NAME}.max_steps={limit}")
        actor = processes.actor(learner.address, "CartPole-v1", name=f"until-{limit}")
        assert learner.wait() == 0, learner.said()
        assert actor.wait() == 0, actor.said()
        summary = json.loads((learner.folder / "summary.json").read_text())
        assert summary["stop_reason"] == "max_steps"
        assert summary["env_steps_trained"] <= int(limit) + 256
        versions.append(summary["policy_version"])
    assert 2 <= versions[0] < versions[1] - 4
