"""Asks the trainers' side once what training each behavior requires, and compares it with the available memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from rollcast.errors import Untrainable
from rollcast.limits import MAX_POLICY_BYTES
from rollcast.specs import BehaviorSpec

from learner.link.footprint import EstimateMemory, Footprint, MemoryEstimate
from learner.shared.platform import available_bytes
from learner.shared.settings.service import ServiceSettings
from learner.shared.settings.trainer import TrainerSettings


class Estimator(Protocol):
    """Estimates memory on the trainers' side, where networks can be built (`learner.training.trainers.memory_estimate`)."""

    def __call__(self, spec: BehaviorSpec, settings: TrainerSettings, service: ServiceSettings) -> Footprint:
        """Returns what training requires. May take seconds; callable from any thread.

        Raises:
            Untrainable: The networks of the run file cannot be built for the behavior.
        """


class LinkEstimator:
    """Asks the trainers' side over the link, and blocks until it answers.

    Args:
        send: Sends a message to the trainers.
    """

    def __init__(self, send: Callable[[EstimateMemory], object]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._last = 0
        self._asked: dict[int, Future[MemoryEstimate]] = {}
        self._is_closed = False

    def __call__(self, spec: BehaviorSpec, settings: TrainerSettings, service: ServiceSettings) -> Footprint:
        """Returns what training requires; callable from any thread except the one that calls `answer`.

        Raises:
            Untrainable: The networks of the run file cannot be built for the behavior.
            EstimateFailedError: The estimate failed.
        """
        del service  # both sides have the run file
        asked: Future[MemoryEstimate] = Future()
        with self._lock:
            self._last += 1
            number = self._last
            self._asked[number] = asked
        self._send(EstimateMemory(number, spec, settings))
        if self._is_closed:
            self.answer(_ended(number))
        found = asked.result()
        if found.footprint is not None:
            return found.footprint
        if found.fault:
            raise EstimateFailedError(found.fault)
        raise Untrainable(found.refusal, metadata=dict(found.metadata))

    def answer(self, estimate: MemoryEstimate) -> None:
        """Accepts an answer; ignores it if no caller waits."""
        with self._lock:
            asked = self._asked.pop(estimate.number, None)
        if asked is not None:
            asked.set_result(estimate)

    def close(self) -> None:
        """Answers all waiting and later calls, because the trainers' side no longer answers."""
        with self._lock:
            self._is_closed = True
            numbers = list(self._asked)
        for number in numbers:
            self.answer(_ended(number))


def _ended(number: int) -> MemoryEstimate:
    return MemoryEstimate(number, fault="the run is ending")


class EstimateFailedError(RuntimeError):
    """Raised if nothing could be estimated, for a reason other than the declaration."""


class MemoryEstimates:
    """Asks an estimator for each declaration once. Thread-safe; only callers that need an estimate wait for it.

    Args:
        estimator: On the trainers' side.
        service: Settings of the service.
    """

    def __init__(self, estimator: Estimator, service: ServiceSettings) -> None:
        self._estimator = estimator
        self._service = service
        self._limit_bytes = service.max_training_bytes or available_bytes() // 2
        self._lock = threading.Lock()
        self._estimated: dict[BehaviorSpec, Future[Footprint]] = {}

    def footprint(self, spec: BehaviorSpec, settings: TrainerSettings) -> Footprint:
        """Returns what training a behavior requires; concurrent callers wait for the same estimate.

        Raises:
            Untrainable: The networks of the run file cannot be built for the behavior.
        """
        with self._lock:
            found = self._estimated.get(spec)
            is_first = found is None
            if found is None:
                found = self._estimated[spec] = Future()
        if is_first:
            try:
                found.set_result(self._estimator(spec, settings, self._service))
            except BaseException as error:  # waiting callers must not wait forever
                found.set_exception(error)
                raise
        return found.result()

    def forget(self, spec: BehaviorSpec) -> None:
        """Drops the estimate of a refused declaration, because refused ones may be many."""
        with self._lock:
            self._estimated.pop(spec, None)

    def taken_bytes(self, spec: BehaviorSpec, settings: TrainerSettings) -> int:
        """Returns the bytes that a behavior of the run takes; 0 if a changed run file no longer fits it."""
        try:
            return self.footprint(spec, settings).total_bytes
        except Untrainable:
            return 0

    def check(self, spec: BehaviorSpec, found: Footprint, taken_bytes: int) -> None:
        """Refuses a behavior that requires more memory than is available.

        Args:
            spec: The behavior.
            found: What it requires.
            taken_bytes: Memory of the other behaviors of the run, in bytes.

        Raises:
            Untrainable: Its policy exceeds the size that actors accept, or memory does not suffice.
        """
        if found.policy_bytes > MAX_POLICY_BYTES:
            raise Untrainable(
                f"the policy of {spec.name} would have more than {found.policy_bytes} bytes; actors accept at most "
                f"{MAX_POLICY_BYTES}: lower network_settings (hidden_units, num_layers, memory_size, or a tower's "
                "width), or send smaller observations",
                metadata={"behavior": spec.name, "policy_bytes": str(found.policy_bytes)},
            )
        if taken_bytes + found.total_bytes > self._limit_bytes:
            kept = "a replay memory" if found.replays else "a ring"
            signals = f", and {found.signal_bytes} for reward signals" if found.signal_bytes else ""
            signals += f", and {found.companion_bytes} for companions" if found.companion_bytes else ""
            each = f"; all but the minibatch in each of {found.ranks} processes" if found.ranks > 1 else ""
            beside = f" in addition to {taken_bytes} for other behaviors" if taken_bytes else ""
            raise Untrainable(
                f"training {spec.name} needs {found.total_bytes} bytes{beside} ({kept} of {found.ring_rows} rows of "
                f"{found.row_bytes} bytes, {found.network_bytes} for its networks, {found.batch_bytes} for a "
                f"minibatch{signals}{each}), but rollcast.max_training_bytes is {self._limit_bytes} (default: half of the "
                "memory that was free at the start): lower buffer_size, time_horizon, batch_size, hidden_units or "
                "num_layers, send smaller observations, or raise the limit",
                metadata={
                    "behavior": spec.name,
                    "needed_bytes": str(taken_bytes + found.total_bytes),
                    "max_training_bytes": str(self._limit_bytes),
                },
            )
