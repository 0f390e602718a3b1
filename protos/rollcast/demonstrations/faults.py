"""What is wrong with a demonstration."""

from pathlib import Path


class BadDemonstration(Exception):  # noqa: N818 - what came is bad, not what was done with it
    """A demonstration cannot be used; the text is one line: the file, where in it, and why.

    Args:
        path: the file or folder.
        reason: what is wrong, and what to do.
        position: the byte at which the faulty part begins; None if the whole is meant.
    """

    def __init__(self, path: Path, reason: str, position: int | None = None) -> None:
        self.path = path
        self.position = position
        self.reason = reason
        super().__init__(f"{path}{'' if position is None else f', byte {position}'}: {reason}")
