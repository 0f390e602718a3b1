"""Tests environment parameters and lessons with real processes."""

from __future__ import annotations

import asyncio
import json
import signal
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from prometheus_client.parser import text_string_to_metric_families
from rollcast.enums import ColumnRole, SegmentEnd
from rollcast.trajectories import Chunk
from rollcast.v1 import policy_pb2

from tests.e2e.processes import SECONDS, LearnerProcess, Processes
from tests.e2e.runs import small, write_run
from tests.e2e.unity import Gateway, run_for_any_behavior
from tests.learner.service.calls.harness import Actor, read_policy
from tests.learner.service.calls.samples import NAME, make_chunk

GATES = Path(__file__).parents[1] / "tools" / "gates"
COMBINATION = "tests.tools.gates.environments.combination:Combination"

CRITERIA = {"behavior": NAME, "signal_smoothing": False, "threshold": 50, "min_lesson_length": 2}
PARAMETERS: dict[str, Any] = {
    "wind": {"sampler_type": "uniform", "sampler_parameters": {"min_value": -1, "max_value": 1}},
    "mass": {
        "curriculum": [
            {"name": "light", "value": 1, "completion_criteria": {**CRITERIA, "require_reset": True}},
            {"name": "middle", "value": 4.5, "completion_criteria": CRITERIA},
            {"name": "heavy", "value": 9},
        ]
    },
    "gravity": 9.75,
}


def run_with_lessons(folder: Path) -> Path:
    """Writes a run file with environment parameters."""
    path = write_run(folder, {NAME: small()}, checkpoint_seconds=3600, lease_seconds=SECONDS)
    document = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**document, "environment_parameters": PARAMETERS}, sort_keys=False))
    return path


def episodes(sequence: int, generation: int, revision: int, *returns: float) -> Chunk:
    """Returns a chunk with only finished episodes of one revision."""
    count = len(returns)
    columns: dict[str, Any] = {
        "episode/agent": np.zeros(count, np.uint64),
        "episode/env": np.zeros(count, np.uint32),
        "episode/episode": np.arange(count, dtype=np.uint64) + 100 * sequence,
        "episode/return": np.array(returns, np.float32),
        "episode/length": np.full(count, 9, np.uint32),
        "episode/end": np.full(count, SegmentEnd.TERMINATED, np.uint8),
        "episode/first_version": np.zeros(count, np.uint64),
        "episode/last_version": np.zeros(count, np.uint64),
        "episode/settings_revision": np.full(count, revision, np.uint64),
    }
    return Chunk(
        sequence=sequence,
        generation=generation,
        episodes=count,
        agents=1,
        columns=columns,
        roles=dict.fromkeys(columns, ColumnRole.EPISODE),
    )


async def next_assignment(subscription: Any) -> policy_pb2.Assignment:
    """Reads a subscription until an assignment comes."""
    async with asyncio.timeout(SECONDS):
        while True:
            message = await subscription.read()
            if message.WhichOneof("message") == "assignment":
                return policy_pb2.Assignment.FromString(message.assignment.SerializeToString())


def port(learner: LearnerProcess) -> int:
    """Returns where a learner listens."""
    return int(learner.address.rpartition(":")[2])


async def learn_lessons(learner: LearnerProcess) -> policy_pb2.Assignment:
    """Takes part with a plain client until the second lesson has begun, and returns what was then told."""
    async with Actor(port(learner)) as actor:
        opened = await actor.open()
        told = opened.assignment
        assert list(told.parameter_order) == ["wind", "mass", "gravity"]
        assert (told.settings_revision, told.environment_parameters["mass"].constant) == (1, 1.0)
        assert told.environment_parameters["gravity"].constant == 9.75
        assert told.environment_parameters["wind"].uniform.low == -1.0
        assert told.environment_parameters["wind"].seed == 7, "the run's seed, and the first parameter without one"
        await actor.declare()
        upload = await actor.upload()
        await upload.until("opened")
        subscription = actor.subscribe()
        first = await next_assignment(subscription)
        assert (first.id, first.settings_revision, first.reset) == (told.id, 1, policy_pb2.RESET_MODE_NONE)
        await read_policy(subscription)
        await upload.send(make_chunk(9, generation=opened.generation))  # without rows no episode counts
        # One good episode is too few; old ones and those under another revision do not count.
        await upload.send(episodes(2, opened.generation, 1, 100.0))
        await upload.send(episodes(3, opened.generation, 0, 100.0, 100.0, 100.0))
        await upload.send(episodes(4, opened.generation, 1, 100.0))
        second = await next_assignment(subscription)
        assert second.id > first.id
        assert (second.settings_revision, second.reset) == (2, policy_pb2.RESET_MODE_NOW)
        assert second.environment_parameters["mass"].constant == 4.5
        assert second.environment_parameters["wind"].seed == 7
        await upload.send(episodes(5, opened.generation, 1, 100.0, 100.0))
        await upload.ack(5)
        return second


async def opening_of(learner: LearnerProcess) -> policy_pb2.Assignment:
    """Opens a session as another actor and returns the answer."""
    async with Actor(port(learner), "another") as actor:
        opened = await actor.open()
        return policy_pb2.Assignment.FromString(opened.assignment.SerializeToString())


def test_an_actor_sees_each_lesson_and_a_killed_learner_goes_on_in_it(processes: Processes) -> None:
    """An actor gets each lesson with a new revision; a killed learner resumes in its lesson."""
    run_file = run_with_lessons(processes.folder)
    learner = processes.learner(run_file)
    asyncio.run(learn_lessons(learner))
    (lesson,) = [row for row in learner.status().lessons if row.parameter == "mass"]
    assert (lesson.number, lesson.lessons, lesson.name) == (1, 3, "middle")
    assert status_of(learner)["mass"] == {"lesson_num": 1}
    learner.kill()
    assert [line["lesson"] for line in learner.events("lesson_begun")] == ["middle"]

    again = processes.learner(run_file, "--resume")
    told = asyncio.run(opening_of(again))
    assert (told.settings_revision, told.environment_parameters["mass"].constant) == (2, 4.5)
    assert told.reset == policy_pb2.RESET_MODE_NONE
    again.kill()

    # As in ML-Agents, the status file is what --resume restores, and people write into it.
    changed = status_of(again)
    changed["mass"]["lesson_num"] = 2
    (again.folder / "run_logs" / "training_status.json").write_text(json.dumps(changed))
    third = processes.learner(run_file, "--resume")
    told = asyncio.run(opening_of(third))
    assert (told.settings_revision, told.environment_parameters["mass"].constant) == (3, 9.0)


def test_players_begin_anew_where_a_lesson_asks_for_it(processes: Processes, tmp_path: Path) -> None:
    """A lesson with require_reset resets the players, and their steps stay in the books."""
    criteria = {"behavior": "CartPole", "threshold": 5.0, "min_lesson_length": 3, "require_reset": True}
    lessons = [{"name": "short", "value": 1.0, "completion_criteria": criteria}, {"name": "long", "value": 4.0}]
    run = run_for_any_behavior(tmp_path, environment_parameters={"length": {"curriculum": lessons}})
    learner = processes.learner(run)
    gateway = Gateway(processes, learner.address, play=("--statistics",), players=2)

    def has_begun() -> bool:
        return [row.number for row in learner.status().lessons] == [1]

    learner.wait_for(has_begun, "the second lesson", gateway.child)
    # A summary is written every 500 steps, an update is made every 256.
    learner.wait_for_version("CartPole", learner.behavior("CartPole").version + 4, gateway.child)
    metrics = scraped(learner)
    assert metrics["rollcast_learner_lesson_number", "length"] == 1.0
    assert metrics["rollcast_learner_environment_statistic", "Scripted/Two"] == 2.0
    gateway.child.signal(signal.SIGTERM)
    assert gateway.child.wait() == 0, gateway.child.said()
    told = gateway.told()
    assert [event["event"] for event in told].count("reset") == 4, "two players, at first and for the lesson"
    parameters = [line for event in told if event["event"] == "side_channel" for line in event["told"]]
    assert sorted(line["value"] for line in parameters if line.get("parameter") == "length") == [1.0, 1.0, 4.0, 4.0]
    (books,) = gateway.books()
    assert set(books["discarded"]) <= {"reset", "stopped"}
    learner.signal(signal.SIGTERM)
    assert learner.wait() == 0, learner.said()
    (events,) = (learner.folder / "CartPole").glob("events.out.*")
    assert b"Environment/Lesson Number/length" in events.read_bytes()


def test_environments_of_gymnasium_take_lessons(processes: Processes) -> None:
    """A lock that chance does not open is learned from a short one to the longest; each episode says its lesson."""
    # Whether it is learned depends on the seed (the gate says how often); rounds keep the machine's load out of it.
    learner = processes.learner(
        GATES / "runs" / "combination.yaml", "--seed", "7", "--set", "rollcast.lockstep.actors=1"
    )
    actor = processes.actor(learner.address, COMBINATION, "--num-envs", "8")
    assert learner.wait() == 0, learner.said()
    assert actor.wait() == 0, actor.said()
    assert [line["lesson"] for line in learner.events("lesson_begun")] == ["six", "nine", "twelve"]
    summary = json.loads((learner.folder / "summary.json").read_text())
    assert (summary["stop_reason"], summary["mean_return_100"] >= 0.8) == ("target_return", True)
    arguments = ("--env", COMBINATION, "--episodes", "5", "--json")
    evaluate = processes.python("evaluate", "-m", "learner", "evaluate", str(learner.folder), *arguments)
    assert evaluate.wait() == 0, evaluate.said()
    (found,) = json.loads(evaluate.out())["behaviors"]
    assert found["lengths"]["max"] > 9, "it is measured in the last lesson"


def status_of(learner: LearnerProcess) -> dict[str, Any]:
    """Reads training_status.json."""
    content: dict[str, Any] = json.loads((learner.folder / "run_logs" / "training_status.json").read_text())
    return content


def scraped(learner: LearnerProcess) -> dict[tuple[str, str], float]:
    """Returns a learner's metrics with a parameter or key, by name and label."""
    address = json.loads((learner.folder / "address.json").read_text())["http"]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=SECONDS) as answer:
        text = answer.read().decode()
    return {
        (sample.name, sample.labels.get("parameter") or sample.labels["key"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if {"parameter", "key"} & set(sample.labels)
    }
