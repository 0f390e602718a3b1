"""The loop gives environments the run's parameters, and reports with which of them an episode began."""

from __future__ import annotations

from typing import Any

import pytest
from rollcast.v1 import policy_pb2
from structlog.testing import capture_logs

from actor_client.envs.scalar import ScalarBatch
from actor_client.rollout.vector.loop import LoopLimits, RolloutLoop
from tests.actor_client.envs import toys
from tests.actor_client.rollout.harness import KeepingLink, KeepingSession, RulePolicy


class Windy(toys.Toy):
    """Keeps the wind of each episode."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.winds: list[float] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        self.winds.append((options or {}).get("parameters", {}).get("wind", 0.0))
        return super().reset(seed=seed)


class Still(toys.Toy):
    """Its reset takes a seed only."""

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:  # type: ignore[override]
        """Begins an episode."""
        return super().reset(seed=seed)


def assigned(revision: int, wind: float, **more: Any) -> policy_pb2.Assignment:
    """Returns an assignment with one parameter."""
    parameters = {"wind": policy_pb2.Sampler(constant=wind)}
    return policy_pb2.Assignment(id=revision, settings_revision=revision, environment_parameters=parameters, **more)


def play(environments: list[toys.Toy], assignments: dict[int, policy_pb2.Assignment], steps: int) -> KeepingLink:
    """Plays one environment; an assignment arrives with the step of its number. Failed ones are remade from the list."""
    waiting = list(environments)
    first = waiting[0]

    def make() -> ScalarBatch:
        return ScalarBatch([waiting.pop(0)], "Toy")

    batch = make()
    link, session = KeepingLink(batch.spec), KeepingSession(assignment=assignments.get(0))
    link.policies.append(RulePolicy(batch.spec))

    def arrive() -> bool:
        if first.steps in assignments:
            session.assignment = assignments[first.steps]
        return True

    link.allowed = arrive
    limits = LoopLimits(max_steps=steps, remake_pause_seconds=0.0)
    RolloutLoop(make, batch, session, lambda: link, limits=limits).run()
    return link


def revisions(link: KeepingLink) -> list[int]:
    """Returns the revision of each finished episode."""
    found: list[int] = []
    for chunk in link.chunks:
        found += list(chunk.columns.get("episode/settings_revision", []))
    return found


def test_later_episodes_have_the_new_parameters() -> None:
    """An episode keeps the parameters with which it began."""
    environment = Windy(length=4)
    link = play([environment], {0: assigned(3, 1.0), 5: assigned(4, 2.0)}, steps=12)
    assert environment.winds == [1.0, 1.0, 2.0, 2.0]
    assert revisions(link) == [3, 3, 4]


def test_a_reset_begins_episodes_at_once() -> None:
    """Rows of the interrupted episode are discarded, and are in the books."""
    environment = Windy(length=4)
    link = play([environment], {0: assigned(3, 1.0), 5: assigned(4, 2.0, reset=policy_pb2.RESET_MODE_NOW)}, steps=10)
    assert environment.winds == [1.0, 1.0, 2.0, 2.0]
    assert revisions(link) == [3, 4]
    assert link.books.view().discarded == {"reset": 2}
    assert link.books.view().balanced


def test_remade_environments_have_the_parameters() -> None:
    """A failure loses neither parameters nor revision."""
    remade = Windy(length=4)
    link = play([Windy(length=4, step_fails=(5,)), remade], {0: assigned(3, 1.0)}, steps=10)
    assert set(remade.winds) == {1.0}
    assert revisions(link) == [3, 3]


@pytest.mark.parametrize("count", [0, 1])
def test_environments_that_take_none_are_named_once(count: int) -> None:
    """Their episodes have no revision, so no lesson counts them; without parameters nothing is said."""
    assignments = {0: assigned(3, 1.0), 5: assigned(4, 2.0)} if count else {0: policy_pb2.Assignment()}
    with capture_logs() as logs:
        link = play([Still(length=4)], assignments, steps=12)
    assert revisions(link) == []
    warned = [line for line in logs if line["event"] == "environment_parameters_not_applied"]
    assert [line["parameters"] for line in warned] == ["wind"] * count
