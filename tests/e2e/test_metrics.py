"""Tests the metrics of a run: balanced books in every scrape, and counted events."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from actor_client.exits import ExitCode
from actor_client.heartbeat import check
from learner.shared.observe.address import read_addresses
from tests.e2e import toys
from tests.e2e.processes import Child, LearnerProcess, Processes
from tests.e2e.runs import small, write_run

NAME = "CartPole"
UPDATES = 8


class Scrape:
    """The samples of a scrape by name, summed over labels that are not named."""

    def __init__(self, url: str) -> None:
        with urllib.request.urlopen(url, timeout=20) as answer:  # noqa: S310 - our own
            self.text: bytes = answer.read()
        self._samples = [
            sample for family in text_string_to_metric_families(self.text.decode()) for sample in family.samples
        ]

    def sum(self, name: str, **labels: str) -> float:
        """Returns the sum of a metric's series that have these labels."""
        found = [
            sample.value for sample in self._samples if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert found, f"there is no {name} with {labels}"
        return sum(found)

    def counters(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """Returns all series that never fall."""
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for sample in self._samples
            if sample.name.endswith(("_total", "_count", "_bucket"))
        }


def scrape(learner: LearnerProcess) -> Scrape:
    """Scrapes a learner and checks its books."""
    found = read_addresses(learner.folder)
    assert found is not None
    result = Scrape(f"http://{found.http}/metrics")
    prefix = "rollcast_learner_env_steps_"
    fates = sum(result.sum(prefix + fate) for fate in ("trained_total", "dropped_total", "queued", "lost_total"))
    assert result.sum(f"{prefix}received_total") == fates
    return result


def scrape_actor(actor: Child) -> Scrape:
    """Scrapes an actor and checks its books."""
    result = Scrape(actor.events("metrics")[0]["url"])
    prefix = "rollcast_actor_steps_"
    fates = sum(
        result.sum(prefix + fate) for fate in ("open", "discarded_total", "dropped_total", "unacked", "acked_total")
    )
    assert result.sum(f"{prefix}produced_total") == fates
    return result


def start(processes: Processes, *arguments: str) -> tuple[LearnerProcess, Child]:
    """Starts a learner and an actor that serve metrics on free ports, and waits for the first scrapes."""
    rollcast = {"http_address": "127.0.0.1:0", "checkpoint_seconds": 0.2}
    learner = processes.learner(write_run(processes.folder, {NAME: small()}, **rollcast))
    actor = processes.actor(
        learner.address, "CartPole-v1", "--num-envs", "4", "--metrics-address", "127.0.0.1:0", *arguments
    )
    learner.wait_for(lambda: bool(actor.events("metrics")), "the actor serves metrics", actor)
    learner.wait_for_version(NAME, 1, actor)
    return learner, actor


def test_both_sides_of_a_run_are_measured(processes: Processes) -> None:
    """Books balance in every scrape, and after some updates every part of the learner and of the actor has its figures."""
    learner, actor = start(processes)
    books_balance(learner, actor)
    learner.wait_for_version(NAME, UPDATES, actor)
    events_are_counted(learner, actor)
    an_actor_shows_its_own_side(actor)


def books_balance(learner: LearnerProcess, actor: Child) -> None:
    """In every scrape both sides' books balance, no counter decreases, and Prometheus' own rules are followed."""
    before, before_actor = scrape(learner), scrape_actor(actor)
    for _ in range(25):
        now, now_actor = scrape(learner), scrape_actor(actor)
        for earlier, later in ((before, now), (before_actor, now_actor)):
            numbers = later.counters()
            fallen = {
                name: (value, numbers[name]) for name, value in earlier.counters().items() if numbers[name] < value
            }
            assert fallen == {}
        before, before_actor = now, now_actor
    assert now.sum("rollcast_learner_env_steps_received_total") > 0
    for text in (now.text, now_actor.text):
        assert b"_created" not in text
        if (promtool := shutil.which("promtool")) is not None:
            done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False)
            assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def events_are_counted(learner: LearnerProcess, actor: Child) -> None:
    """Every part of the pipeline has consistent metrics."""
    prefix = "rollcast_learner_"
    learner.wait_for(lambda: scrape(learner).sum(f"{prefix}event_loop_lag_seconds_count"), "a look at the loop", actor)
    # Policies overtake statistics, which come a few times a second.
    learner.wait_for(
        lambda: scrape(learner).sum(f"{prefix}updates_total") >= UPDATES, "statistics of the updates", actor
    )
    now = scrape(learner)

    def of(name: str, **labels: str) -> float:
        return now.sum(prefix + name, **labels)

    for phase in ("stage", "assemble", "optimize"):
        assert abs(of("update_seconds_count", phase=phase) - of("updates_total")) <= 1
    assert of("batch_wait_seconds_count") >= of("updates_total")
    assert abs(of("policy_lag_versions_count") - of("env_steps_trained_total")) <= 512  # one update between the two
    terms = sum(of("loss_term", term=term) for term in ("policy", "value", "entropy"))
    assert terms == pytest.approx(of("loss"), abs=1e-6)
    assert of("chunks_received_total") == of("chunk_bytes_count") > 0
    assert 0 < of("ack_seconds_count") <= of("chunks_received_total")
    assert of("received_wire_bytes_total") == of("chunk_bytes_sum") > 0
    assert of("queue_wait_seconds_count") > 0
    assert of("episode_return_count") == of("episode_steps_count") > 0
    assert of("episode_return_mean") > 0
    for name in (
        "grad_norm",
        "entropy_nats",
        "learning_rate",
        "policy_version",
        "policy_bytes",
        "policy_sent_bytes_total",
    ):
        assert of(name) > 0, name
    assert (of("sessions_opened_total", outcome="ok"), of("declarations_total", outcome="ok")) == (1, 1)
    assert (of("sessions", state="connected"), of("policy_subscribers")) == (1, 1)
    assert of("policy_sends_total", outcome="ok") > 0
    assert of("checkpoints_total", outcome="ok") > 0
    assert (of("run_state", state="training"), of("run_state"), of("bottleneck")) == (1, 1, 1)
    assert time.time() - of("last_update_timestamp_seconds") < 60
    assert of("ring_capacity_steps") > 0
    assert of("ahead_limit_steps") > 0
    assert (of("build_info"), of("run_info"), of("generation")) == (1, 1, 1)
    calls = "grpc_server_"
    assert now.sum(f"{calls}handled_total", grpc_method="OpenSession", grpc_code="OK") == 1
    assert now.sum(f"{calls}started_total", grpc_method="Upload") == 1
    assert now.sum(f"{calls}handled_total", grpc_method="Upload") == 0
    assert now.sum(f"{calls}msg_received_total", grpc_method="Upload") >= of("chunks_received_total")
    assert now.sum(f"{calls}handling_seconds_count", grpc_method="OpenSession") > 0


def an_actor_shows_its_own_side(actor: Child) -> None:
    """An actor's port has its steps, waits, chunks, policies and streams."""
    now = scrape_actor(actor)
    prefix = "rollcast_actor_"

    def of(name: str, **labels: str) -> float:
        return now.sum(prefix + name, **labels)

    assert of("env_steps_total") > 0
    assert of("episodes_total", end="terminated") > 0
    for name in ("env_step_seconds", "act_seconds", "record_seconds", "ack_round_trip_seconds", "policy_fetch_seconds"):
        assert of(f"{name}_count") > 0, name
    assert of("chunks_built_total") >= of("chunks_sent_total") >= of("chunks_acked_total") > 0
    assert of("sent_bytes_total") > 0
    assert (of("connected", stream="upload"), of("connected", stream="policy")) == (1, 1)
    assert of("policy_version") > 0
    assert of("policy_swaps_total", outcome="ok") > 1
    assert of("wait_seconds_total") > 0
    assert of("reconnects_total") == of("rejected_steps_total") == of("env_failures_total") == 0
    assert now.sum("process_resident_memory_bytes") > 0


def test_an_actor_that_waits_for_its_learner_is_well(processes: Processes, tmp_path: Path) -> None:
    """An actor that waits for its learner stays healthy, and its books continue."""
    beat = tmp_path / "heartbeat"
    learner, actor = start(processes, "--heartbeat-file", str(beat))
    learner.wait_for(lambda: scrape(learner).sum("rollcast_learner_checkpoints_total") > 1, "a run state", actor)
    port = int(learner.address.rpartition(":")[2])
    produced = scrape_actor(actor).sum("rollcast_actor_steps_produced_total")
    learner.kill()

    def is_alone() -> bool:
        now = scrape_actor(actor)
        is_cut = now.sum("rollcast_actor_connected", stream="upload") == 0
        return is_cut and now.sum("rollcast_actor_wait_seconds_total", reason="connection") > 2.5

    deadline = time.monotonic() + 60
    while not is_alone():
        assert time.monotonic() < deadline, actor.said()
        time.sleep(0.1)
    waiting = scrape_actor(actor)
    assert waiting.sum("rollcast_actor_reconnects_total") > 0
    # Only while it waits: a scrape can fall between the two counts of one step.
    assert waiting.sum("rollcast_actor_env_steps_total") == waiting.sum("rollcast_actor_steps_produced_total") > 0
    assert "last beat" in check(beat, 10)
    again = processes.learner(tmp_path / "run.yaml", "--resume", port=port)
    again.wait_for(
        lambda: scrape_actor(actor).sum("rollcast_actor_steps_produced_total") > produced + 1000, "it steps on", actor
    )
    now = scrape(again)
    assert now.sum("rollcast_learner_generation") == 2
    assert now.sum("rollcast_learner_sessions_opened_total", outcome="resumed") == 1
    scrape_actor(actor)


def test_a_pause_and_a_stopped_actor_show(processes: Processes) -> None:
    """A pause is shown and timed on both sides; then the actor ends as one without metrics does."""
    learner, actor = start(processes)
    learner.operator.pause()
    learner.wait_for(lambda: scrape_actor(actor).sum("rollcast_actor_held", reason="paused") == 1, "it is held", actor)
    held = scrape(learner)
    assert held.sum("rollcast_learner_held", reason="paused") == 1
    assert held.sum("rollcast_learner_run_state", state="paused") == 1
    learner.operator.resume()
    learner.wait_for(lambda: scrape_actor(actor).sum("rollcast_actor_held", reason="paused") == 0, "it goes on", actor)
    learner.wait_for(
        lambda: scrape_actor(actor).sum("rollcast_actor_wait_seconds_total", reason="hold") > 0, "it counted", actor
    )
    assert scrape(learner).sum("rollcast_learner_held_seconds_total", reason="paused") > 0
    actor.signal(signal.SIGTERM)
    assert actor.wait() == 0, actor.said()
    learner.wait_for(lambda: scrape(learner).sum("rollcast_learner_sessions_closed_total") == 1, "it is heard of")


def test_an_actor_whose_environment_hangs_is_found_out(processes: Processes, tmp_path: Path) -> None:
    """If an environment hangs, the heartbeat ages, the health check fails, and metrics still answer."""
    beat = tmp_path / "heartbeat"
    learner = processes.learner(write_run(tmp_path, {"Hangs": small()}))
    arguments = ("--metrics-address", "127.0.0.1:0", "--heartbeat-file", str(beat))
    hanging = processes.actor(learner.address, toys.named("hanging"), *arguments)
    learner.wait_for(lambda: bool(hanging.events("metrics")), "it serves metrics", hanging)

    def is_old() -> bool:
        check = processes.python(
            f"check-{time.monotonic_ns()}",
            *("-m", "actor_client", "healthcheck", "--heartbeat-file", str(beat), "--max-age", "3"),
        )
        return check.wait() == ExitCode.STUCK

    learner.wait_for(is_old, "the heartbeat gets old", hanging)
    assert Scrape(hanging.events("metrics")[0]["url"]).sum("rollcast_actor_env_steps_total") > 0
