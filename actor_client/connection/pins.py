"""Pinned versions of one behavior's policy: the stepping thread asks for them, the connection fetches them."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from actor_client.policy.actions import ActingPolicy
from actor_client.rollout.assignment import Pinned

MAX_PINS: Final = 8
"""Most pinned versions of a behavior that stay loaded."""
RETRY_SECONDS: Final = 10.0
"""Time after which an opponent that the learner did not hold is requested again, in seconds."""


@dataclass(slots=True, eq=False)
class Pin:
    """A version that the stepping thread has asked for.

    Attributes:
        key: The version.
        policy: The policy, once it is available.
        failed_at: When the learner did not hold it, in monotonic seconds; None if it was not asked, or holds it.
    """

    key: Pinned
    policy: ActingPolicy | None = None
    failed_at: float | None = None

    @property
    def is_open(self) -> bool:
        """True if it must be fetched."""
        return self.policy is None and self.failed_at is None


class Pins:
    """The pinned versions of one behavior that were used last; any thread may use them.

    Args:
        wake: Called when there is something to fetch.
        clock: Monotonic seconds.
    """

    def __init__(self, wake: Callable[[], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._wake = wake
        self._clock = clock
        self._lock = threading.Lock()
        self._pins: dict[Pinned, Pin] = {}  # the one used last comes last

    def get(self, key: Pinned, *, retries: bool = False) -> Pin:
        """Returns the pin of a version. The first call requests it and may forget the version used longest ago.

        Args:
            key: The version.
            retries: Requests a version again some time after the learner did not hold it.
        """
        with self._lock:
            pin = self._pins.pop(key, None)
            is_new = pin is None
            pin = pin or Pin(key)
            self._pins[key] = pin
            while len(self._pins) > MAX_PINS:
                del self._pins[next(iter(self._pins))]
            if retries and pin.failed_at is not None and self._clock() - pin.failed_at >= RETRY_SECONDS:
                pin.failed_at = None
                is_new = True
        if is_new:
            self._wake()
        return pin

    def note_failed(self, pin: Pin) -> None:
        """Notes that the learner does not hold a version, or that it cannot be used."""
        pin.failed_at = self._clock()

    def open(self) -> list[Pin]:
        """Returns the pins to fetch."""
        with self._lock:
            return [pin for pin in self._pins.values() if pin.is_open]

    def restart(self) -> None:
        """Forgets what another start of the learner may name differently; keeps loaded policies with a digest."""
        with self._lock:
            self._pins = {key: pin for key, pin in self._pins.items() if key.sha256 and pin.policy is not None}
