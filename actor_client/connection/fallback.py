"""Falls back to the previous policy when a version cannot act on the observations, until a newer one comes."""

import time

from actor_client.connection.backoff import Clock
from actor_client.policy.actions import ActingPolicy, PolicyUnusable

PATIENCE_SECONDS = 60.0
"""Seconds without a usable version after which the actor ends. Updates are more frequent."""


class Fallback:
    """The fallback of one behavior id. All methods are for the stepping thread.

    Args:
        clock: Measures the wait.

    Attributes:
        refused: The newest version, if it was taken and cannot act; otherwise None.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self.refused: ActingPolicy | None = None
        self._before: ActingPolicy | None = None
        self._why = ""
        self._stranded_at = 0.0

    def took(self, policy: ActingPolicy, before: ActingPolicy | None) -> None:
        """Notes that a newer policy acts.

        Args:
            policy: The newer policy.
            before: The previous policy; None if there was none.
        """
        self.refused = None
        self._before = before if before is not None and before.generation == policy.generation else None

    def refuse(self, policy: ActingPolicy, why: PolicyUnusable) -> ActingPolicy | None:
        """Returns the replacement of a policy that cannot act; None if there is none.

        Args:
            policy: The acting policy.
            why: Its error.
        """
        if self.refused is None:  # otherwise the refused version still must not be taken again
            self.refused = policy
        self._why = str(why)
        self._stranded_at = self._clock()
        before, self._before = self._before, None
        return before

    def wait(self, *, is_stranded: bool) -> None:
        """Checks between steps, while the newest version is refused, that the wait is not too long.

        Args:
            is_stranded: Whether only a newer version would let it step.

        Raises:
            PolicyUnusable: No usable version arrived in time.
        """
        now = self._clock()
        if not is_stranded:
            self._stranded_at = now
        elif now - self._stranded_at >= PATIENCE_SECONDS:
            raise PolicyUnusable(f"{self._why}; no newer version arrived within {PATIENCE_SECONDS:.0f} seconds")
