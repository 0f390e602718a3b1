"""Tests that lock-step runs are equal bit by bit, also when stopped and resumed."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from actor_client.envs.factory import make_env_batch
from learner.shared.exits import ExitCode
from tests.e2e.books import by_reason, check_books
from tests.e2e.lockstep import (
    ENVS,
    NAME,
    QUOTA,
    Actor,
    Run,
    differences,
    disturb,
    meanwhile,
    playing,
    settings,
    stop_at_round,
)
from tests.e2e.processes import processes_in, wait_until
from tests.e2e.state import State, state_of
from tests.learner.training.rewards.recorded import demonstrate
from tests.learner.training.trainers.companions import toys
from tests.ports import reserve_ports

ROUND_STEPS = 2 * ENVS * QUOTA
EVERY = 3
LOCKSTEP = {"actors": 2, "quota_steps": QUOTA, "checkpoint_updates": EVERY}
LESSONS = {
    "mass": {
        "curriculum": [
            {
                "name": f"until {share}",
                "completion_criteria": {
                    "measure": "progress",
                    "behavior": NAME,
                    "threshold": share,
                    "require_reset": True,
                },
                "value": share,
            }
            for share in (0.05, 0.15, 0.4, 0.7)
        ]
        + [{"name": "last", "value": 1.0}]
    }
}


def updates(number: int, **changes: Any) -> dict[str, Any]:
    """Returns a behavior that is done after this many updates."""
    return {NAME: settings(max_steps=number * ROUND_STEPS, **changes)}


def run_in(folder: Path, behaviors: dict[str, Any], *, more: dict[str, Any] | None = None, **rollcast: Any) -> Run:
    """Returns a run of two actors in a folder."""
    folder.mkdir(exist_ok=True)
    return Run(folder, behaviors, LOCKSTEP, rollcast, more or {})


def left_behind(run: Run) -> dict[str, Any]:
    """Reads its summary."""
    summary: dict[str, Any] = json.loads((run.folder / "summary.json").read_text())
    return summary


def test_two_runs_are_bit_equal_whatever_the_timing(tmp_path: Path) -> None:
    """The order of actors, chunk sizes and checkpoint times change no tensor."""
    one = run_in(tmp_path / "one", updates(8))
    with playing(one, Actor("left"), Actor("right", delay_seconds=0.3)):
        assert one.serve() == ExitCode.OK
    hasty: dict[str, Any] = {"max_chunk_age_seconds": 0.001, "max_chunk_steps": 37, "checkpoint_seconds": 0.1}
    other = run_in(tmp_path / "other", updates(8), **hasty)
    with playing(other, Actor("left", delay_seconds=0.3), Actor("right")):
        assert other.serve() == ExitCode.OK

    assert differences(one.final(), other.final()) == []
    state = one.final()["state"]
    assert state["version"] == 8
    assert state["steps_trained"] == 8 * ROUND_STEPS
    assert state["tally"]["episodes"] > 20
    assert (one.folder / f"{NAME}.onnx").read_bytes() == (other.folder / f"{NAME}.onnx").read_bytes()
    assert left_behind(one)["lockstep"]["reproducible"]
    assert left_behind(one)["ledger"]["dropped"] == {}

    files = [
        path for path in one.folder.rglob("*") if path.is_file() and path.suffix != ".jsonl" and path.name != ".lock"
    ]
    kept = {path: path.read_bytes() for path in files}
    assert one.serve("--resume") == ExitCode.OK, "it is finished, and says so"
    assert {path: path.read_bytes() for path in kept} == kept


def test_broken_connections_and_pauses_leave_no_trace(tmp_path: Path) -> None:
    """Lost connections and pauses change no tensor."""
    runs = []
    for name in ("quiet", "disturbed"):
        run = run_in(tmp_path / name, updates(30), lease_seconds=30.0)
        left = Actor("left", vector=True, breaks=name == "disturbed")
        with playing(run, left, Actor("right", vector=True)):
            with meanwhile(partial(disturb, run, left, 2 if left.breaks else 0)):
                assert run.serve() == ExitCode.OK
            assert not left.breaks or (left.link is not None and left.link.reconnects >= 2)
        runs.append(run)

    assert differences(runs[0].final(), runs[1].final()) == []
    state = runs[0].final()["state"]
    assert state["steps_trained"] < state["version"] * ROUND_STEPS, "vector environments ignored some actions"
    assert left_behind(runs[1])["lockstep"]["reproducible"]


@pytest.mark.parametrize("leave", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_k_and_m_updates_are_k_stop_resume_m(tmp_path: Path, leave: bool) -> None:
    """After a stop, the rounds since the checkpoint are repeated by old or new actors."""
    parted = run_in(tmp_path / "parted", updates(10**6))
    port = reserve_ports()
    with playing(parted, Actor("left"), Actor("right"), leave=leave):
        with meanwhile(lambda: stop_at_round(parted, EVERY + 2)):
            assert parted.serve(port=port) == ExitCode.OK
        checkpoint = parted.state()["extra"]["lockstep"]["round"]
        assert checkpoint % EVERY == 0
        assert left_behind(parted)["lockstep"]["round"] >= checkpoint
        parted.behaviors = updates(checkpoint + 5)
        if not leave:
            assert parted.serve("--resume", port=port) == ExitCode.OK
    if leave:
        with playing(parted, Actor("left"), Actor("right")):
            assert parted.serve("--resume", port=port) == ExitCode.OK
    whole = run_in(tmp_path / "whole", updates(checkpoint + 5))
    with playing(whole, Actor("left"), Actor("right")):
        assert whole.serve() == ExitCode.OK

    assert differences(whole.final(), parted.final()) == []
    assert parted.final()["state"]["version"] == checkpoint + 5
    assert (left_behind(parted)["generation"], left_behind(whole)["generation"]) == (2, 1)
    assert left_behind(parted)["lockstep"]["reproducible"]


def everything(demonstration: Path) -> dict[str, Any]:
    """Returns a behavior with everything that draws random numbers or keeps statistics."""
    spec = make_env_batch("CartPole-v1", num_envs=1, behavior=NAME).spec
    demo = str(demonstrate(demonstration, spec, lengths=(20, 20)))
    small_network = {"hidden_units": 16, "num_layers": 1}
    return {
        "network_settings": {
            "hidden_units": 16,
            "num_layers": 1,
            "normalize": True,
            "memory": {"sequence_length": 8, "memory_size": 16},
        },
        "reward_signals": {
            "extrinsic": {"strength": 1.0},
            "curiosity": {"strength": 0.02, "network_settings": small_network},
            "rnd": {"strength": 0.02, "network_settings": small_network},
            "gail": {"strength": 0.1, "demo_path": demo, "use_vail": True, "network_settings": small_network},
            toys.SURPRISE: {"strength": 0.01},
        },
        "companions": {toys.WORLD: {"min_buffer_size": ROUND_STEPS + 1, "min_new_data_count": 1}},
        "data_buffers": {"experience": {"max_steps": 2 * ROUND_STEPS}},
        "behavioral_cloning": {"demo_path": demo, "strength": 0.5, "samples_per_update": 32, "num_epoch": 1},
        "hyperparameters": {"batch_size": 96, "buffer_size": 64, "num_epoch": 1, "learning_rate_schedule": "constant"},
    }


def replayed(*, memory: bool, saves: bool = True) -> dict[str, Any]:
    """Returns a behavior with a replay memory that evicts old steps, whose first steps are uniform.

    With a memory, sequences have a burn-in, and a signal ignores ends.
    """
    network = {"hidden_units": 16, "num_layers": 1, "normalize": True}
    if memory:
        network["memory"] = {"sequence_length": 8, "memory_size": 16}  # type: ignore[assignment]
    return {
        "trainer_type": "sac",
        "network_settings": network,
        "reward_signals": {"extrinsic": {}, **({"rnd": {}} if memory else {})},
        "hyperparameters": {
            "batch_size": 32,
            "buffer_size": 700,
            "buffer_init_steps": 400,
            "buffer_init_actions": "uniform",
            "burn_in": 3 if memory else 0,
            "steps_per_update": 12,
            "save_replay_buffer": saves,
        },
    }


@pytest.mark.parametrize(
    "kind",
    [
        "everything",
        "sac with memory",
        *(pytest.param(kind, marks=pytest.mark.nightly) for kind in ("appo", "impala", "poca", "sac")),
    ],
)
def test_whatever_learns_is_repeated(tmp_path: Path, kind: str) -> None:
    """Memories, learned signals, imitation, companions, APPO, IMPALA, POCA and replay repeat after a resume."""
    learner = {"trainer_type": kind, "threaded": False} if kind != "everything" else everything(tmp_path / "x.demo")
    if kind == "impala":
        learner["hyperparameters"] = {"batch_size": 32, "buffer_size": 64, "learning_rate_schedule": "constant"}
    if kind.startswith("sac"):
        learner = replayed(memory=kind != "sac")
    parted = run_in(tmp_path / "parted", updates(10**6, **learner))
    with (
        playing(parted, Actor("left"), Actor("right"), leave=True),
        meanwhile(partial(stop_at_round, parted, EVERY + 1)),
    ):
        assert parted.serve() == ExitCode.OK
    more = updates(parted.state()["extra"]["lockstep"]["round"] + 5, **learner)
    parted.behaviors = more
    whole = run_in(tmp_path / "whole", more)
    for run, flags in ((parted, ["--resume"]), (whole, [])):
        with playing(run, Actor("left"), Actor("right")):
            assert run.serve(*flags) == ExitCode.OK

    assert differences(whole.final(), parted.final()) == []
    trained = whole.final()["state"]["companions"]
    assert [each["trainings"] > 2 for each in trained.get("trainers", {}).values()] == [True] * (kind == "everything")


@pytest.mark.nightly
@pytest.mark.parametrize("memory", [False, True])
def test_replay_is_repeated_whatever_the_timing(tmp_path: Path, *, memory: bool) -> None:
    """Replay trainers make the owed updates once a round is complete, whatever the timing."""
    runs = []
    for name, delay_seconds in (("one", 0.3), ("other", 0.0)):
        run = run_in(tmp_path / name, updates(8, **replayed(memory=memory)))
        with playing(run, Actor("left"), Actor("right", delay_seconds=delay_seconds)):
            assert run.serve() == ExitCode.OK
        runs.append(run)
    assert differences(runs[0].final(), runs[1].final()) == []
    state = runs[0].final()["state"]
    assert state["optimizer_steps"] == (8 * ROUND_STEPS - 400) // 12
    assert state["version"] == state["optimizer_steps"] + 1, "one round had no update"
    assert left_behind(runs[0])["lockstep"]["reproducible"]


def test_a_run_that_lost_its_replay_memory_says_so(tmp_path: Path) -> None:
    """A run resumed without its replay memory is marked with the name of the setting."""
    run = run_in(tmp_path / "run", updates(10**6, **replayed(memory=False, saves=False)))
    with (
        playing(run, Actor("left"), Actor("right"), leave=True),
        meanwhile(partial(stop_at_round, run, EVERY + 1)),
    ):
        assert run.serve() == ExitCode.OK
    run.behaviors = updates(run.state()["extra"]["lockstep"]["round"] + 5, **replayed(memory=False, saves=False))
    with playing(run, Actor("left"), Actor("right")):
        assert run.serve("--resume") == ExitCode.OK
    lockstep = left_behind(run)["lockstep"]
    assert not lockstep["reproducible"]
    assert "CartPole was resumed without its earlier experience" in lockstep["reason"]
    assert "save_replay_buffer is false" in lockstep["reason"]


def test_lessons_begin_with_rounds(tmp_path: Path) -> None:
    """Lessons that reset environments do not change the result of a resumed run."""
    behaviors = updates(40)
    whole, parted = (run_in(tmp_path / name, behaviors, more={"environment_parameters": LESSONS}) for name in "wp")
    with playing(whole, Actor("left"), Actor("right")):
        assert whole.serve() == ExitCode.OK
    with playing(parted, Actor("left"), Actor("right"), leave=True), meanwhile(lambda: stop_at_round(parted, 4)):
        assert parted.serve() == ExitCode.OK
    lesson = parted.state()["extra"]["lessons"]["numbers"]["mass"]
    assert lesson < 4
    with playing(parted, Actor("left"), Actor("right")):
        assert parted.serve("--resume") == ExitCode.OK

    assert differences(whole.final(), parted.final()) == []
    assert whole.state()["extra"]["lessons"]["numbers"] == {"mass": 4}


def test_one_barrier_over_all_behaviors(tmp_path: Path) -> None:
    """Two behaviors declared in different orders by different actors repeat round by round."""
    behaviors = {name: settings(max_steps=1500) for name in ("First", "Second")}
    runs = []
    for name, late in (("one", "a"), ("other", "b")):
        run = run_in(tmp_path / name, behaviors, lockstep={**LOCKSTEP, "actor_names": ["a", "b"], "quota_steps": None})
        actors = [Actor("a", 2, "First"), Actor("b", 4, "Second")]
        for actor in actors:
            actor.delay_seconds = 0.5 if actor.name == late else 0.0
        with playing(run, *actors):
            assert run.serve() == ExitCode.OK
        runs.append(run)

    for name in behaviors:
        assert differences(runs[0].final(name), runs[1].final(name)) == []
    first, second = (runs[0].final(name)["state"] for name in behaviors)
    assert first["steps_trained"] // first["version"] == 2 * 32, "buffer_size exactly: the quota is 64 / 2"
    assert second["steps_trained"] // second["version"] == 4 * 32
    assert differences(first["model"]["network"], second["model"]["network"]) != []


def _replace_an_actor(run: Run, folder: Path) -> None:
    """Kills an actor during the run, checks that rounds continue, starts another one, and ends the run."""
    operator = run.operator()
    with processes_in(folder) as processes:
        address = run.addresses().address
        killed = processes.actor(address, "CartPole-v1", "--num-envs", str(ENVS), "--behavior", NAME, name="right")

        def status() -> State:
            found = state_of(operator)
            check_books(found)
            return found

        wait_until(lambda: status().lockstep.round >= 2, "rounds of two actors", said=killed.said)
        assert status().lockstep.reproducible
        killed.kill()
        wait_until(lambda: not status().lockstep.reproducible, "the actor is missed")
        lost = status().lockstep
        assert "right" in lost.reason
        wait_until(lambda: status().lockstep.round > lost.round + 2, "rounds go on")
        assert status().lockstep.joined == 1
        newcomer = processes.actor(address, "CartPole-v1", "--num-envs", "1", "--behavior", NAME, name="newcomer")
        wait_until(lambda: status().lockstep.joined == 2, "another one takes its place", said=newcomer.said)
        assert {actor.actor_index for actor in status().actors} == {0, 1}
        assert status().lockstep.reason == lost.reason
        assert set(by_reason(status().behaviors[0].books.dropped)) <= {"not_training"}
        operator.drain(final=True)
        assert newcomer.wait() == ExitCode.OK, newcomer.said()


def test_a_lost_actor_spoils_the_run_and_does_not_end_it(tmp_path: Path) -> None:
    """A lost actor is marked in status, journal and summary; the others continue."""
    run = run_in(tmp_path / "runs", updates(10**6), target_return=10**6)
    (tmp_path / "logs").mkdir()
    with playing(run, Actor("left")), meanwhile(lambda: _replace_an_actor(run, tmp_path / "logs")):
        assert run.serve() == ExitCode.OK

    summary = left_behind(run)
    assert not summary["lockstep"]["reproducible"]
    events = [json.loads(line) for line in (run.folder / "events.jsonl").read_text().splitlines()]
    (spoiled,) = [event for event in events if event["event"] == "not_reproducible"]
    assert spoiled["reason"] == summary["lockstep"]["reason"]
    assert run.state()["extra"]["lockstep"]["reason"] == spoiled["reason"]
