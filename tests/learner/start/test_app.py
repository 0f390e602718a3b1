"""Tests a whole learner in this process: start, results and refusals. Actors are in `tests/e2e`."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
import yaml

from learner.cli.cli import EarlyEnd
from learner.shared import platform
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe import logs
from learner.shared.observe.address import ADDRESS_FILE, read_addresses
from learner.shared.runfolder.documents import read_document
from learner.shared.settings.load import LoadedRun, load_run_options
from learner.start import app
from learner.start.actors import TrainingActors, TrainingRequest
from learner.start.app import MOST_DEATHS, Deaths
from learner.start.evaluate_run import EvaluationRequest, evaluate
from learner.training.trainers.loop import TrainerLoop
from tests.e2e.processes import wait_until
from tests.learner.process import process_as_before
from tests.learner.service.ingest.parts import NAME
from tests.learner.starts import SETTINGS, begun

SECONDS = 300.0


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Restores the process-wide settings of a learner."""
    with process_as_before():
        yield


def load(results: Path, *, behavior: str = NAME, settings: dict[str, Any] | None = None, **flags: Any) -> LoadedRun:
    """Returns settings of a short run on free ports."""
    path = results / "run.yaml"
    document = {"behaviors": {behavior: {"trainer_type": "ppo", **SETTINGS, **(settings or {})}}}
    path.write_text(yaml.safe_dump({**document, "rollcast": {"address": "127.0.0.1:0"}}))
    given = {"run_id": "run", "results_dir": str(results), "max_wall_seconds": "0.2", **flags}
    return load_run_options(path, cli=given)


def serve(loaded: LoadedRun, *, actors: TrainingActors | None = None) -> int:
    """Runs a learner with the log and the signals of the command."""
    file = logs.LogFile()
    logs.configure(loaded.options.rollcast.log_format, file=file)
    return app.serve(loaded, early_end=EarlyEnd(ExitCode.INTERRUPTED), actors=actors, log_file=file)


def summary(results: Path) -> dict[str, Any]:
    """Returns the last run's summary."""
    content: dict[str, Any] = json.loads((results / "run" / "summary.json").read_text())
    return content


def configuration(results: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns the saved settings and their sources."""
    folder = results / "run"
    document = yaml.safe_load((folder / "configuration.yaml").read_text())
    return document, json.loads((folder / "configuration_sources.json").read_text())


def test_a_run_without_actors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run without actors ends with 0 after its time and leaves summary, state and settings.

    Nothing was trained, so that the next start needs no flag.
    """
    assert serve(load(tmp_path)) == ExitCode.OK
    assert summary(tmp_path) == {"run_id": "run", "generation": 1, "stop_reason": "max_wall_seconds"}
    assert "no actor connected" in capsys.readouterr().out
    folder = tmp_path / "run"
    assert (folder / "run_state.pt").exists()
    assert not (folder / ADDRESS_FILE).exists()
    document, sources = configuration(tmp_path)
    assert document["behaviors"][NAME]["hyperparameters"]["buffer_size"] == 256
    assert 0 <= document["env_settings"]["seed"] < 10_000
    assert sources["env_settings.seed"] == "drawn"
    assert serve(load(tmp_path)) == ExitCode.OK
    assert summary(tmp_path)["generation"] == 2


def test_a_restart_keeps_the_seed_and_counts_generations(tmp_path: Path) -> None:
    """A drawn seed is kept over restarts; a configured one overrides it."""
    serve(load(tmp_path))
    seed = configuration(tmp_path)[0]["env_settings"]["seed"]
    serve(load(tmp_path, resume="true"))
    assert configuration(tmp_path)[0]["env_settings"]["seed"] == seed
    serve(load(tmp_path, resume="auto", seed="12345"))
    assert configuration(tmp_path)[0]["env_settings"]["seed"] == 12345
    assert configuration(tmp_path)[1]["env_settings.seed"] == "--seed"
    assert summary(tmp_path)["generation"] == 3


def test_a_signal_ends_it_in_good_order(tmp_path: Path) -> None:
    """SIGTERM ends the wait immediately and restores the signal handlers."""
    before = signal.getsignal(signal.SIGTERM)

    def send() -> None:
        wait_until(lambda: read_addresses(tmp_path / "run"), "it listens")
        if signal.getsignal(signal.SIGTERM) is not before:  # else it would end the tests
            os.kill(os.getpid(), signal.SIGTERM)

    sender = threading.Thread(target=send)
    sender.start()
    assert serve(load(tmp_path, max_wall_seconds=str(SECONDS))) == ExitCode.OK
    sender.join()
    assert summary(tmp_path)["stop_reason"] == "signal"
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_taken_port_leaves_the_run_free(tmp_path: Path) -> None:
    """A taken port is named, and the next start needs no flag."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UserError, match=address) as caught:
            serve(load(tmp_path, address=address))
    assert caught.value.exit_code is ExitCode.PORT_IN_USE
    assert not (tmp_path / "run").exists()
    assert serve(load(tmp_path)) == ExitCode.OK
    assert summary(tmp_path)["generation"] == 1


def test_more_sessions_than_open_files_leave_the_run_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A learner whose connections do not fit into the system's limit of open files says so before it writes anything."""
    limits = SimpleNamespace(RLIMIT_NOFILE=7, RLIM_INFINITY=-1, getrlimit=lambda _: (1024, 1024), setrlimit=None)
    monkeypatch.setattr(platform, "_limits", limits)
    with pytest.raises(UserError, match="open files, but the system allows 1024"):
        serve(load(tmp_path, max_sessions="1024"))
    assert not (tmp_path / "run").exists()


def test_what_is_not_built_is_refused(tmp_path: Path) -> None:
    """Unsupported features are refused before anything is written."""
    loaded = load(tmp_path, settings={"reward_signals": {}})
    with pytest.raises(UserError, match="reward_signals: is empty") as caught:
        serve(loaded)
    assert caught.value.exit_code is ExitCode.RUN_FILE
    assert not (tmp_path / "run").exists()


def keep_a_run(results: Path) -> Path:
    """Saves a run with one behavior and one actor, and returns its file."""
    with begun(results) as (folder, first, trainer):
        first.parts.ledger.enqueue(NAME, 7)
        first.keeper.save_run_state({NAME: trainer})
        return folder.run_state


def test_a_restart_brings_trainers_before_actors(tmp_path: Path) -> None:
    """Behaviors of the checkpoint have trainers immediately and are saved again."""
    state = keep_a_run(tmp_path)
    assert serve(load(tmp_path, resume="true", max_wall_seconds="1")) == ExitCode.OK
    document = read_document(state, "run_state")
    assert document["generation"] == 2
    assert list(document["trainers"]) == [NAME]
    content = summary(tmp_path)
    assert content["ledger"]["lost"] == {"restart": 7}
    assert content["ledger"]["unknown"] == 1
    assert content["onnx_path"] is not None


@pytest.mark.parametrize("is_main", [True, False])
def test_another_program_keeps_its_signals_logs_and_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_main: bool
) -> None:
    """In any thread of another program, a learner returns or raises, and takes neither signals nor logs."""
    codes: list[int] = []
    taken: list[int] = []
    take = signal.signal

    def note(number: int, handler: Any) -> Any:
        taken.append(number)
        return take(number, handler)

    monkeypatch.setattr(signal, "signal", note)
    monkeypatch.setattr(os, "_exit", codes.append)
    before = signal.getsignal(signal.SIGINT), logging.getLogger().handlers[:], structlog.get_config()

    def program() -> None:
        codes.append(app.serve(load(tmp_path)))
        try:
            app.serve(load(tmp_path, settings={"reward_signals": {}}))
        except UserError as error:
            codes.append(error.exit_code)

    if is_main:
        program()
    else:
        thread = threading.Thread(target=program)
        thread.start()
        thread.join(SECONDS)
    assert codes == [ExitCode.OK, ExitCode.RUN_FILE]
    assert set(taken) <= {signal.SIGINT}  # of asyncio, for its time
    assert before == (signal.getsignal(signal.SIGINT), logging.getLogger().handlers[:], structlog.get_config())
    assert summary(tmp_path)["stop_reason"] == "max_wall_seconds"


def test_another_network_does_not_fit(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A changed network ends the start with its reason and keeps the checkpoint."""
    state = keep_a_run(tmp_path)
    assert serve(load(tmp_path, resume="true")) == ExitCode.OK
    kept = [state, *(state.parent / name for name in ("summary.json", "configuration.yaml"))]
    before = [path.read_bytes() for path in kept]
    changes: list[tuple[dict[str, Any], str]] = [
        ({"network_settings": {"hidden_units": 24}}, "network_settings.hidden_units was 16, is 24"),
        ({"network_settings": {"num_layers": 3}}, "network_settings.num_layers was 1, is 3"),
        ({"network_settings": {"normalize": True}}, "network_settings.normalize was False, is True"),
        ({"network_settings": {"memory": {"memory_size": 32}}}, "network_settings.memory.memory_size was null, is 32"),
        ({"trainer_type": "sac"}, "trainer_type was ppo, is sac"),
        ({"hyperparameters": {"shared_critic": True}}, "hyperparameters.shared_critic was False, is True"),
        (
            {"reward_signals": {"extrinsic": {}, "curiosity": {"strength": 0.1}}},
            "reward_signals.curiosity.strength was null",
        ),
    ]
    for change, said in changes:
        settings = {
            key: {**SETTINGS.get(key, {}), **part} if isinstance(part, dict) else part for key, part in change.items()
        }
        if "trainer_type" in change:
            settings["hyperparameters"] = {}
        capfd.readouterr()
        with pytest.raises(UserError, match=f"the saved state of {NAME} does not fit the run file: ") as caught:
            serve(load(tmp_path, resume="true", settings=settings, max_wall_seconds=str(SECONDS)))
        assert caught.value.exit_code is ExitCode.BAD_CHECKPOINT
        assert said in caught.value.message
        assert (
            "restore what it was, start a new run with another --run-id, or start over with --force"
            in caught.value.message
        )
        assert "\n" not in caught.value.message
        logged = "".join(capfd.readouterr())
        assert "does not fit" not in logged, "the command prints it, and it alone"
        assert "listening" not in logged, "no actor can be accepted"
        assert [path.read_bytes() for path in kept] == before


def test_a_target_that_was_reached_before(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A run resumed at its target ends immediately and says what to change."""
    with begun(tmp_path) as (_, start, trainer):
        trainer.episode_statistics.returns.extend([500.0] * 100)
        start.keeper.save_run_state({NAME: trainer})
    loaded = load(tmp_path, resume="true", target_return="400", max_wall_seconds=str(SECONDS))
    assert serve(loaded) == ExitCode.OK
    assert summary(tmp_path)["stop_reason"] == "target_return"
    said = "".join(capfd.readouterr())
    assert "target_already_reached" in said
    assert "this run is finished: raise rollcast.target_return" in said


def test_a_finished_run_waits_for_no_actor_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run resumed at its end does not wait for the actors that it has started, which still load or look for it."""
    with begun(tmp_path) as (_, start, trainer):
        trainer.episode_statistics.returns.extend([500.0] * 100)
        start.keeper.save_run_state({NAME: trainer})
    monkeypatch.setattr(app, "END_SECONDS", 10.0**6)
    monkeypatch.setattr(TrainingRequest, "command", lambda *_: [sys.executable, "-c", "import sys; sys.stdin.read()"])
    loaded = load(tmp_path, resume="true", target_return="400", max_wall_seconds=str(SECONDS))
    request = TrainingRequest("X", 2, (), loaded.options.rollcast, may_move=False, flags="", chosen="")
    with TrainingActors(request) as actors:
        assert serve(loaded, actors=actors) == ExitCode.OK
        assert actors.error is None
    assert summary(tmp_path)["stop_reason"] == "target_return"


def test_a_behavior_that_is_gone_from_the_run_file(tmp_path: Path) -> None:
    """A checkpoint with a behavior that the run file lacks is refused by name."""
    keep_a_run(tmp_path)
    with pytest.raises(UserError, match=NAME):
        serve(load(tmp_path, resume="true", behavior="Another"))


def test_a_trainer_that_raises_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected error of a trainer has its own exit code."""
    state = keep_a_run(tmp_path)
    before = state.read_bytes()

    def fail(_self: object) -> bool:
        raise RuntimeError("a fault for this test")

    monkeypatch.setattr("learner.training.trainers.ppo.trainer.PPOTrainer.advance", fail)
    with pytest.raises(
        UserError, match=r"RuntimeError: a fault for this test \(.*test_app.py, line \d+, in fail\)"
    ) as caught:
        serve(load(tmp_path, resume="true", max_wall_seconds=str(SECONDS)))
    assert caught.value.exit_code is ExitCode.TRAINER_FAILED
    assert summary(tmp_path)["stop_reason"] == "trainer_failed"
    assert state.read_bytes() == before, "the last good state stays"


@pytest.mark.parametrize("command", ["inference", "evaluate"])
def test_an_error_while_acting_has_the_code_that_it_has_in_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """An error in inference is one line with the code of training."""
    folder = keep_a_run(tmp_path).parent

    def fail(_self: object) -> bool:
        raise RuntimeError("a fault for this test")

    monkeypatch.setattr("learner.training.matches.frozen_trainer.FrozenTrainer.advance", fail)
    loaded = load(tmp_path, resume="true", inference=str(command == "inference"), max_wall_seconds=str(SECONDS))
    request = EvaluationRequest(
        folder=folder,
        loaded=loaded,
        checkpoint="last",
        episodes=1,
        actors=1,
        behavior=None,
        is_deterministic=None,
        seed=1,
    )
    with pytest.raises(UserError, match="RuntimeError: a fault for this test") as caught:
        serve(loaded) if command == "inference" else evaluate(request)
    assert caught.value.exit_code is ExitCode.TRAINER_FAILED


@pytest.mark.parametrize("name", ["summary.json", f"{NAME}.onnx", "run_state.previous.pt"])
def test_an_end_that_cannot_be_saved_has_a_code_of_its_own(tmp_path: Path, name: str) -> None:
    """A run whose last state, model or summary cannot be saved has its own exit code."""
    keep_a_run(tmp_path)
    (tmp_path / "run" / name / "in the way").mkdir(parents=True)
    assert serve(load(tmp_path, resume="true", max_wall_seconds="1")) == ExitCode.NOT_SAVED
    assert (name == "summary.json") or summary(tmp_path)["stop_reason"] == "max_wall_seconds"


@pytest.mark.parametrize("name", [ADDRESS_FILE, "configuration.yaml"])
def test_what_only_operators_need_does_not_end_a_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    """An address file that cannot be written in a resumed run is one line."""
    keep_a_run(tmp_path)
    (tmp_path / "run" / name / "in the way").mkdir(parents=True)
    assert serve(load(tmp_path, resume="true", max_wall_seconds="1")) == ExitCode.OK
    said = "".join(capfd.readouterr())
    assert ("address_not_written" if name == ADDRESS_FILE else "configuration_not_kept") in said
    assert "Traceback" not in said


def test_an_update_that_fails_while_the_run_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer that fails while the run ends is reported, and its state is not saved."""
    state = keep_a_run(tmp_path)
    before = state.read_bytes()
    stopping = threading.Event()

    def fail(_self: object) -> bool:
        os.kill(os.getpid(), signal.SIGTERM)  # not before the trainer is at work, however long it took to make
        stopping.wait(SECONDS)
        raise RuntimeError("a fault for this test")

    stop = TrainerLoop.stop

    def note(loop: TrainerLoop) -> None:
        stop(loop)
        stopping.set()

    monkeypatch.setattr("learner.training.trainers.ppo.trainer.PPOTrainer.advance", fail)
    monkeypatch.setattr(TrainerLoop, "stop", note)
    with pytest.raises(UserError, match="RuntimeError: a fault for this test") as caught:
        serve(load(tmp_path, resume="true", max_wall_seconds=str(SECONDS)))
    assert caught.value.exit_code is ExitCode.TRAINER_FAILED
    assert summary(tmp_path)["stop_reason"] == "trainer_failed"
    assert state.read_bytes() == before


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("build", UserError(ExitCode.POLICY_CHECK_FAILED, "said to people")),
        ("advance", MemoryError("no room")),
        ("after_turn", MemoryError("no room")),
    ],
)
def test_whatever_ends_a_trainer_is_an_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], where: str, error: Exception
) -> None:
    """Any error in the trainers' thread is one line in JSON logs, with its exit code."""
    keep_a_run(tmp_path)

    def fail(*_arguments: object) -> bool:
        raise error

    targets = {
        "build": "learner.training.run.run.Run._build",
        "advance": "learner.training.trainers.ppo.trainer.PPOTrainer.advance",
        "after_turn": "learner.training.run.checkpointing.CheckpointKeeper.after_turn",
    }
    monkeypatch.setattr(targets[where], fail)
    loaded = load(tmp_path, resume="true", max_wall_seconds=str(SECONDS), log_format="json")
    with pytest.raises(UserError, match=str(error)) as caught:
        serve(loaded)
    assert caught.value.exit_code is getattr(error, "exit_code", ExitCode.OUT_OF_MEMORY)
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
    (event,) = [line for line in lines if line["event"] == "trainer_failed"]
    assert event["error"] in (str(error), f"MemoryError: {error}")
    assert summary(tmp_path)["stop_reason"] == "trainer_failed"


def test_trainers_that_die_again_and_again_are_given_up() -> None:
    """The third death within ten minutes ends the run, and earlier ones are forgotten."""
    now = 0.0
    deaths = Deaths(lambda: now)
    for now, is_allowed in [(0.0, True), (500.0, True), (700.0, True), (1000.0, False)]:
        assert deaths.allow_another() is is_allowed, now
    assert deaths.count == MOST_DEATHS
