"""Decides when to act: once every client that is soon to ask has asked, or after a short wait."""

from collections.abc import Hashable


class Window:
    """The clients that have asked since the last action, and those that are worth waiting for.

    A client is awaited for as long as the window after its answer: a simulator that takes longer, as a game that draws
    60 frames a second does, delays nobody. So a simulator alone never waits, and simulators in step share a batch.

    Args:
        seconds: Longest wait of a client for the others; 0 = none.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._awaited: dict[Hashable, float] = {}
        self._first: float | None = None

    def asked(self, client: Hashable, now: float) -> None:
        """Notes that a client has asked.

        Args:
            client: The client.
            now: Monotonic seconds, as everywhere here.
        """
        self._awaited.pop(client, None)
        if self._first is None:
            self._first = now

    def answered(self, client: Hashable, now: float) -> None:
        """Notes that a client was answered; from now on it is awaited."""
        self._awaited.pop(client, None)
        self._awaited[client] = now

    def gone(self, client: Hashable) -> None:
        """Notes that a client has left."""
        self._awaited.pop(client, None)

    def acted(self) -> None:
        """Notes that those who asked were acted for: the next wait begins with the next to ask."""
        self._first = None

    def wait_seconds(self, now: float) -> float | None:
        """Returns how long to wait before acting; 0 = act now, None = nobody has asked."""
        if self._first is None:
            return None
        awaited = self._awaited
        while awaited:  # the oldest answers are the first entries
            client, answered = next(iter(awaited.items()))
            if answered + self._seconds > now:
                break
            del awaited[client]
        if not awaited:
            return 0.0
        latest = next(reversed(awaited.values()))
        return max(0.0, min(self._first, latest) + self._seconds - now)
