"""Tests how trainers are built."""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
import torch
import yaml
from structlog.testing import capture_logs

from learner.link.channel import Link
from learner.link.to_front import Policy
from learner.shared import descriptors
from learner.shared.settings.load import load_run_options
from learner.start.training import TrainingRun
from learner.training.export import onnx
from learner.training.export.graph import export_graph
from learner.training.networks.policy import PolicyNetwork
from learner.training.run.training import TrainingSide
from learner.training.trainers.base import Trainer
from learner.training.trainers.outcome_report import ExperienceQueue, OutcomeReport
from tests.learner.service.ingest.parts import NAME, make_spec
from tests.learner.starts import SETTINGS, begun, opened


@contextmanager
def made(
    results: Path, *, resume: bool = False, seed: int = 3, initialize_from: Path | None = None
) -> Iterator[TrainingRun]:
    """Makes a run without its service and closes its files at the end."""
    run_file = results / "run.yaml"
    results.mkdir(exist_ok=True)
    run_file.write_text(
        yaml.safe_dump({"behaviors": {NAME: {"trainer_type": "ppo", **SETTINGS}}, "torch_settings": {"device": "cpu"}})
    )
    loaded = load_run_options(run_file, cli={"seed": str(seed)}, environ={})
    with opened(results, resume=resume) as folder:
        folder.initialize_from = initialize_from
        run = TrainingRun(loaded, folder, TrainingSide(loaded, folder, Link()))
        try:
            yield run
        finally:
            side_of(run).run.give_up(RuntimeError("the test is over"))


def side_of(run: TrainingRun) -> TrainingSide:
    """Returns the trainers' side of a run, which is in this process."""
    assert isinstance(run.trainers, TrainingSide)
    return run.trainers


@contextmanager
def assembled(results: Path, **options: Any) -> Iterator[TrainingRun]:
    """Returns a run as of `made` with one declared behavior."""
    with made(results, **options) as run:
        side_of(run).run._estimator.start()  # it begins with the trainers, which have no thread here
        run.front.behaviors.declare(make_spec(NAME), 0, 1)
        yield run


@pytest.mark.parametrize("refused", ["memory-estimate", "trainers"])
def test_a_run_without_threads_ends_in_good_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """If no threads can be started, the run ends cleanly."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == refused:
            raise RuntimeError("can't start new thread")
        start(thread)

    with made(tmp_path) as run:
        side_of(run).record.begin("127.0.0.1:1")
        monkeypatch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError) as found:
            side_of(run).run.start()
        side_of(run).run.give_up(found.value)
        last = json.loads((tmp_path / "run" / "events.jsonl").read_text().splitlines()[-1])
        assert (last["event"], last["error"]) == ("failed", "can't start new thread")
    for thread in threading.enumerate():
        if thread.name == "memory-estimate":
            thread.join(60.0)
            assert not thread.is_alive()


def build(run: TrainingRun) -> Trainer:
    """Builds the trainer of the only behavior, and shows it to all parts."""
    declared, link = run.front.behaviors.all()[0].declared, side_of(run).context.link
    trainer = side_of(run).run._build(declared, ExperienceQueue(OutcomeReport(declared.index, link.to_front.send)))
    for part in side_of(run).run._parts:
        part.trainer_added(trainer)
    return trainer


def test_a_trainer_sends_its_policy_to_the_service(tmp_path: Path) -> None:
    """A trainer publishes its first policy at the start with the run's generation."""
    with assembled(tmp_path) as run:
        trainer = build(run)
        trainer.start()
        (sent,) = [message for message in side_of(run).context.link.to_front.receive() if isinstance(message, Policy)]
        header = sent.stored.description
        assert header == trainer.published
        assert (header.behavior, header.generation, header.version) == (NAME, side_of(run).context.generation, 0)


def test_a_shortage_of_descriptors_delays_a_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer that cannot be built because no file can be opened is built later."""
    errors = [errno.EMFILE, errno.ENFILE]

    def exported(network: PolicyNetwork) -> Any:
        if errors:
            raise OSError(errors.pop(), "no file can be opened")
        return export_graph(network)

    monkeypatch.setattr(onnx, "export_graph", exported)
    monkeypatch.setattr(descriptors, "_SHORTAGE_SECONDS", 0.01)
    with assembled(tmp_path) as run, capture_logs() as logs:
        trainer = build(run)
        trainer.start()
        assert trainer.published.version == 0
    waits = [entry["error"] for entry in logs if entry["event"] == "descriptors_missing"]
    assert len(waits) == 2
    assert all("no file can be opened" in error for error in waits)


@pytest.mark.parametrize(("other", "expected"), [(3, True), (4, False)])
def test_the_seed_decides_the_first_weights(tmp_path: Path, other: int, expected: bool) -> None:
    """Runs of one seed begin with the same networks."""
    with assembled(tmp_path / "one") as one, assembled(tmp_path / "two", seed=other) as two:
        ours, theirs = (build(run).get_policy(NAME).state_dict() for run in (one, two))
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items()) is expected


def test_statistics_that_cannot_be_written_end_nothing(tmp_path: Path) -> None:
    """Statistics that cannot be written are reported in one line, and the trainer is built."""
    with begun(tmp_path, 1) as (folder, first, trainer):
        first.keeper.save_run_state({NAME: trainer})
        (folder.path / NAME).write_text("in the way")
    with structlog.testing.capture_logs() as logs, assembled(tmp_path, resume=True) as run:
        assert build(run).get_step > 0
    assert [line["event"] for line in logs if line["log_level"] != "info"] == ["stats_not_written"]
