"""Runs the trainers' side of a run in threads of the service's process."""

from __future__ import annotations

from learner.checkpoints.runfolder import RunFolder
from learner.link.channel import Link
from learner.link.opening import Opened
from learner.run.training import TrainingSide
from learner.settings.load import LoadedRun


class TrainerThreads:
    """Runs the trainers' side in threads of this process; it ends with the run.

    Args:
        loaded: The settings and their sources.
        folder: The run folder, open.
        link: Link between the sides.

    Raises:
        UserError: The state to resume from cannot be read or does not fit.

    Attributes:
        side: The trainers' side.
    """

    def __init__(self, loaded: LoadedRun, folder: RunFolder, link: Link) -> None:
        self.side = TrainingSide(loaded, folder, link)

    @property
    def opened(self) -> Opened:
        """What the service continues from."""
        return self.side.opened

    def close(self) -> None:
        """Does nothing."""
