"""Tests trainers that someone else starts."""

from __future__ import annotations

import json
import os
import signal
from importlib.metadata import version
from pathlib import Path

from rollcast.auth import Role
from rollcast.tls import ClientSecurity

from learner.service.identity.audit import AUDIT_FILE
from learner.shared.exits import ExitCode
from learner.shared.introduction import Introduction
from learner.start.remote_dial import dial_front
from tests.e2e.preloaded import children_of
from tests.e2e.processes import Child, LearnerProcess, Processes, processes_in, wait_until
from tests.e2e.runs import cartpole, write_run
from tests.e2e.test_trainer_deaths import is_back
from tests.learner.link.test_codec import headed
from tests.learner.service.identity.certificates import Folder
from tests.ports import reserve_ports

NAME = "CartPole"


def trainer(processes: Processes, rank: int, ranks: int, front: str, *options: str) -> Child:
    """Starts a rank that trains for a learner, and starts again."""
    place = ("--trainers", str(ranks), "--rank", str(rank), "--restarts", "3")
    line = ("-m", "learner", "trainer", "--learner", front, *place, *options)
    return processes.python(f"trainer-{len(processes._children)}", *line)


def started(processes: Processes, ranks: int, front: str, *options: str) -> LearnerProcess:
    """Starts a learner that waits for its trainers."""
    run_file = write_run(processes.folder, {NAME: cartpole()}, checkpoint_seconds=1.0, lease_seconds=15.0)
    return processes.learner(run_file, "--trainer-address", front, "--trainers", str(ranks), *options)


def waits(learner: LearnerProcess, times: int = 1) -> None:
    """Waits until a learner waits for trainers."""
    wait_until(lambda: len(learner.events("waiting_for_trainers")) >= times, "it waits", said=learner.said)


def test_ranks_train_over_tls_and_come_back(processes: Processes, tmp_path: Path) -> None:
    """Two ranks with a token train; after the death of one both start again, and the end of the run ends all."""
    folder = Folder.make(tmp_path / "certs", lab=Role.ACTOR, farm=Role.TRAINER)
    front = f"127.0.0.1:{reserve_ports()}"
    learner = started(processes, 2, front, "--certs", str(folder.path))
    identity = ("--tls-ca", str(folder.ca), "--token-file", str(folder.path / "farm.token"))
    trainers = [trainer(processes, rank, 2, front, *identity) for rank in range(2)]
    lab = ("--tls-ca", str(folder.ca), "--token-file", str(folder.path / "lab.token"))
    actors = [processes.actor(learner.address, "CartPole-v1", "--num-envs", "3", *lab) for _ in range(2)]
    everyone = (*actors, *trainers)
    learner.wait_for((learner.folder / "run_state.pt").exists, "a run state", *everyone)
    learner.wait_for_version(NAME, 4, *everyone)
    os.kill(children_of(trainers[1].pid)[0], signal.SIGKILL)
    learner.wait_for(lambda: is_back(learner, 2, len(actors)), "all are back", *everyone)
    learner.wait_for_version(NAME, learner.behavior(NAME).version + 3, *everyone)
    numbers = learner.behavior(NAME).numbers
    assert min(numbers[f"rank_steps/{rank}"] for rank in range(2)) > 0
    learner.operator.drain(final=True)
    assert learner.wait() == ExitCode.OK, learner.said()
    assert [each.wait() for each in trainers] == [0, 0], trainers[0].said() + trainers[1].said()
    assert not (learner.folder / ".trainers").exists()


def test_a_lost_machine_may_come_back(processes: Processes) -> None:
    """After the death of one machine's trainer, its next start joins the others."""
    front = f"127.0.0.1:{reserve_ports()}"
    learner = started(processes, 2, front)
    first, lost = (trainer(processes, rank, 2, front) for rank in range(2))
    actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "2")
    learner.wait_for((learner.folder / "run_state.pt").exists, "a run state", actor, first, lost)
    lost.kill()
    waits(learner, 2)
    again = trainer(processes, 1, 2, front)
    learner.wait_for(lambda: is_back(learner, 2, 1), "all are back", actor, first, again)
    learner.operator.drain(final=True)
    assert [learner.wait(), first.wait(), again.wait()] == [0, 0, 0], learner.said() + first.said() + again.said()


def test_one_trainer_elsewhere_outlives_the_learner(processes: Processes) -> None:
    """One rank trains too; after a kill of the learner, and after a signal, it waits for the next start; the end ends it."""
    front = f"127.0.0.1:{reserve_ports()}"
    learner = started(processes, 1, front)
    trainers = trainer(processes, 0, 1, front)
    port = learner.address.rpartition(":")[2]
    actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "2")
    learner.wait_for((learner.folder / "run_state.pt").exists, "a run state", actor, trainers)
    learner.kill()
    again = processes.learner(processes.folder / "run.yaml", "--trainer-address", front, "--resume", port=int(port))
    again.wait_for(lambda: is_back(again, 2, 1), "it is back", actor, trainers)
    again.wait_for_version(NAME, again.behavior(NAME).version + 2, actor, trainers)
    again.signal(signal.SIGTERM)
    assert again.wait() == ExitCode.OK, again.said()
    assert trainers.is_running, trainers.said()
    last = processes.learner(processes.folder / "run.yaml", "--trainer-address", front, "--resume", port=int(port))
    last.wait_for(lambda: is_back(last, 3, 1), "it is back again", actor, trainers)
    last.operator.drain(final=True)
    assert [last.wait(), trainers.wait()] == [0, 0], last.said() + trainers.said()


def test_a_lone_trainer_in_another_folder(processes: Processes, tmp_path: Path) -> None:
    """Relative paths are those of the learner; a signal, or the end of the learner, ends the trainer with one line."""
    front = f"127.0.0.1:{reserve_ports()}"
    (tmp_path / "learner").mkdir()
    with processes_in(tmp_path, tmp_path / "learner") as there:
        run_file = write_run(tmp_path, {NAME: cartpole()}, checkpoint_seconds=1.0)
        (tmp_path / "results").symlink_to(tmp_path / "learner" / "results")
        learner = there.learner(run_file, "--trainer-address", front, "--results-dir", "results")
        waits(learner)
        line = ("-m", "learner", "trainer", "--learner", front)
        first = processes.python("first", *line)
        actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "2")
        learner.wait_for_version(NAME, 1, first, actor)
        assert Path(f"/proc/{first.pid}/cwd").resolve() == tmp_path / "learner"
        first.signal(signal.SIGTERM)
        said = first.fails_with(ExitCode.INTERRUPTED)
        assert "SIGTERM received: the learner continues with another trainer" in said
        waits(learner, 2)
        second = processes.python("second", *line)
        learner.wait_for(lambda: is_back(learner, 2, 1), "it is back", second, actor)
        learner.kill()
        assert "a trainer that is started again waits for it" in second.fails_with(ExitCode.TRAINER_FAILED)


def test_a_rank_without_the_run_folder_says_so(processes: Processes) -> None:
    """Rank 0 ends with the reason, and the learner waits for another."""
    front = f"127.0.0.1:{reserve_ports()}"
    learner = started(processes, 1, front)
    waits(learner)
    (learner.folder / ".trainers").unlink()
    child = processes.python("trainer", "-m", "learner", "trainer", "--learner", front)
    said = f"rank 0 does not see the run folder {learner.folder}, into which it saves"
    assert said in child.fails_with(ExitCode.NOTHING_TO_RESUME)
    learner.wait_for(lambda: learner.events("trainer_refused"), "it says so")
    assert said in learner.events("trainer_refused")[0]["reason"]
    assert learner.is_running


def test_a_death_at_the_first_start_is_one_of_three(processes: Processes) -> None:
    """A trainer that ends before the run has begun is waited for again."""
    front = f"127.0.0.1:{reserve_ports()}"
    learner = started(processes, 1, front)
    waits(learner)
    said = processes.python("status", "-m", "learner", "status", str(learner.folder))
    assert said.wait() == ExitCode.OK
    assert f"waits for its trainers at {front}" in said.said()
    introduction = Introduction(0, 1, version("rollcast"))
    connection, _ = dial_front(front, ClientSecurity(), introduction, 20.0, lambda _: None)
    connection.close()
    waits(learner, 2)
    (line,) = learner.events("trainers_start_again")
    assert (line["deaths"], line["ends_at"]) == (1, 3)
    launch = ("--standalone", "--nproc-per-node", "1", "--log-dir", os.devnull)
    program = ("-m", "torch.distributed.run", *launch, "-m", "learner", "trainer", "--learner", front)
    trainers = processes.python("torchrun", *program, environment={"OMP_NUM_THREADS": "1"})
    actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "2")
    learner.wait_for_version(NAME, 2, actor, trainers)
    assert "torchrun listens on all addresses without a key" in trainers.said()


def test_a_trainer_has_the_service_import_nothing(processes: Processes, tmp_path: Path) -> None:
    """Settings that it sends, which name code, are no message for the service, whatever can be imported there."""
    (tmp_path / "sent_of_a_test.py").write_text(f"open({str(tmp_path / 'was_run')!r}, 'x')")
    front = f"127.0.0.1:{reserve_ports()}"
    run_file = write_run(tmp_path, {NAME: cartpole()})
    environment = {"PYTHONPATH": str(tmp_path)}
    learner = processes.learner(run_file, "--trainer-address", front, environment=environment)
    waits(learner)
    options = {"behaviors": {NAME: {"trainer_type": "sent_of_a_test:Trainer"}}}
    introduction = Introduction(0, 1, version("rollcast"))
    connection, _ = dial_front(front, ClientSecurity(), introduction, 20.0, lambda _: None)
    connection.send_bytes(headed([], "Hello", {"loaded": {"path": None, "options": options}}))
    waits(learner, 2)
    connection.close()
    (line,) = learner.events("trainer_process_damaged")
    assert line["error"] == "'Hello' is no message of this side of the link"
    assert not (tmp_path / "was_run").exists()


def test_a_signal_while_it_waits(processes: Processes) -> None:
    """A learner that waits for its trainers ends at once with the given code, and says no more that it waits."""
    learner = started(processes, 1, f"127.0.0.1:{reserve_ports()}", "--stopped-code", "143")
    waits(learner)
    assert (learner.folder / ".trainers").exists()
    learner.signal(signal.SIGTERM)
    learner.fails_with(143)
    assert not (learner.folder / ".trainers").exists()


def test_a_revoked_token_ends_its_trainer(processes: Processes, tmp_path: Path) -> None:
    """Soon after its token was removed, a trainer is gone, the audit says so, and the learner waits for others."""
    folder = Folder.make(tmp_path / "certs", lab=Role.ACTOR, farm=Role.TRAINER)
    front = f"127.0.0.1:{reserve_ports()}"
    learner = started(processes, 1, front, "--certs", str(folder.path))
    identity = ("--tls-ca", str(folder.ca), "--token-file", str(folder.path / "farm.token"))
    line = ("-m", "learner", "trainer", "--learner", front, *identity)
    child = processes.python("trainer", *line)
    learner.wait_for(lambda: learner.events("listening"), "it serves", child)
    folder.write_tokens(lab=Role.ACTOR)
    waits(learner, 2)
    assert child.wait() == ExitCode.TRAINER_FAILED
    assert learner.events("trainer_revoked")[0]["rank"] == 0
    (noted,) = [json.loads(text) for text in (learner.folder / AUDIT_FILE).read_text().splitlines()]
    assert (noted["action"], noted["principal"], noted["role"]) == ("revoke", "farm", "trainer")
    again = processes.python("again", *line)
    assert "the token is unknown, was revoked, or has expired" in again.fails_with(ExitCode.NOT_ALLOWED)


def test_strangers_are_sent_away(processes: Processes, tmp_path: Path) -> None:
    """A wrong role, no token, another number of ranks and another authority end with one line, and the learner waits on."""
    folder = Folder.make(tmp_path / "certs", lab=Role.ACTOR, farm=Role.TRAINER)
    other = Folder.make(tmp_path / "other")
    front = f"127.0.0.1:{reserve_ports()}"
    learner = started(processes, 2, front, "--certs", str(folder.path))
    waits(learner)
    ca = ("--tls-ca", str(folder.ca))
    farm = ("--token-file", str(folder.path / "farm.token"))
    for options, words, code in (
        (
            (*ca, "--token-file", str(folder.path / "lab.token")),
            "lab is an actor, and this call needs a trainer",
            ExitCode.NOT_ALLOWED,
        ),
        (ca, "the learner requires a token", ExitCode.NOT_ALLOWED),
        ((*ca, *farm), "the learner waits for 2 trainers", ExitCode.NOT_ALLOWED),
        (("--tls-ca", str(other.ca), *farm), "the learner's certificate is refused", ExitCode.UNREACHABLE),
    ):
        line = ("-m", "learner", "trainer", "--learner", front, *options)
        child = processes.python(f"stranger-{len(processes._children)}", *line)
        assert words in child.fails_with(code)
    assert len(learner.events("trainer_refused")) == 3, "a failed handshake has no line: anyone could fill the log"
    assert learner.is_running
