"""Tests that declarations are judged on the other side of the link."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
from rollcast.enums import ObservationKind
from rollcast.errors import Untrainable
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec

from learner.link.channel import Channel
from learner.link.footprint import EstimateMemory, Footprint, MemoryEstimate
from learner.service.ingest.memory_estimates import EstimateFailedError, LinkEstimator
from learner.shared.settings.service import ServiceSettings
from learner.training.trainers.memory_estimate import EstimatorThread, estimate_memory
from tests.coded_link import coded
from tests.learner.service.ingest.parts import NAME, make_options, make_spec

SERVICE = ServiceSettings()
OPTIONS = make_options()
SETTINGS = next(iter(OPTIONS.behaviors.values()))


@contextmanager
def asked(ranks: int = 1) -> Iterator[LinkEstimator]:
    """Starts the estimator of the service over two pickling channels without receivers."""
    to_trainers: Channel[EstimateMemory] = Channel(coded)
    to_front: Channel[MemoryEstimate] = Channel(coded)
    asking = LinkEstimator(to_trainers.send)
    thread = EstimatorThread(SERVICE, to_front.send, ranks)
    to_trainers.divert(EstimateMemory, thread.ask)
    to_front.divert(MemoryEstimate, asking.answer)
    thread.start()
    try:
        yield asking
    finally:
        thread.close()


def test_an_answer_comes_although_no_side_looks_for_messages() -> None:
    """An estimate returns during a long update, with the figures of a local one."""
    with asked() as asking:
        assert asking(make_spec(), SETTINGS, SERVICE) == estimate_memory(make_spec(), SETTINGS, SERVICE)


def test_an_answer_names_the_ranks() -> None:
    """The trainers' side knows how many processes train together, and each needs memory."""
    with asked(ranks=3) as asking:
        assert asking(make_spec(), SETTINGS, SERVICE).ranks == 3


def test_a_refusal_is_told_as_it_would_be_told_here() -> None:
    """Message and metadata of a refusal cross the link."""
    small = ObservationSpec("pixels", np.dtype(np.uint8), (3, 3, 3), ObservationKind.IMAGE)
    spec = BehaviorSpec(NAME, (small,), ActionSpec(discrete_branches=(2,)))
    network = SETTINGS.network_settings.model_copy(update={"vis_encode_type": "resnet"})
    settings = SETTINGS.model_copy(update={"network_settings": network})
    with asked() as asking:
        with pytest.raises(Untrainable) as here:
            estimate_memory(spec, settings, SERVICE)
        with pytest.raises(Untrainable) as there:
            asking(spec, settings, SERVICE)
    assert (there.value.message, there.value.metadata) == (here.value.message, here.value.metadata)


@pytest.mark.parametrize("error", [ZeroDivisionError("a fault for this test"), SystemExit("a package leaves")])
def test_a_fault_of_the_judge_is_no_refusal(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """An error of the estimator, or a package that exits, is reported as unexpected; the next question is answered."""

    def fail(*_: object) -> None:
        raise error

    with asked() as asking:
        with monkeypatch.context() as patch:
            patch.setattr("learner.training.trainers.memory_estimate.estimate_memory", fail)
            with pytest.raises(EstimateFailedError, match=f"{type(error).__name__}: {error}"):
                asking(make_spec(), SETTINGS, SERVICE)
        assert asking(make_spec(), SETTINGS, SERVICE).total_bytes


def test_closing_ends_the_thread_after_the_question_that_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed estimator answers the question that it is at, and skips those that wait; its thread is no daemon."""
    begun, goes_on = threading.Event(), threading.Event()
    answers: list[int] = []

    def slowly(*_: object) -> Footprint:
        begun.set()
        assert goes_on.wait(300)
        return Footprint(ring_rows=1, row_bytes=1)

    monkeypatch.setattr("learner.training.trainers.memory_estimate.estimate_memory", slowly)
    thread = EstimatorThread(SERVICE, lambda answer: answers.append(answer.number))
    before = set(threading.enumerate())  # an estimator of an earlier test may be about to end
    thread.start()
    try:
        (running,) = set(threading.enumerate()) - before
        for number in (1, 2):
            thread.ask(EstimateMemory(number, make_spec(), SETTINGS))
        assert begun.wait(300)
    finally:
        thread.close()
        goes_on.set()
    running.join(300)
    assert (answers, running.is_alive(), running.daemon) == ([1], False, False)


def test_nobody_waits_for_a_judge_that_has_gone() -> None:
    """Open and later questions are answered when the run ends."""
    sent: queue.SimpleQueue[EstimateMemory] = queue.SimpleQueue()
    asking = LinkEstimator(sent.put)
    with ThreadPoolExecutor(1) as callers:
        open_question = callers.submit(asking, make_spec(), SETTINGS, SERVICE)
        sent.get(timeout=30)
        asking.close()
        with pytest.raises(EstimateFailedError, match="the run is ending"):
            open_question.result(30)
    with pytest.raises(EstimateFailedError, match="the run is ending"):
        asking(make_spec(), SETTINGS, SERVICE)
