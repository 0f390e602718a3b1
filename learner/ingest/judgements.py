"""What training each behavior takes: asked of the trainers' side once, and compared with the memory there is."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Protocol

from rollcast.errors import Untrainable
from rollcast.limits import MAX_POLICY_BYTES
from rollcast.specs import BehaviorSpec

from learner.common.memory import available_bytes
from learner.link.footprint import Footprint
from learner.settings.service import ServiceSettings
from learner.settings.trainer import TrainerSettings


class Judge(Protocol):
    """Judges a declaration on the trainers' side (`learner.trainers.judge`), where networks can be built."""

    def __call__(self, spec: BehaviorSpec, settings: TrainerSettings, service: ServiceSettings) -> Footprint:
        """Returns what training takes; from any thread. It may take seconds.

        Raises:
            Untrainable: the networks of the run file cannot be built for the behavior.
        """


class Judgements:
    """Asks a judge for each declaration once. Thread-safe; nothing waits for a judgement but those who ask for it.

    Args:
        judge: on the trainers' side.
        service: the service's own settings.
    """

    def __init__(self, judge: Judge, service: ServiceSettings) -> None:
        self._judge = judge
        self._service = service
        self._limit_bytes = service.max_training_bytes or available_bytes() // 2
        self._lock = threading.Lock()
        self._judged: dict[BehaviorSpec, Future[Footprint]] = {}

    def footprint(self, spec: BehaviorSpec, settings: TrainerSettings) -> Footprint:
        """Returns what training a behavior takes; whoever asks while it is judged waits for the same judgement.

        Raises:
            Untrainable: the networks of the run file cannot be built for the behavior.
        """
        with self._lock:
            judged = self._judged.get(spec)
            is_first = judged is None
            if judged is None:
                judged = self._judged[spec] = Future()
        if is_first:
            try:
                judged.set_result(self._judge(spec, settings, self._service))
            except BaseException as error:  # those who wait must not wait for ever
                judged.set_exception(error)
                raise
        return judged.result()

    def forget(self, spec: BehaviorSpec) -> None:
        """Drops the judgement of a declaration that was refused: refused ones may be many."""
        with self._lock:
            self._judged.pop(spec, None)

    def taken_bytes(self, spec: BehaviorSpec, settings: TrainerSettings) -> int:
        """Returns what a behavior of the run takes; nothing if a changed run file fits it no longer, and it cannot be trained."""
        try:
            return self.footprint(spec, settings).total_bytes
        except Untrainable:
            return 0

    def check(self, spec: BehaviorSpec, found: Footprint, taken_bytes: int) -> None:
        """Refuses a behavior that takes more memory than there is.

        Args:
            spec: the behavior.
            found: what it takes.
            taken_bytes: by the other behaviors of the run.

        Raises:
            Untrainable: its policy is larger than actors take, or memory does not suffice.
        """
        if found.policy_bytes > MAX_POLICY_BYTES:
            raise Untrainable(
                f"the policy of {spec.name} would have more than {found.policy_bytes} bytes; actors take at most "
                f"{MAX_POLICY_BYTES}: lower network_settings (hidden_units, num_layers, memory_size, or a tower's width), or "
                "send smaller observations",
                metadata={"behavior": spec.name, "policy_bytes": str(found.policy_bytes)},
            )
        if taken_bytes + found.total_bytes > self._limit_bytes:
            kept = "a replay memory" if found.replays else "a ring"
            signals = f", and {found.signal_bytes} of reward signals" if found.signal_bytes else ""
            beside = f" beside {taken_bytes} of other behaviors" if taken_bytes else ""
            raise Untrainable(
                f"training {spec.name} takes {found.total_bytes} bytes{beside} ({kept} of {found.ring_rows} rows of "
                f"{found.row_bytes} bytes, {found.network_bytes} of its networks, {found.batch_bytes} of a minibatch"
                f"{signals}), and rollcast.max_training_bytes is {self._limit_bytes} (half of what was free at the start, if "
                "the run file does not say): lower buffer_size, time_horizon, batch_size, hidden_units or num_layers, send "
                "smaller observations, or raise it",
                metadata={
                    "behavior": spec.name,
                    "needed_bytes": str(taken_bytes + found.total_bytes),
                    "max_training_bytes": str(self._limit_bytes),
                },
            )
