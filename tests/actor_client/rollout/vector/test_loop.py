"""Tests the loop: it follows the link, survives failing environments and ends cleanly."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from actor_client.counts import RolloutCounts
from actor_client.envs.errors import EnvironmentFailedTooOften
from actor_client.envs.scalar import ScalarBatch
from actor_client.exits import ExitCode
from actor_client.rollout.failures import STEPS_PER_FAILURE
from actor_client.rollout.vector.loop import LoopLimits, RolloutLoop
from tests.actor_client.envs import toys
from tests.actor_client.rollout.harness import KeepingLink, KeepingSession, RulePolicy, pieces
from tests.actor_client.rollout.vector.test_lockstep import acting


def toy_loop(
    *environments: toys.Toy, limits: LoopLimits, link: dict[str, Any] | None = None, **options: Any
) -> tuple[RolloutLoop, KeepingLink, KeepingSession]:
    """Returns a loop over the first environments; each remake takes the next one."""
    waiting = list(environments)

    def make() -> ScalarBatch:
        return ScalarBatch([waiting.pop(0)], "Toy")

    batch = make()
    made = KeepingLink(batch.spec, **(link or {}))
    made.policies.append(RulePolicy(batch.spec))
    session = KeepingSession()
    limits = dataclasses.replace(limits, remake_pause_seconds=0.0)
    return RolloutLoop(make, batch, session, lambda: made, limits=limits, **options), made, session


def test_it_ends_after_so_many_steps_or_episodes() -> None:
    """Both limits end the loop; open segments are sent and the environments are closed."""
    environment = toys.Toy(length=4)
    loop, link, _ = toy_loop(environment, limits=LoopLimits(max_steps=10))
    stats = loop.run()

    assert (stats.steps, stats.episodes) == (10, 2)
    assert [len(piece) for piece in pieces(link.chunks)] == [4, 4, 2]
    assert link.books.view().balanced
    assert link.books.view().unacked == 10
    assert environment.closed

    loop, _, _ = toy_loop(toys.Toy(length=4), limits=LoopLimits(max_episodes=3))
    assert loop.run().steps == 12


def test_it_waits_for_a_first_policy() -> None:
    """Nothing is stepped before the first policy."""
    environment = toys.Toy()
    loop, link, session = toy_loop(environment, limits=LoopLimits(max_steps=3))
    link.policies.clear()

    def arrive() -> None:
        assert environment.steps == 0
        if session.waits == 3:
            link.policies.append(RulePolicy(link.spec, version=5))

    session.on_wait = arrive
    stats = loop.run()

    assert stats.steps == 3
    assert pieces(link.chunks)[0].versions == (5, 5, 5)


def test_a_hold_sends_what_is_closed_and_waits() -> None:
    """A hold stops steps and sends closed segments; then the loop continues."""
    environment = toys.Toy(length=3)
    loop, link, session = toy_loop(environment, limits=LoopLimits(max_steps=8))
    link.allowed = lambda: environment.steps != 5 or session.waits >= 2
    seen: list[tuple[int, int]] = []
    session.on_wait = lambda: seen.append((environment.steps, sum(chunk.rows for chunk in link.chunks)))

    loop.run()

    assert seen == [(5, 3), (5, 3)]
    assert [len(piece) for piece in pieces(link.chunks)] == [3, 3, 2]


def test_policies_are_swapped_between_steps() -> None:
    """A new policy acts from the next step on, and each row has its version."""
    environment = toys.Toy(length=100)
    loop, link, _ = toy_loop(environment, limits=LoopLimits(max_steps=6), link={"time_horizon": 100})
    first, second = RulePolicy(link.spec), RulePolicy(link.spec, version=1)
    link.policies.append(first)

    def arrive() -> bool:
        if environment.steps == 3:
            link.policies.append(second)
        return True

    link.allowed = arrive
    loop.run()

    # `allowed` is asked after the swap of its step, so the new policy acts one step later.
    assert [piece.versions for piece in pieces(link.chunks)] == [(0, 0, 0, 0, 1, 1)]
    assert (first.acted, second.acted) == (4, 2)


def test_a_lost_session_discards_and_begins_anew() -> None:
    """A lost session discards open rows in the old books, and the new books start at zero."""
    environment = toys.Toy(length=100)
    loop, link, _ = toy_loop(environment, limits=LoopLimits(max_steps=10))
    old = link.books

    def lose() -> bool:
        if environment.steps == 4 and link.sessions == 1:
            link.session_lost = True
        return True

    link.allowed = lose
    loop.run()

    assert dict(old.view().discarded) == {"session_lost": 5}
    assert old.view().open == 0
    assert link.books.view().produced == 5
    assert [piece.first_step for piece in pieces(link.chunks)] == [5]


def test_it_stops_when_the_link_stops() -> None:
    """A drain or a signal ends the loop between two steps, and open rows are sent."""
    environment = toys.Toy(length=100)
    loop, link, session = toy_loop(environment, limits=LoopLimits())

    def stop() -> bool:
        session.stopping = environment.steps == 6
        return True

    link.allowed = stop
    assert loop.run().steps == 7
    assert sum(chunk.rows for chunk in link.chunks) == 7


@pytest.mark.parametrize(
    ("first", "discarded"),
    [
        (lambda: toys.Toy(length=4, step_fails=(6,)), 2),
        (lambda: toys.Toy(length=4, reset_fails=(1,)), 3),
        (lambda: toys.Toy(length=4, reset_fails=(0,)), 0),
    ],
)
def test_failed_environments_are_made_anew(first: Callable[[], toys.Toy], discarded: int) -> None:
    """After a failure open segments are discarded as env_error, closed ones are sent, and seeds change."""
    failing, fresh = first(), toys.Toy(length=4)
    loop, link, _ = toy_loop(failing, fresh, limits=LoopLimits(max_episodes=2))
    with capture_logs() as logs:
        stats = loop.run()

    assert stats.env_failures == 1
    assert sum(link.books.view().discarded.values()) == discarded
    assert set(link.books.view().discarded) <= {"env_error"}
    assert link.books.view().balanced
    assert [log["event"] for log in logs] == ["environment_failed"]
    assert failing.closed
    assert fresh.closed
    assert fresh.seeds[0] != failing.seeds[0]


def test_rare_failures_do_not_end_it() -> None:
    """Failures rarer than one in `STEPS_PER_FAILURE` steps never end the loop."""
    environments = [toys.Toy(length=1000, step_fails=(STEPS_PER_FAILURE,)) for _ in range(20)]
    loop, _, _ = toy_loop(*environments, limits=LoopLimits(max_steps=20 * STEPS_PER_FAILURE))

    assert loop.run().env_failures == 19


def test_failures_that_come_too_often_end_it_though_good_steps_lie_between() -> None:
    """An environment that fails every eighth step ends the actor, which names the rate and the place."""
    environments = [toys.Toy(length=100, step_fails=(7,)) for _ in range(20)]
    counts = RolloutCounts()
    loop, link, _ = toy_loop(*environments, limits=LoopLimits(), counts=counts)
    with capture_logs() as logs, pytest.raises(EnvironmentFailedTooOften) as caught:
        loop.run()

    assert caught.value.exit_code is ExitCode.ENVIRONMENT_FAILED
    assert "4 failures in 21 steps; the last one: environment 0 failed: RuntimeError: step 7" in caught.value.message
    assert (counts.env_failures, counts.env_discarded_steps) == (4, 28)
    assert counts.env_discarded_steps == link.books.view().discarded["env_error"]
    said = [log for log in logs if log["event"] == "environment_failed"]  # on a busy machine more than one is due
    assert (said[0]["discarded_steps"], said[0]["steps"]) == (7, 7)


def test_nothing_is_declared_before_a_reset_succeeds() -> None:
    """Nothing is declared before a reset succeeds."""
    environments = [toys.Toy(reset_fails=(0,)), toys.Toy(reset_fails=(0,)), toys.Toy()]
    resets: list[list[int]] = []
    waiting = [ScalarBatch([each], "Toy") for each in environments]
    batch = waiting.pop(0)
    link = KeepingLink(batch.spec)
    link.policies.append(RulePolicy(batch.spec))

    def declare() -> KeepingLink:
        resets.append([each.resets for each in environments])
        return link

    limits = LoopLimits(max_steps=5, remake_pause_seconds=0.0)
    RolloutLoop(lambda: waiting.pop(0), batch, KeepingSession(), declare, limits=limits).run()
    assert resets == [[1, 1, 1]]


def first_steps(run_seed: int, actor_index: int) -> list[float]:
    """Returns what an actor sends first, with a real policy that draws its actions."""
    limits = LoopLimits(max_steps=16)
    with acting(actor_index, 1, run_seed=run_seed, limits=limits) as (_, link, loop):
        loop.run()
    rows = [piece.rows for piece in pieces(link.chunks)]
    seen = [number for each in rows for number in each["obs/obs"][:, 0].tolist()]
    return seen + [number for each in rows for number in each["discrete_action"][:, 0].tolist()]


def test_seeds_decide_what_an_actor_sends() -> None:
    """Equal seeds and indices give equal segments; others differ."""
    segments = [first_steps(1, 0), first_steps(2, 0), first_steps(1, 1)]

    assert first_steps(1, 0) == segments[0]
    assert len({tuple(segment) for segment in segments}) == 3
    assert len({tuple(segment[16:]) for segment in segments}) == 3


def test_stats_are_reported_now_and_then() -> None:
    """The callback gets the counters regularly."""
    reports: list[int] = []
    loop, _, _ = toy_loop(
        toys.Toy(length=10),
        limits=LoopLimits(max_steps=64),
        on_stats=lambda stats: reports.append(stats.steps),
        stats_every_seconds=0.0,
    )
    assert loop.run().steps_per_second > 0
    assert len(reports) == 4
    assert reports == sorted(reports)
