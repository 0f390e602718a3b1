"""Tests that the checker finds bugs that are planted in the learner, by scripted schedules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from rollcast.history import VARIABLE as HISTORY
from rollcast.limits import PROTOCOL_REVISION
from rollcast.v1 import session_pb2, session_pb2_grpc, trajectory_pb2, trajectory_pb2_grpc

from tests.chaos.checker.check import check_folder
from tests.chaos.checker.violations import Invariant, report
from tests.chaos.faulty_actor import VARIABLE as FAULTS
from tests.chaos.injection import CallFault, FaultFile, Kind
from tests.chaos.planted_learner import VARIABLE as BUG
from tests.chaos.planted_learner import Bug
from tests.e2e.processes import Child, LearnerProcess, Processes, processes_in
from tests.e2e.runs import small, write_run

NAME = "CartPole"
VERSIONS = 8

pytestmark = pytest.mark.timeout(300)


class Stage:
    """Starts a learner with a bug, and an actor with faults, which write histories."""

    def __init__(self, processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
        self._processes = processes
        self._monkeypatch = monkeypatch
        self.histories = processes.folder / "histories"
        self.faults = FaultFile(processes.folder / "faults")
        self._environment = {HISTORY: str(self.histories), FAULTS: str(processes.folder / "faults")}

    def learner(self, bug: Bug) -> LearnerProcess:
        """Starts the learner."""
        self._monkeypatch.setattr("tests.e2e.processes.LEARNER", "tests.chaos.planted_learner")
        run_file = write_run(self._processes.folder, {NAME: small()}, lease_seconds=10.0, checkpoint_seconds=1.0)
        return self._processes.learner(run_file, environment={**self._environment, BUG: bug})

    def actor(self, learner: LearnerProcess) -> Child:
        """Starts the actor."""
        options = ("--learner", learner.address, "--env", "CartPole-v1", "--num-envs", "2", "--log-format", "json")
        line = ("-m", "tests.chaos.faulty_actor", "gym", *options)
        return self._processes.python("actor", *line, environment=self._environment)

    def found(self) -> set[Invariant]:
        """Returns the invariants that do not hold; each violation has its lines."""
        violations = check_folder(self.histories)
        assert all(violation.lines for violation in violations)
        print(report(violations))  # noqa: T201 - shown if the test fails
        return {violation.invariant for violation in violations}


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """Starts processes that end with the test."""
    with processes_in(tmp_path) as processes:
        yield Stage(processes, monkeypatch)


@pytest.mark.parametrize("bug", [Bug.NONE, Bug.EARLY_ACK])
def test_an_ack_before_queueing(stage: Stage, bug: Bug) -> None:
    """An ack that is sent before its chunk is queued is found, and none is found in the product."""
    learner = stage.learner(bug)
    actor = stage.actor(learner)
    learner.wait_for_version(NAME, VERSIONS, actor)
    learner.kill()
    assert stage.found() == ({Invariant.ACKED_HAS_A_FATE} if bug is Bug.EARLY_ACK else set())


@pytest.mark.parametrize("bug", [Bug.NONE, Bug.NO_DUPLICATE_CHECK])
def test_a_chunk_that_arrives_twice(stage: Stage, bug: Bug) -> None:
    """A chunk that is trained twice is found; the product trains the second one not."""
    learner = stage.learner(bug)
    actor = stage.actor(learner)
    learner.wait_for_version(NAME, 2, actor)
    stage.faults.send(CallFault(Kind.DUPLICATE, "Upload"))
    learner.wait_for(stage.faults.injected, "a chunk is sent twice", actor)
    learner.wait_for_version(NAME, learner.behavior(NAME).version + VERSIONS, actor)
    books = learner.behavior(NAME).books
    learner.kill()
    found = stage.found()
    if bug is Bug.NONE:
        assert not found
        assert books.duplicate
    else:
        assert Invariant.TRAINED_ONCE in found


@pytest.mark.parametrize("bug", [Bug.NONE, Bug.NO_EPOCH_CHECK])
def test_a_stream_of_an_older_epoch(stage: Stage, bug: Bug) -> None:
    """A stream that is served after its session was opened again is found; the product refuses it."""
    learner = stage.learner(bug)
    opening = session_pb2.OpenSessionRequest(
        protocol_revision=PROTOCOL_REVISION, actor_name="old", instance_id="one process", client_version="test"
    )
    with grpc.insecure_channel(learner.address) as channel:
        sessions = session_pb2_grpc.SessionServiceStub(channel)
        first = sessions.OpenSession(opening)
        opening.resume.session_id, opening.resume.epoch = first.session_id, first.epoch
        opening.resume.generation = first.generation
        assert sessions.OpenSession(opening).epoch == first.epoch + 1
        old = trajectory_pb2.UploadOpen(session_id=first.session_id, epoch=first.epoch)
        upload = trajectory_pb2_grpc.TrajectoryServiceStub(channel).Upload
        answers = upload(iter([trajectory_pb2.UploadRequest(open=old)]))
        if bug is Bug.NONE:
            with pytest.raises(grpc.RpcError, match="is fenced"):
                next(answers)
        else:
            assert next(answers).HasField("opened")
    assert stage.found() == ({Invariant.FENCED} if bug is Bug.NO_EPOCH_CHECK else set())
