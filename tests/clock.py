"""A clock that tests move."""


class Clock:
    """Returns the seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Returns the time."""
        return self.now
