"""What operators ask of a run reaches its trainers, between two turns, and is answered."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Semaphore
from types import TracebackType

import pytest
from rollcast.enums import HoldReason
from rollcast.errors import CheckpointFailed, NothingToSave

from learner.checkpoints.documents import CheckpointFailed as SavingFailed
from learner.link.commands import Command, SetHold
from learner.observe.view import RunState, RunView
from learner.run.control import RunControl
from learner.trainers.loop import TrainerLoop
from tests.learner.starts import Start, opened

SECONDS = 30.0


class Desk:
    """A control with trainers that run in a thread, and what it asked for.

    Args:
        start: the parts of the run; its behavior is declared if an actor joined.
    """

    def __init__(self, start: Start) -> None:
        self.stops: list[tuple[str, bool]] = []
        self.commands: list[Command] = []
        self.error: Exception | None = None
        self.failures: list[BaseException] = []
        self.saver: threading.Thread | None = None
        self.saves = 0
        self.loop = TrainerLoop(start.parts.behaviors, lambda _: start.trainer(), on_failure=self.failures.append)
        self.control = RunControl(
            self.loop,
            view=lambda: RunView("run", RunState.TRAINING, 1, 0.0, ""),
            save=self._save,
            request_stop=lambda reason, final: self.stops.append((reason, final)),
            send=self.commands.append,
        )
        self.thread = threading.Thread(target=self.loop.run)

    def _save(self) -> Path:
        self.saver = threading.current_thread()
        self.saves += 1
        if self.error is not None:
            raise self.error
        return Path("/state")

    def __enter__(self) -> Desk:
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.loop.stop()
        self.thread.join(SECONDS)
        assert self.failures == []


@contextmanager
def dispatcher(results: Path, *, joined: bool = True) -> Iterator[Desk]:
    """A control whose run has an actor, or none."""
    with opened(results) as folder:
        start = Start(folder, 1)
        if joined:
            start.parts.declared(start.parts.open().session)
        with Desk(start) as made:
            if joined:
                made.loop.submit(lambda: None).result(SECONDS)  # the first turn adds the trainer before the next
                made.loop.submit(lambda: None).result(SECONDS)
            yield made


def test_pause_and_resume_are_answered_when_done(tmp_path: Path) -> None:
    """After the answer the trainers stand, or go; twice is harmless."""
    with dispatcher(tmp_path) as made:
        for _ in range(2):
            made.control.pause()
            assert made.loop.is_paused
            assert made.commands[-1] == SetHold(HoldReason.PAUSED, active=True)
        for _ in range(2):
            made.control.resume()
            assert not made.loop.is_paused
            assert made.commands[-1] == SetHold(HoldReason.PAUSED, active=False)
        assert made.control.status().run_id == "run"


def test_a_checkpoint_is_saved_by_the_trainers_thread(tmp_path: Path) -> None:
    """So that weights and books are of one moment; a paused run is saved as well."""
    with dispatcher(tmp_path) as made:
        assert made.control.save_checkpoint(SECONDS) == "/state"
        assert made.saver is made.thread
        made.control.pause()
        assert made.control.save_checkpoint(SECONDS) == "/state"


def test_a_checkpoint_that_fails_has_a_reason(tmp_path: Path) -> None:
    """What the disk said reaches the operator, and the trainers go on."""
    with dispatcher(tmp_path) as made:
        made.error = SavingFailed("no space left")
        with pytest.raises(CheckpointFailed, match="no space left"):
            made.control.save_checkpoint(SECONDS)
        made.error = None
        assert made.control.save_checkpoint(SECONDS) == "/state"


def test_a_busy_trainer_is_waited_for_no_longer_than_asked(tmp_path: Path) -> None:
    """An update that takes too long is told as that."""
    with dispatcher(tmp_path) as made:
        busy = threading.Event()
        held = made.loop.submit(lambda: busy.wait(SECONDS))
        with pytest.raises(TimeoutError):
            made.control.save_checkpoint(0.05)
        busy.set()
        assert held.result(SECONDS)


def test_who_asks_at_once_shares_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ask while an update runs, one checkpoint is saved; who asks during that one gets the next."""
    with dispatcher(tmp_path) as made, ThreadPoolExecutor(16) as callers:
        next_save, joined = made.control._next_save, Semaphore(0)

        def join() -> Future[Path]:
            future = next_save()
            joined.release()
            return future

        monkeypatch.setattr(made.control, "_next_save", join)
        busy = threading.Event()
        held = made.loop.submit(lambda: busy.wait(SECONDS))
        asked = [callers.submit(made.control.save_checkpoint, SECONDS) for _ in range(16)]
        assert all(joined.acquire(timeout=SECONDS) for _ in asked)
        with pytest.raises(TimeoutError):
            made.control.save_checkpoint(0.05)
        busy.set()
        assert {call.result(SECONDS) for call in asked} == {"/state"}
        assert held.result(SECONDS)
        assert made.saves == 1
        made.error = SavingFailed("no space left")
        with pytest.raises(CheckpointFailed, match="no space left"):
            made.control.save_checkpoint(SECONDS)
        made.error = None
        assert made.control.save_checkpoint(SECONDS) == "/state"
        assert made.saves == 3


def test_nothing_to_save(tmp_path: Path) -> None:
    """Before the first actor, and while the run ends, there is nothing to save."""
    with dispatcher(tmp_path / "empty", joined=False) as made, pytest.raises(NothingToSave, match="start an actor"):
        made.control.save_checkpoint(SECONDS)
    with dispatcher(tmp_path / "ending") as made:
        made.loop.stop()
        made.thread.join(SECONDS)
        with pytest.raises(NothingToSave, match="the run ends"):
            made.control.save_checkpoint(SECONDS)
        made.control.pause()
        made.control.resume()


@pytest.mark.parametrize("final", [True, False])
def test_drain_asks_for_the_end(tmp_path: Path, final: bool) -> None:
    """It answers at once; the end itself is the learner's."""
    with dispatcher(tmp_path, joined=False) as made:
        made.control.drain(final=final)
        assert made.stops == [("operator", final)]
