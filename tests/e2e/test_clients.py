"""Tests clients of a gateway: simulators without a policy, from a learner's start to its end."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import gymnasium
import numpy as np
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec
from rollcast.v1 import client_pb2

from tests.e2e.processes import Child, LearnerProcess, Processes, wait_until
from tests.e2e.runs import cartpole, small, write_run
from tests.playing import ENDED, INTERRUPTED, Player

NAME = "CartPole"
SPEC = BehaviorSpec(NAME, (ObservationSpec("state", np.dtype(np.float32), (4,)),), ActionSpec(discrete_branches=(2,)))
CARTS = 8


class Carts:
    """Poles on carts, one agent each, which a client plays in a thread until it is told to stop, or the gateway is gone.

    Args:
        address: Of the gateway.
    """

    def __init__(self, address: str) -> None:
        self.player = Player(address)
        self.answers = 0
        self.goodbye = ""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._until_gone, name="carts")
        self._thread.start()

    def _until_gone(self) -> None:
        with contextlib.suppress(grpc.RpcError, StopIteration):  # it vanishes, or the gateway has ended
            self._play()

    def _play(self) -> None:
        carts = [gymnasium.make("CartPole-v1") for _ in range(CARTS)]
        told = self.player.greet(SPEC)
        seed = told.environment.seed
        seen = [cart.reset(seed=seed + number)[0] for number, cart in enumerate(carts)]
        steps = client_pb2.AgentSteps(behavior=NAME, agents=range(CARTS), values=np.concatenate(seen).tolist())
        while not self._is_over.is_set():
            answer = self.player.step(steps)
            if answer.goodbye:
                self.goodbye = answer.goodbye
                return
            self.answers += 1
            (actions,) = answer.actions
            assert list(actions.agents) == list(range(CARTS))
            steps = client_pb2.AgentSteps(behavior=NAME)
            for agent, (cart, choice) in enumerate(zip(carts, actions.discrete, strict=True)):
                seen_now, reward, ended, cut_off, _ = cart.step(choice)
                if ended or cut_off:
                    _report(steps, agent, seen_now, float(reward), ENDED if ended else INTERRUPTED)
                    seen_now, reward = cart.reset()[0], 0.0
                _report(steps, agent, seen_now, float(reward), client_pb2.AGENT_STATE_UNSPECIFIED)

    def leave(self) -> None:
        """Leaves in order."""
        self._is_over.set()
        self._thread.join()
        self.player.leave()

    def vanish(self) -> None:
        """Ends without a word, while it plays."""
        self.player.vanish()
        self._thread.join()


def _report(steps: client_pb2.AgentSteps, agent: int, seen: np.ndarray, reward: float, state: int) -> None:
    steps.agents.append(agent)
    steps.values.extend(seen.tolist())
    steps.rewards.append(reward)
    steps.states.append(client_pb2.AgentState.ValueType(state))


def _address(child: Child) -> str:
    """Waits until a gateway listens; its lines may be in the learner's log."""

    def said() -> str:
        assert child.is_running, child.said()
        return next((event["clients"] for event in child.events("listening") if "clients" in event), "")

    return wait_until(said, "the gateway listens", said=child.said)


@contextlib.contextmanager
def _playing(address: str) -> Iterator[Carts]:
    carts = Carts(address)
    try:
        yield carts
    finally:
        carts.leave()


def test_a_learner_with_a_gateway_trains_clients(processes: Processes) -> None:
    """`serve --clients` trains what clients play, whether others vanish or not, and ends the gateway with the run."""
    run_file = write_run(processes.folder, {NAME: cartpole()})
    learner = processes.learner(run_file, "--clients", "127.0.0.1:0")
    address = _address(learner)
    with _playing(address) as carts:
        other = Carts(address)
        learner.wait_for_version(NAME, 1)
        other.vanish()
        learner.wait_for(lambda: learner.behavior(NAME).mean_return_100 > 30, "it learns")
        assert carts.answers
        learner.signal(signal.SIGTERM)
        assert learner.wait() == 0, learner.said()
    (books,) = (event for event in learner.events("books") if event.get("actor") == "clients")
    assert (books["behavior"], books["open"], books["discarded"], books["dropped"]) == (NAME, 0, {}, {})
    assert books["produced"] == books["acked"] + books["unacked"] > 256
    assert [event["actor"] for event in learner.events("client_left")] == ["clients"], "the one that vanished"


def test_clients_stay_while_the_learner_is_gone(processes: Processes) -> None:
    """A gateway of its own holds its clients until a learner that was killed is back."""
    run_file = write_run(processes.folder, {NAME: small()}, checkpoint_seconds=1.5)
    learner = processes.learner(run_file)
    gateway = processes.python(
        "gateway",
        *("-m", "actor_client", "clients", "--learner", learner.address, "--listen", "127.0.0.1:0"),
        *("--log-format", "json", "--metrics-address", "off"),
    )
    with _playing(_address(gateway)) as carts:
        learner.wait_for_version(NAME, 2, gateway)
        learner.wait_for((learner.folder / "run_state.pt").exists, "a checkpoint", gateway)
        port = int(learner.address.rpartition(":")[2])
        learner.kill()
        again: LearnerProcess = processes.learner(run_file, "--resume", port=port)
        before = again.behavior(NAME).version
        answers = carts.answers
        again.wait_for_version(NAME, before + 2, gateway)
        assert carts.answers > answers
        assert not carts.goodbye
    gateway.signal(signal.SIGTERM)
    assert gateway.wait() == 0, gateway.said()


def test_a_gateway_that_cannot_listen_ends_the_run(processes: Processes, tmp_path: Path) -> None:
    """The run ends with the gateway's own error."""
    learner = processes.learner(write_run(processes.folder, {NAME: small()}))
    taken = learner.address
    second = processes.learner(tmp_path / "run.yaml", "--clients", taken, run="second")
    assert f"cannot listen on {taken}" in second.fails_with(23)
