"""Ends ``serve`` at a signal that comes while no run handles signals: during the start, and between two starts of the trainers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, TypeVar

from rollcast.signals import stop_signal_numbers

if TYPE_CHECKING:
    from learner.start.trainer_hosts import AwaitedTrainers
    from learner.start.trainer_start import StartedTrainers

T = TypeVar("T", bound="StartedTrainers | AwaitedTrainers")


class EarlyEnd:
    """Ends this process at once when a signal asks for it; everything that was to be saved is saved.

    It raises no exception, which could be raised during an import that catches everything, and be lost.

    Args:
        code: Exit code.
    """

    def __init__(self, code: int) -> None:
        self._code = code
        self._trainers: StartedTrainers | AwaitedTrainers | None = None
        self._is_starting = False
        self._is_asked = False

    def listen(self) -> None:
        """Handles signals from now on, except while a run handles them."""
        for number in stop_signal_numbers():
            signal.signal(number, self._on_signal)

    def start(self, make: Callable[[], T]) -> T:
        """Starts trainers, which will leave nothing behind; a signal waits until they can be ended."""
        self._is_starting = True
        try:
            self._trainers = made = make()
        finally:
            self._is_starting = False
            if self._is_asked:
                self._leave()
        return made

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._is_asked = True
        if not self._is_starting:
            self._leave()

    def _leave(self) -> NoReturn:
        trainers, self._trainers = self._trainers, None  # another signal does not wait for them
        if trainers is not None:
            trainers.kill()
            trainers.__exit__(None, None, None)
        os._exit(self._code)
