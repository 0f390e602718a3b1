"""Tests that declarations are judged on the other side of the link."""

from __future__ import annotations

import queue
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
from rollcast.enums import ObservationKind
from rollcast.errors import Untrainable
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec

from learner.ingest.judgements import JudgeFailedError, LinkJudge
from learner.link.channel import Channel
from learner.link.footprint import JudgeDeclaration, Judgement
from learner.settings.service import ServiceSettings
from learner.trainers.judge import JudgeThread, judge
from tests.coded_link import coded
from tests.learner.ingest.parts import NAME, make_options, make_spec

SERVICE = ServiceSettings()
OPTIONS = make_options()
SETTINGS = next(iter(OPTIONS.behaviors.values()))


@contextmanager
def asked(ranks: int = 1) -> Iterator[LinkJudge]:
    """Starts the judge of the service over two pickling channels without receivers."""
    to_trainers: Channel[JudgeDeclaration] = Channel(coded)
    to_front: Channel[Judgement] = Channel(coded)
    asking = LinkJudge(to_trainers.send)
    thread = JudgeThread(SERVICE, to_front.send, ranks)
    to_trainers.divert(JudgeDeclaration, thread.ask)
    to_front.divert(Judgement, asking.answer)
    thread.start()
    try:
        yield asking
    finally:
        thread.close()


def test_an_answer_comes_although_no_side_looks_for_messages() -> None:
    """A judgement returns during a long update, with the figures of a local one."""
    with asked() as asking:
        assert asking(make_spec(), SETTINGS, SERVICE) == judge(make_spec(), SETTINGS, SERVICE)


def test_an_answer_names_the_ranks() -> None:
    """The trainers' side knows how many processes train together, and each needs memory."""
    with asked(ranks=3) as asking:
        assert asking(make_spec(), SETTINGS, SERVICE).ranks == 3


def test_a_refusal_is_told_as_it_would_be_told_here() -> None:
    """Message and metadata of a refusal cross the link."""
    small = ObservationSpec("pixels", np.dtype(np.uint8), (3, 3, 3), ObservationKind.IMAGE)
    spec, settings = BehaviorSpec(NAME, (small,), ActionSpec(discrete_branches=(2,))), SETTINGS
    with asked() as asking:
        with pytest.raises(Untrainable) as here:
            judge(spec, settings, SERVICE)
        with pytest.raises(Untrainable) as there:
            asking(spec, settings, SERVICE)
    assert (there.value.message, there.value.metadata) == (here.value.message, here.value.metadata)


def test_a_fault_of_the_judge_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the judge is reported as unexpected, and the next question is answered."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError("a fault for this test")

    with asked() as asking:
        with monkeypatch.context() as patch:
            patch.setattr("learner.trainers.judge.judge", fail)
            with pytest.raises(JudgeFailedError, match="ZeroDivisionError: a fault for this test"):
                asking(make_spec(), SETTINGS, SERVICE)
        assert asking(make_spec(), SETTINGS, SERVICE).total_bytes


def test_a_package_that_exits_does_not_take_the_judge_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that exits is an error, and the next question is answered."""

    def leave(*_: object) -> None:
        raise SystemExit("a package leaves")

    with asked() as asking:
        with monkeypatch.context() as patch:
            patch.setattr("learner.trainers.judge.judge", leave)
            with pytest.raises(JudgeFailedError, match="SystemExit: a package leaves"):
                asking(make_spec(), SETTINGS, SERVICE)
        assert asking(make_spec(), SETTINGS, SERVICE).total_bytes


def test_nobody_waits_for_a_judge_that_has_gone() -> None:
    """Open and later questions are answered when the run ends."""
    sent: queue.SimpleQueue[JudgeDeclaration] = queue.SimpleQueue()
    asking = LinkJudge(sent.put)
    with ThreadPoolExecutor(1) as callers:
        open_question = callers.submit(asking, make_spec(), SETTINGS, SERVICE)
        sent.get(timeout=30)
        asking.close()
        with pytest.raises(JudgeFailedError, match="the run is ending"):
            open_question.result(30)
    with pytest.raises(JudgeFailedError, match="the run is ending"):
        asking(make_spec(), SETTINGS, SERVICE)


def test_the_process_ends_after_the_declaration_that_is_judged() -> None:
    """The process ends after the current judgement and skips waiting ones."""
    ending = """
import time
from learner.link.footprint import JudgeDeclaration
from learner.trainers import judge
from tests.learner.link.test_judgement import SERVICE, SETTINGS, make_spec

def slowly(*_):
    print("begins", flush=True)
    time.sleep(0.5)
    print("ends", flush=True)

judge.judge = slowly
thread = judge.JudgeThread(SERVICE, lambda _: None)
thread.start()
thread.ask(JudgeDeclaration(1, make_spec(), SETTINGS))
thread.ask(JudgeDeclaration(2, make_spec(), SETTINGS))
time.sleep(0.1)
thread.close()
"""
    ended = subprocess.run([sys.executable, "-c", ending], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout.split()) == (0, ["begins", "ends"]), ended.stderr
