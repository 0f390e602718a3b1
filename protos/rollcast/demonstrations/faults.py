"""The error of an unusable demonstration."""

from pathlib import Path


class BadDemonstration(Exception):  # noqa: N818 - what came is bad, not what was done with it
    """A demonstration cannot be used; the text is one line: the file, the position and the reason.

    Args:
        path: The file or folder.
        reason: The fault, and what to do.
        position: The byte at which the faulty part begins; None for the whole file.
    """

    def __init__(self, path: Path, reason: str, position: int | None = None) -> None:
        self.path = path
        self.position = position
        self.reason = reason
        super().__init__(f"{path}{'' if position is None else f', byte {position}'}: {reason}")
