"""Tests training in real PettingZoo environments, with learners and actors as processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rollcast.demonstrations.reading import read_demonstration

from actor_client.pettingzoo.agent_roles import AgentRoles, RoleRules
from actor_client.pettingzoo.factory import make_agents
from tests.e2e.processes import Child, LearnerProcess, Processes, processes_in
from tests.e2e.runs import small, write_run

STEPS = 1_500
BOARD = {"hidden_units": 32, "num_layers": 1, "vis_encode_type": "fully_connected"}


def play(processes: Processes, learner: LearnerProcess, env: str, *arguments: str, name: str = "zoo") -> Child:
    """Starts an actor."""
    options = ("--num-envs", "4", *arguments)
    return processes.actor(learner.address, env, *options, name=name, command="pettingzoo")


def ends_well(learner: LearnerProcess, actors: list[Child]) -> dict[str, Any]:
    """Waits for the end of all, and returns the summary."""
    codes = [learner.wait(), *(actor.wait() for actor in actors)]
    assert not any(codes), learner.said() + "".join(actor.said() for actor in actors)
    summary: dict[str, Any] = json.loads((learner.folder / "summary.json").read_text())
    for actor in actors:
        for books in actor.events("books"):
            assert books["open"] == books["unacked"] == 0, books
    return summary


FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "Spread": ("simple_spread_v3", {}),
    "Rps": ("rps_v2", {}),
    "Four": ("connect_four_v3", BOARD),
    "Knights": ("pettingzoo.butterfly.knights_archers_zombies_v11:env", {}),
    "Walker": ("multiwalker_v9", {}),
    "Pursuit": ("pursuit_v5", BOARD),
    "Teams": ("connect_four_v3", BOARD),
}


def test_every_family_trains(tmp_path: Path) -> None:
    """Environments of each family train to their step limit; all actors end with balanced books.

    In one of them both players of a turn game learn as two teams of one behavior.
    """
    with processes_in(tmp_path) as processes:
        behaviors = {name: small(max_steps=STEPS) for name in FAMILIES}
        for name, (_, network) in FAMILIES.items():
            behaviors[name]["network_settings"] |= network
        learner = processes.learner(write_run(tmp_path, behaviors))
        actors = []
        for name, (env, _) in FAMILIES.items():
            teams = ("--team", "player_1=1") if name == "Teams" else ()
            actors.append(play(processes, learner, env, "--behavior", name, *teams, name=name))
        ends_well(learner, actors)
        assert all((learner.folder / f"{name}.onnx").exists() for name in FAMILIES)
        assert {event["behavior"] for event in actors[-1].events("acting")} == {"Teams?team=0", "Teams?team=1"}


def test_several_behaviors_train_over_two_processes(tmp_path: Path) -> None:
    """Chasers, a group of poca, and their prey, with different spaces, learn from two actors; each has its own policy."""
    with processes_in(tmp_path) as processes:
        behaviors = {"Chaser": small(max_steps=3 * STEPS, trainer_type="poca"), "Prey": small(max_steps=STEPS)}
        rules = ["--behavior", "adversary_*=Chaser", "--behavior", "agent_*=Prey"]
        rules += ["--group", "adversary_*=1", "--group-reward", "sum"]
        learner = processes.learner(write_run(tmp_path, behaviors))
        actors = [play(processes, learner, "simple_tag_v3", *rules, name=name) for name in ("one", "two")]
        ends_well(learner, actors)
        for actor in actors:
            assert {books["behavior"] for books in actor.events("books")} == {"Chaser", "Prey"}
            assert all(books["acked"] for books in actor.events("books"))
        assert {path.name for path in learner.folder.glob("*.onnx")} >= {"Chaser.onnx", "Prey.onnx"}


def test_episodes_are_recorded_and_evaluated(tmp_path: Path) -> None:
    """Recordings of a training hold whole episodes; an evaluation of the run counts those of all agents."""
    with processes_in(tmp_path) as processes:
        learner = processes.learner(write_run(tmp_path, {"Zoo": small(max_steps=STEPS)}))
        actor = play(processes, learner, "simple_spread_v3", "--record", str(tmp_path / "spread.demo"))
        ends_well(learner, [actor])
        environment = make_agents("simple_spread_v3", {}).environment
        spec = AgentRoles(RoleRules(), "Zoo").seat(environment, "agent_0").form.spec
        recorded = read_demonstration(tmp_path / "spread.demo", spec)
        assert recorded.episodes >= 3
        options = ["--env", "simple_spread_v3", "--pettingzoo", "--episodes", "12"]
        evaluation = processes.python(
            "evaluate", "-m", "learner", "evaluate", str(learner.folder), *options, "--actor-args", "--num-envs", "2"
        )
        assert evaluation.wait() == 0, evaluation.said()
        assert "Zoo: 12 episodes" in evaluation.out()


@pytest.mark.parametrize(
    ("env", "arguments", "code", "message"),
    [
        ("conect_four_v3", (), 11, "did you mean classic/connect_four-v3"),
        ("simple_tag_v3", (), 11, "adversary_0 and agent_0 have different observation spaces"),
        ("simple_spread_v3", ("--behavior", "adversary_*=A"), 10, "no --behavior matches the agent agent_0"),
        ("simple_spread_v3", ("--team", "agent_0=red"), 10, "team 'red' is not a number"),
        ("simple_spread_v3", ("--group-reward", "sum"), 10, "needs groups: add --group"),
    ],
)
def test_a_mistake_is_one_line(env: str, arguments: tuple[str, ...], code: int, message: str, tmp_path: Path) -> None:
    """A mistake in the command line ends the actor before it connects, with one line and its exit code."""
    with processes_in(tmp_path) as processes:
        actor = processes.actor("127.0.0.1:9", env, *arguments, command="pettingzoo")
        assert message in actor.fails_with(code)
