"""Tests that declarations are judged once and only their callers wait."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from rollcast.errors import Untrainable
from rollcast.specs import BehaviorSpec

from learner.link.channel import Link
from learner.link.footprint import Footprint
from learner.service.ingest.behaviors import BehaviorTable
from learner.service.ingest.ledger import Ledger
from learner.shared.settings.service import ServiceSettings
from learner.shared.settings.trainer import TrainerSettings
from tests.learner.service.ingest.parts import make_spec, open_default

WAIT_SECONDS = 20.0


class SlowJudge:
    """A judge that waits for the test and counts.

    Attributes:
        asked: Is set when an estimate begins.
        may_answer: Is waited for.
        names: Of the behaviors that were judged.
        refuses: Names of those that cannot be trained.
        faulty: Names of those that it fails at.
        ranks: Number of processes that train together.
    """

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.may_answer = threading.Event()
        self.names: list[str] = []
        self.refuses: set[str] = set()
        self.faulty: set[str] = set()
        self.ranks = 1

    def __call__(self, spec: BehaviorSpec, settings: TrainerSettings, service: ServiceSettings) -> Footprint:
        """Waits, and answers."""
        self.names.append(spec.name)
        self.asked.set()
        assert self.may_answer.wait(WAIT_SECONDS)
        if spec.name in self.faulty:
            raise ZeroDivisionError
        if spec.name in self.refuses:
            raise Untrainable(f"{spec.name}: no")
        return Footprint(ring_rows=1, row_bytes=100, ranks=self.ranks)


def test_a_second_actor_joins_the_judgement_of_the_first() -> None:
    """Two declarations share one estimate, and the table answers others meanwhile."""
    judge = SlowJudge()
    behaviors = BehaviorTable(open_default(), Ledger(), judge, Link().to_trainers.send)
    with ThreadPoolExecutor(2) as actors:
        both = [actors.submit(behaviors.declare, make_spec(), 0, 1) for _ in range(2)]
        assert judge.asked.wait(WAIT_SECONDS)
        assert behaviors.all() == ()
        assert behaviors.state_dict() == {"behaviors": []}
        judge.may_answer.set()
        one, other = (each.result(WAIT_SECONDS) for each in both)
    assert one is other
    assert behaviors.all() == (one,)
    assert judge.names == [one.name]
    assert behaviors.declare(make_spec(), 0, 1) is one
    assert judge.names == [one.name]


def test_those_who_join_a_refusal_are_refused() -> None:
    """A refusal is shared by concurrent declarations, and a later one is judged again."""
    judge = SlowJudge()
    judge.refuses.add("A")
    behaviors = BehaviorTable(open_default(), Ledger(), judge, Link().to_trainers.send)
    with ThreadPoolExecutor(2) as actors:
        both = [actors.submit(behaviors.declare, make_spec("A"), 0, 1) for _ in range(2)]
        assert judge.asked.wait(WAIT_SECONDS)
        judge.may_answer.set()
        for each in both:
            with pytest.raises(Untrainable, match="A: no"):
                each.result(WAIT_SECONDS)
    count = len(judge.names)
    judge.refuses.clear()
    assert behaviors.declare(make_spec("A"), 0, 1).index == 0
    assert len(judge.names) == count + 1


def test_behaviors_that_are_declared_together_share_the_memory() -> None:
    """Behaviors judged together share the memory, so only those that fit together are accepted."""
    judge = SlowJudge()
    behaviors = BehaviorTable(open_default(max_training_bytes=250), Ledger(), judge, Link().to_trainers.send)
    with ThreadPoolExecutor(3) as actors:
        all_three = [actors.submit(behaviors.declare, make_spec(name), 0, 1) for name in ("A", "B", "C")]
        assert judge.asked.wait(WAIT_SECONDS)
        judge.may_answer.set()
        refused = [each for each in all_three if each.exception(WAIT_SECONDS) is not None]
    assert len(refused) == 1
    with pytest.raises(Untrainable, match="in addition to 200 for other behaviors"):
        refused[0].result()


def test_the_memory_of_all_ranks_counts() -> None:
    """Each rank has a ring, networks and signals, and all share the minibatch; the refusal says so."""
    found = Footprint(ring_rows=10, row_bytes=5, network_bytes=7, batch_bytes=100, signal_bytes=3)
    assert (found.total_bytes, replace(found, ranks=3).total_bytes) == (160, 280)
    judge = SlowJudge()
    judge.may_answer.set()
    judge.ranks = 2
    behaviors = BehaviorTable(open_default(max_training_bytes=150), Ledger(), judge, Link().to_trainers.send)
    with pytest.raises(Untrainable, match=r"needs 200 bytes .*; all but the minibatch in each of 2 processes"):
        behaviors.declare(make_spec(), 0, 1)


def test_restored_behaviors_count() -> None:
    """Restored behaviors are judged with the next declaration; one that is not trained takes nothing."""
    judge = SlowJudge()
    judge.may_answer.set()
    before = BehaviorTable(open_default(), Ledger(), judge, Link().to_trainers.send)
    for name in ("A", "B"):
        before.declare(make_spec(name), 0, 1)
    judge.refuses.add("B")
    judge.names.clear()
    after = BehaviorTable(open_default(max_training_bytes=150), Ledger(), judge, Link().to_trainers.send)
    after.load_state_dict(before.state_dict())
    assert judge.names == []
    with pytest.raises(Untrainable, match="needs 100 bytes in addition to 100 for other behaviors"):
        after.declare(make_spec("C"), 0, 1)
