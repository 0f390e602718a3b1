"""Falls back to the previous policy when a version cannot act on the observations, until a newer one comes."""

import time

from actor_client.connection.backoff import Clock
from actor_client.policy.actions import ActingPolicy, PolicyUnusable

PATIENCE_SECONDS = 60.0
"""An actor that could not step for so long, for want of a version that acts, ends. Updates come oftener than that."""


class Fallback:
    """The fallback of one behavior id. All methods are for the stepping thread.

    Args:
        clock: Tells how long it waits.

    Attributes:
        refused: The newest version that was taken and cannot act; None if it can.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self.refused: ActingPolicy | None = None
        self._before: ActingPolicy | None = None
        self._why = ""
        self._stranded_at = 0.0

    def took(self, policy: ActingPolicy, before: ActingPolicy | None) -> None:
        """Notes that a newer policy acts now.

        Args:
            policy: That one.
            before: What acted until now; None if nothing did.
        """
        self.refused = None
        self._before = before if before is not None and before.generation == policy.generation else None

    def refuse(self, policy: ActingPolicy, why: PolicyUnusable) -> ActingPolicy | None:
        """Returns what acts instead of a policy that cannot; None if nothing is left.

        Args:
            policy: What acted.
            why: What it raised.
        """
        if self.refused is None:  # else that version is still the one that must not be taken again
            self.refused = policy
        self._why = str(why)
        self._stranded_at = self._clock()
        before, self._before = self._before, None
        return before

    def wait(self, *, is_stranded: bool) -> None:
        """Checks between steps, while the newest version is refused, that the wait is not in vain.

        Args:
            is_stranded: Whether nothing but a newer version would let it step.

        Raises:
            PolicyUnusable: It was stranded for too long.
        """
        now = self._clock()
        if not is_stranded:
            self._stranded_at = now
        elif now - self._stranded_at >= PATIENCE_SECONDS:
            raise PolicyUnusable(f"{self._why}; no newer version came within {PATIENCE_SECONDS:.0f} seconds")
