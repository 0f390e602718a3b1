"""What operators and signals ask of a running learner, from whichever thread they come."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from rollcast.enums import HoldReason
from rollcast.errors import CheckpointFailed, NothingToSave

from learner.checkpoints.documents import CheckpointFailed as SavingFailed
from learner.link.commands import Send, SetHold
from learner.observe.view import RunView
from learner.trainers.loop import RequestsClosedError, TrainerLoop

_PAUSE_SECONDS = 60.0
"""How long a pause waits for the present update to end."""


class RunControl:
    """The `learner.service.control_calls.ControlHooks` of a learner.

    Args:
        loop: the trainers.
        view: returns the status at this moment.
        save: writes a checkpoint; called in the trainer thread.
        request_stop: begins the end of the run; from any thread.
        send: hands the service a command; actors are held during a pause.
    """

    def __init__(
        self,
        loop: TrainerLoop,
        *,
        view: Callable[[], RunView],
        save: Callable[[], Path],
        request_stop: Callable[[str, bool], None],
        send: Send,
    ) -> None:
        self._send = send
        self._loop = loop
        self._view = view
        self._save = save
        self._request_stop = request_stop
        self._lock = threading.Lock()
        self._waiting_save: Future[Path] | None = None

    @property
    def is_paused(self) -> bool:
        """Whether the trainers take no turns at present."""
        return self._loop.is_paused

    def status(self) -> RunView:
        """Returns the state of the run."""
        return self._view()

    def pause(self) -> None:
        """Holds the actors and stops the trainers after the present update; again is harmless."""
        self._send(SetHold(HoldReason.PAUSED, active=True))
        _await(self._loop.pause())

    def resume(self) -> None:
        """Lets trainers and actors go on."""
        _await(self._loop.resume())
        self._send(SetHold(HoldReason.PAUSED, active=False))

    def save_checkpoint(self, timeout_seconds: float) -> str:
        """Saves a checkpoint after the present update and returns its path.

        One is being saved and one waits at most: whoever asks meanwhile joins the one that waits.

        Raises:
            NothingToSave: no behavior was declared.
            CheckpointFailed: it could not be written.
            TimeoutError: it took too long.
        """
        if not self._loop.trainers:
            raise NothingToSave("no actor has declared a behavior yet, so there is nothing to save: start an actor")
        try:
            return str(self._next_save().result(timeout_seconds))
        except SavingFailed as error:
            raise CheckpointFailed(str(error)) from error
        except RequestsClosedError:
            raise NothingToSave("the run ends; its last checkpoint is being written") from None

    def _next_save(self) -> Future[Path]:
        with self._lock:
            if self._waiting_save is None:
                self._waiting_save = self._loop.submit(self._save_now)
            return self._waiting_save

    def _save_now(self) -> Path:
        with self._lock:
            self._waiting_save = None  # what is asked for from now on may be newer than what this one saves
        return self._save()

    def drain(self, *, final: bool) -> None:
        """Begins the end of the run, and returns at once."""
        self._request_stop("operator", final)


def _await(future: Future[None]) -> None:
    try:
        future.result(_PAUSE_SECONDS)
    except RequestsClosedError:
        return  # the run ends: nothing is left to pause
