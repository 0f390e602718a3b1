"""Tests that operators' requests reach the trainers between two turns and are answered."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import pytest
from rollcast.enums import HoldReason
from rollcast.errors import CheckpointFailed, Draining, NothingToSave, SettingRefused
from structlog.testing import capture_logs

from learner.link.control import Answer, Request, RequestKind, SettingChange
from learner.link.to_front import SetHold, ToFront
from learner.service.run.control import RunControl
from learner.shared.runfolder.documents import CheckpointFailed as SavingFailed
from learner.training.trainers.loop import TrainerLoop
from tests.e2e.processes import wait_until
from tests.learner.starts import Start, opened

SECONDS = 30.0


class Desk:
    """A control with trainers in a thread, and its requests.

    Args:
        start: The parts of the run; its behavior is declared if an actor joined.
    """

    def __init__(self, start: Start) -> None:
        self.stops: list[tuple[str, bool]] = []
        self.commands: list[ToFront] = []
        self.asked: list[Request] = []
        self.error: Exception | None = None
        self.failures: list[BaseException] = []
        self.saver: threading.Thread | None = None
        self.saves = 0
        self.may_save, self.is_saving = threading.Event(), threading.Event()
        self.may_save.set()
        link = start.parts.link
        self.changed: list[tuple[SettingChange, ...]] = []
        self.loop = TrainerLoop(
            link,
            lambda *_: start.trainer(),
            save=self._save,
            change=self._change,
            on_failure=self.failures.append,
        )

        def ask(request: Request) -> None:
            link.to_trainers.send(request)
            self.asked.append(request)

        self.control = RunControl(
            ask,
            is_ending=lambda: bool(self.stops),
            request_stop=lambda reason, final: self.stops.append((reason, final)),
            send=self.commands.append,
            on_changed=self.changed.append,
        )
        link.to_front.divert(Answer, self.control.answer)
        self.thread = threading.Thread(target=self.loop.run)

    def _save(self) -> Path:
        self.saver = threading.current_thread()
        self.saves += 1
        self.is_saving.set()
        assert self.may_save.wait(SECONDS)
        if self.error is not None:
            raise self.error
        return Path("/state")

    def _change(self, request: Request) -> tuple[SettingChange, ...]:
        if not request.values:
            raise SettingRefused("there is nothing to undo")
        return tuple(SettingChange(name, request.principal, text) for name, text in request.values.items())

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
    """Makes a control whose run has an actor or none."""
    with opened(results) as folder:
        start = Start(folder, 1)
        if joined:
            start.parts.declared(start.parts.open().session)
        with Desk(start) as made:
            if joined:
                made.control.resume()  # its answer says that the declaration before it was taken in
            yield made


def test_pause_and_resume_are_answered_when_done(tmp_path: Path) -> None:
    """Pause and resume are answered once the trainers have stopped or continued, and may be repeated."""
    with capture_logs() as logs, dispatcher(tmp_path) as made:
        for _ in range(2):
            made.control.pause()
            assert made.loop.is_paused
            assert made.commands[-1] == SetHold(HoldReason.PAUSED, active=True)
        for _ in range(2):
            made.control.resume()
            assert not made.loop.is_paused
            assert made.commands[-1] == SetHold(HoldReason.PAUSED, active=False)
    assert [line["event"] for line in logs if line["event"] in {"paused", "resumed"}] == ["paused", "resumed"]


def test_settings_change_also_in_a_pause(tmp_path: Path) -> None:
    """A change is answered and told to the curves, what is refused has its reason, and a run that ends changes nothing."""
    with dispatcher(tmp_path) as made:
        for act in (made.control.pause, made.control.resume):
            act()
            changes = made.control.change({"beta": "0.1"}, "ops")
            assert changes == (SettingChange("beta", "ops", "0.1"),)
            assert made.changed[-1] == changes
            with pytest.raises(SettingRefused, match="nothing to undo"):
                made.control.change({}, "ops")
        made.loop._change = None
        with pytest.raises(SettingRefused, match="does not train"):
            made.control.change({"beta": "0.1"}, "ops")
        made.control.drain(final=True)
        with pytest.raises(Draining, match="can no longer be changed"):
            made.control.change({"beta": "0.1"}, "ops")


def test_a_checkpoint_is_saved_by_the_trainers_thread(tmp_path: Path) -> None:
    """The trainers' thread saves the checkpoint, also in a paused run."""
    with dispatcher(tmp_path) as made:
        assert made.control.save_checkpoint(SECONDS) == "/state"
        assert made.saver is made.thread
        made.control.pause()
        assert made.control.save_checkpoint(SECONDS) == "/state"


@pytest.mark.parametrize("error", [SavingFailed("no space left"), TypeError("state.mine cannot be saved")])
def test_a_checkpoint_that_fails_has_a_reason(tmp_path: Path, error: Exception) -> None:
    """The operator gets the error of the disk or of a state that cannot be saved, and the trainers continue."""
    with dispatcher(tmp_path) as made:
        made.error = error
        with pytest.raises(CheckpointFailed, match=str(error)):
            made.control.save_checkpoint(SECONDS)
        made.error = None
        assert made.control.save_checkpoint(SECONDS) == "/state"


def test_actors_go_on_where_a_resume_comes_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause and a resume during a long save take effect for actors even if the caller has timed out."""
    with dispatcher(tmp_path) as made:
        monkeypatch.setattr("learner.service.run.control._PAUSE_SECONDS", 0.05)  # its first answer may take longer
        made.may_save.clear()
        for ask in (lambda: made.control.save_checkpoint(0.05), made.control.pause, made.control.resume):
            with pytest.raises(TimeoutError):
                ask()
        made.may_save.set()
        wait_until(lambda: made.commands[-1] == SetHold(HoldReason.PAUSED, active=False), "actors are let go")
        assert not made.control.is_paused


def test_who_asks_at_once_shares_a_checkpoint(tmp_path: Path) -> None:
    """Concurrent requests to save share one checkpoint and its error."""
    with dispatcher(tmp_path) as made, ThreadPoolExecutor(17) as callers:
        made.may_save.clear()
        first = callers.submit(made.control.save_checkpoint, SECONDS)
        assert made.is_saving.wait(SECONDS)
        asked = [callers.submit(made.control.save_checkpoint, SECONDS) for _ in range(16)]
        wait_until(lambda: len([each for each in made.asked if each.kind is RequestKind.SAVE]) == 17, "all have asked")
        made.may_save.set()
        assert {call.result(SECONDS) for call in (first, *asked)} == {"/state"}
        assert made.saves == 2
        made.error = SavingFailed("no space left")
        with pytest.raises(CheckpointFailed, match="no space left"):
            made.control.save_checkpoint(SECONDS)


def test_nothing_to_save(tmp_path: Path) -> None:
    """Before the first actor and while the run ends, a save is refused."""
    with dispatcher(tmp_path / "empty", joined=False) as made, pytest.raises(NothingToSave, match="start an actor"):
        made.control.save_checkpoint(SECONDS)
    with dispatcher(tmp_path / "ending") as made:
        made.loop.stop()
        made.thread.join(SECONDS)
        made.control.close()
        with pytest.raises(NothingToSave, match="the run is ending"):
            made.control.save_checkpoint(SECONDS)
        for ask in (made.control.pause, made.control.resume):
            with pytest.raises(Draining, match="the run is ending"):
                ask()


def test_a_run_that_ends_is_not_paused(tmp_path: Path) -> None:
    """From the request to end on, a pause is refused and actors are not held, although trainers still answer."""
    with dispatcher(tmp_path) as made:
        made.control.drain(final=True)
        assert made.stops == [("operator", True)]
        before = list(made.commands)
        with pytest.raises(Draining, match="can no longer be paused"):
            made.control.pause()
        with pytest.raises(Draining, match="can no longer be resumed"):
            made.control.resume()
        assert made.commands == before
        assert not made.loop.is_paused
