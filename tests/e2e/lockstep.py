"""Runs in lock-step: a learner as users start it, and actors in threads of the test."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml

from actor_client.connection.link import LearnerLink
from actor_client.envs.base import EnvBatch
from actor_client.envs.factory import make_env_batch
from actor_client.policy.runner import Policy
from actor_client.rollout.vector.loop import RolloutLoop
from learner.cli.operator import Operator
from learner.shared.observe.address import BoundAddresses, read_addresses
from tests.actor_client.connection.proxy import Proxy
from tests.e2e.processes import ROOT, SECONDS, command_environment, wait_until
from tests.e2e.runs import small
from tests.e2e.state import state_of

NAME = "CartPole"
ENVS = 3
QUOTA = 48


@dataclass
class Actor:
    """An actor that plays until its learner has finished or it is stopped.

    Attributes:
        name: Of the actor.
        envs: How many environments it has.
        behavior: What it plays.
        delay_seconds: How long it waits before it comes.
        vector: Its environments are those of a vector environment, which ignores actions where it begins again.
        breaks: Whether its connections are to break.
        proxy: What they go through then.
        link: Its connection, once it has one.
    """

    name: str
    envs: int = ENVS
    behavior: str = NAME
    delay_seconds: float = 0.0
    vector: bool = False
    breaks: bool = False
    proxy: Proxy | None = None
    link: LearnerLink | None = None

    def leave(self) -> None:
        """Stops it cleanly."""
        if self.link is not None:
            self.link.request_stop("the test says so")

    def play(self, run: Run) -> None:
        """Plays; in a thread."""
        address = run.addresses().address
        if self.breaks:
            with Proxy(int(address.rpartition(":")[2])) as self.proxy:
                self._play(self.proxy.address)
        else:
            self._play(address)

    def _play(self, address: str) -> None:
        time.sleep(self.delay_seconds)

        def make() -> EnvBatch:
            return make_env_batch("CartPole-v1", num_envs=self.envs, behavior=self.behavior, vector=self.vector)

        batch = make()
        self.link = link = LearnerLink(address, actor_name=self.name, load=Policy.load, client_version="test")
        link.start()
        try:
            link.open(SECONDS)
            RolloutLoop(make, batch, link, lambda: link.declare(batch.spec, 0, batch.num_envs, SECONDS)).run()
        finally:
            batch.close()
            link.close()


@dataclass
class Run:
    """A run folder and the processes started in it.

    Attributes:
        results: Where it is.
        behaviors: Settings by name.
        lockstep: The block of the run file.
        rollcast: Other keys of the service.
        more: Other blocks.
        learner: The newest of its learners.
    """

    results: Path
    behaviors: Mapping[str, Any]
    lockstep: Mapping[str, Any]
    rollcast: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    learner: subprocess.Popen[bytes] | None = None

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.results / "run"

    def serve(self, *flags: str, port: int = 0) -> int:
        """Runs a learner to its end and returns its exit code."""
        path = self.results / "run.yaml"
        service = {
            "lease_seconds": 10.0,
            "drain_seconds": 10.0,
            "torch_threads": 1,
            "http_address": "127.0.0.1:0",
            "log_format": "json",
            "address": f"127.0.0.1:{port}",
            "lockstep": dict(self.lockstep),
            **self.rollcast,
        }
        document = {"behaviors": dict(self.behaviors), "env_settings": {"seed": 11}, "rollcast": service, **self.more}
        path.write_text(yaml.safe_dump(document))
        options = ["--run-id", "run", "--results-dir", str(self.results), "--max-wall-seconds", str(SECONDS), *flags]
        with (self.results / "learner.log").open("ab") as log:
            self.learner = subprocess.Popen(
                [sys.executable, "-m", "learner", "serve", str(path), *options],
                cwd=ROOT, env=command_environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        try:
            return self.learner.wait()
        finally:
            self.learner.kill()

    def addresses(self) -> BoundAddresses:
        """Waits until the learner says where it listens."""
        found = wait_until(lambda: read_addresses(self.folder), "the learner listens")
        assert found is not None
        return found

    def operator(self) -> Operator:
        """Returns an operator of the run."""
        return Operator.of(self.addresses())

    def state(self) -> dict[str, Any]:
        """Reads the run state."""
        state: dict[str, Any] = torch.load(self.folder / "run_state.pt", weights_only=True)
        return state

    def final(self, behavior: str = NAME) -> dict[str, Any]:
        """Reads what training resulted in: weights, optimizer, statistics, generators, steps and episodes."""
        state: dict[str, Any] = torch.load(self.folder / behavior / "checkpoint.pt", weights_only=True)
        return {"state": state["state"], "step": state["step"]}


@contextmanager
def playing(run: Run, *actors: Actor, leave: bool = False) -> Iterator[None]:
    """Starts actors whose threads end with the block.

    Args:
        run: The run.
        actors: Who plays.
        leave: They go with the block, and not only with the end of the run.
    """
    threads = [threading.Thread(target=actor.play, args=(run,), daemon=True) for actor in actors]
    for thread in threads:
        thread.start()
    yield
    if leave:
        for actor in actors:
            actor.leave()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive(), "an actor did not end with its run"


@contextmanager
def meanwhile(call: Callable[[], None]) -> Iterator[None]:
    """Runs a function in a thread, which must end without an error before the block does."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            failures.append(error)
            raise

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert not failures, failures


def disturb(run: Run, actor: Actor, times: int) -> None:
    """Breaks all connections of an actor, and pauses and resumes the run, between two rounds."""
    operator = run.operator()
    for _ in range(times):
        _wait_for_a_round(operator)
        assert actor.proxy is not None
        for pair in list(actor.proxy.pairs):
            pair.close()
        operator.pause()
        operator.resume()


def _wait_for_a_round(operator: Operator) -> None:
    before = state_of(operator).lockstep.round
    wait_until(lambda: state_of(operator).lockstep.round > before, "the run goes on")


def stop_at_round(run: Run, number: int) -> None:
    """Waits for a round, and sends the learner a signal to stop."""
    operator = run.operator()
    wait_until(lambda: state_of(operator).lockstep.round >= number, f"round {number}")
    assert run.learner is not None
    run.learner.send_signal(signal.SIGTERM)


def settings(**changes: Any) -> dict[str, Any]:
    """Returns a behavior with a normalizer and random minibatches."""
    hyperparameters = {"batch_size": 32, "buffer_size": 64, "num_epoch": 2, "learning_rate_schedule": "constant"}
    network = {"hidden_units": 16, "num_layers": 1, "normalize": True}
    return small(hyperparameters=hyperparameters, network_settings=network, summary_freq=10**6) | changes


def differences(one: Any, other: Any, path: str = "") -> list[str]:
    """Returns the places in which two saved states differ by a bit."""
    if isinstance(one, dict):
        if one.keys() != other.keys():
            return [f"{path}: {sorted(map(str, one.keys() ^ other.keys()))}"]
        return [line for key in one for line in differences(one[key], other[key], f"{path}/{key}")]
    if isinstance(one, list | tuple):
        if len(one) != len(other):
            return [f"{path}: {len(one)} and {len(other)}"]
        pairs = zip(one, other, strict=True)
        return [line for index, pair in enumerate(pairs) for line in differences(*pair, f"{path}/{index}")]
    if isinstance(one, torch.Tensor):
        return [] if one.dtype == other.dtype and torch.equal(one, other) else [path]
    return [] if one == other else [f"{path}: {one} and {other}"]
