"""Tests the budgets of calls: units with a clock of their own, and an attack over real sockets."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from rollcast.auth import Role
from rollcast.errors import Untrainable, WireError
from rollcast.specs import BehaviorSpec
from rollcast.v1 import session_pb2

from learner.link.footprint import Footprint
from learner.service.calls import budgets, session_calls
from learner.service.calls.budgets import MAX_WAIT_SECONDS, Budget, CallBudgets
from tests.learner.judging import accept
from tests.learner.service.calls.harness import SECONDS, Actor, failure, running
from tests.learner.service.calls.samples import NAME, make_options, make_spec
from tests.learner.service.calls.test_identity import identity
from tests.learner.service.identity.certificates import Folder
from tests.learner.service.ingest.parts import open_default


def test_a_caller_waits_for_its_share() -> None:
    """After the burst, calls wait until their time is the share of the time that passed; a pause restores the burst."""
    budget = Budget(0.1, 1.0)
    budget.charge(1.0)
    assert budget.wait_seconds(0.0) == 0
    budget.charge(0.5)
    assert budget.wait_seconds(0.0) == pytest.approx(5.0)
    assert budget.wait_seconds(5.0) == pytest.approx(0.0)
    assert not budget.is_idle(5.0)
    assert budget.is_idle(15.0)


async def test_calls_that_come_at_once_wait_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits longer than the one before; one that would wait too long is refused at once."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    paid = CallBudgets(lambda _: None, clock=lambda: 0.0)
    of_caller = paid._of("ipv4:127.0.0.1:5")
    for budget in of_caller:
        budget.mean_seconds = 0.1
    refused: list[WireError] = []
    while not refused:
        try:
            await paid._wait(of_caller)
        except WireError as error:
            refused.append(error)
    assert refused[0].reason == "TOO_MANY_CALLS"
    assert waits == sorted(waits)
    assert 0 < waits[0] < waits[-1] <= MAX_WAIT_SECONDS
    assert paid._of("ipv4:127.0.0.1:6")[0].wait_seconds(0.0) == 0, "of another connection"
    assert paid._of("ipv4:127.0.0.2:5")[1].wait_seconds(0.0) == 0, "of another host"


async def flood(actor: Actor, way: str) -> None:
    """Makes expensive calls one after the other, for ever; refused ones too."""
    report = session_pb2.PolicyReport(behavior_index=0, error="x" * 100)
    calls: dict[str, Callable[[], object]] = {
        "RenewSession": lambda: actor.renew(policies=[report] * 150),
        "OpenSession": lambda: actor.open(actor_name="y" * 10**4),
        "DeclareBehavior": lambda: actor.declare(make_spec(size=3)),
    }
    while True:
        try:
            await calls[way]()  # type: ignore[misc]
        except WireError:
            await asyncio.sleep(0)


@pytest.mark.parametrize("way", ["RenewSession", "OpenSession", "DeclareBehavior"])
async def test_no_method_takes_the_loop_from_others(tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of any method, refused ones too, make their own principal wait and no other."""
    for name in ("PRINCIPAL_BURST_SECONDS", "PRINCIPAL_SHARE"):
        monkeypatch.setattr(budgets, name, 0.005)
    folder = Folder.make(tmp_path, lab=Role.ACTOR, other=Role.ACTOR)
    async with running(make_options(), identity=identity(folder)) as learner:
        learner.forgive()
        actors = [Actor(learner.server.port, f"other {n}", token=folder.tokens["other"]) for n in range(3)]
        for actor in actors:
            await actor.enter()
        has_waited = asyncio.Event()
        monkeypatch.setattr(learner.server._budgets, "_bounded", lambda _: has_waited.set())
        floods = [asyncio.create_task(flood(actor, way)) for actor in actors]
        async with asyncio.timeout(SECONDS):
            await has_waited.wait()
        async with Actor(learner.server.port, token=folder.tokens["lab"]) as honest:
            await honest.enter()
            await honest.renew()
        assert ("principal", "lab") in learner.server._budgets._budgets
        for task in floods:
            task.cancel()
        await asyncio.gather(*floods, return_exceptions=True)
        for actor in actors:
            await actor.channel.close()


async def test_refused_declarations_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Declarations that are judged and refused use up their principal's budget; another's is judged next."""
    monkeypatch.setattr(session_calls, "REFUSED_BURST_SECONDS", 0.5)
    judged: list[str] = []

    def judge(spec: BehaviorSpec, *settings: object) -> Footprint:
        judged.append(spec.name)
        if spec.name != NAME:
            raise Untrainable("no network")
        return accept(spec, *settings)  # type: ignore[arg-type]

    folder = Folder.make(tmp_path, lab=Role.ACTOR, other=Role.ACTOR)
    options = open_default()
    async with (
        running(options, identity=identity(folder), judge_declaration=judge) as learner,
        Actor(learner.server.port, "other", token=folder.tokens["other"]) as other,
        Actor(learner.server.port, token=folder.tokens["lab"]) as honest,
    ):
        await other.open()
        await honest.open()
        names = [f"Wrong{number}" for number in range(15)]
        errors = await asyncio.gather(*(failure(other.declare(make_spec(name))) for name in names))
        reasons = Counter(error.reason for error in errors)
        assert reasons["UNTRAINABLE"] == len(judged) <= 6
        assert reasons["TOO_MANY_CALLS"] == 15 - len(judged)
        await honest.declare()
        assert judged[-1] == NAME
