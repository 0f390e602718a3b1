"""An actor without a network, which steps CartPole and fills the trainer's queue."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from rollcast.enums import ObservationKind, SegmentEnd
from rollcast.policies import PolicyDescription, describe_payload
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec
from rollcast.trajectories import Chunk
from torch import Tensor

from learner.link.channel import Link
from learner.link.to_front import Policy, Send
from learner.link.to_trainers import Experience
from learner.service.ingest.behaviors import Behavior, BehaviorTable
from learner.service.ingest.ledger import Ledger
from learner.service.ingest.memory_estimates import Estimator
from learner.shared.observe.stats import StatsReporter
from learner.shared.policies import StoredPolicy
from learner.shared.settings.options import RunOptions
from learner.training.export.describe import Progress, describe
from learner.training.lockstep.round_queue import RoundQueue
from learner.training.networks.policy import PolicyNetwork
from learner.training.trainers.base import TrainerContext
from learner.training.trainers.outcome_report import ExperienceQueue, OutcomeReport
from tests.coded_link import coded
from tests.learner.judging import accept
from tests.learner.link.far_side import serve

CARTPOLE = BehaviorSpec(
    name="CartPole",
    observations=(ObservationSpec("state", np.dtype(np.float32), (4,), ObservationKind.VECTOR),),
    action=ActionSpec(discrete_branches=(2,)),
)


class Published:
    """A publisher that keeps the last policy and counts publications.

    Attributes:
        progress: Of each publication.
        state: A copy of the newest state.
        send: Told of each version, which has no bytes; None tells nobody.
        changed: Notified of each version.
    """

    def __init__(self) -> None:
        self.network: PolicyNetwork | None = None
        self.progress: list[Progress] = []
        self.state: dict[str, Tensor] = {}
        self.send: Send | None = None
        self.changed = threading.Condition()

    def open(self, network: PolicyNetwork) -> Published:
        """Keeps the network."""
        self.network = network
        self._newest = describe(network, behavior_index=0, generation=1)
        return self

    def publish(self, state: Mapping[str, Tensor], progress: Progress, *, keep: bool = False) -> PolicyDescription:
        """Copies the state."""
        with self.changed:
            self.state = {name: value.clone() for name, value in state.items()}
            self.progress.append(progress)
            self._newest = replace(self._newest, version=progress.version)
            self.changed.notify_all()
        self._tell(keep=keep)
        return self._newest

    @property
    def newest(self) -> StoredPolicy:
        """Returns the newest version, with bytes that name it."""
        payload = f"{self._newest.generation}/{self._newest.version}".encode()
        return StoredPolicy(describe_payload(self._newest, payload), payload)

    def keep(self) -> None:
        """Sends the newest version again."""
        self._tell(keep=True)

    def _tell(self, *, keep: bool) -> None:
        if self.send is not None:
            self.send(Policy(StoredPolicy(self._newest, b""), keep=keep))


@dataclass
class Bench:
    """A behavior with its trainer and encoded messages, without the service.

    Attributes:
        link: What the service and the trainer say to each other; the former hears at once.
        table: The behaviors.
        behavior: The one behavior.
        ledger: The books.
        stats: What trainers report.
        published: What was published.
        is_looped: A `TrainerLoop` receives what the service sends.
    """

    link: Link
    table: BehaviorTable
    behavior: Behavior
    ledger: Ledger
    stats: StatsReporter
    published: Published = field(default_factory=Published)
    is_looped: bool = False

    def __post_init__(self) -> None:
        serve(self.link, self.table, self.ledger)

    @cached_property
    def queue(self) -> ExperienceQueue:
        """Returns the queue of the trainer's experience."""
        outcomes = OutcomeReport(self.behavior.index, self.link.to_front.send)
        if self.table.service.lockstep is None:
            return ExperienceQueue(outcomes)
        return RoundQueue(self.behavior.declared, outcomes)

    def context(self, **changes: Any) -> TrainerContext:
        """Makes the context of a trainer."""
        values: dict[str, Any] = {
            "behavior": self.behavior.declared,
            "queue": self.queue,
            "stats": self.stats,
            "open_publisher": self.published.open,
            "generation": 1,
            "seed": 1,
            "device": torch.device("cpu"),
            "service": self.table.service,
        }
        return TrainerContext(**{**values, **changes})

    def put(self, chunk: Chunk, actor_index: int = 0) -> None:
        """Accepts a chunk as the service does."""
        self.ledger.enqueue(self.behavior.name, chunk.rows)
        self.behavior.queue.put(
            chunk, session_id="session", actor_index=actor_index, encoded_bytes=1, resident_bytes=1, received_at=0.0
        )
        if not self.is_looped:
            self.deliver()

    def deliver(self) -> None:
        """Delivers the service's messages to the trainer."""
        for message in self.link.to_trainers.receive():
            if isinstance(message, Experience):
                self.queue.put(message)


def make_bench(
    settings: dict[str, Any], spec: BehaviorSpec = CARTPOLE, judge_declaration: Estimator = accept, **service: Any
) -> Bench:
    """Makes a bench from the settings of the behavior and those of the service."""
    ledger, link = Ledger(), Link(coded)
    table = BehaviorTable(
        RunOptions.model_validate({"behaviors": {spec.name: settings}, "rollcast": service}),
        ledger,
        judge_declaration,
        link.to_trainers.send,
    )
    behavior = table.declare(spec, 0, 1)
    return Bench(link, table, behavior, ledger, StatsReporter(spec.name))


class CartPoleActor:
    """Steps several CartPoles.

    Args:
        bench: Where chunks go and policies come from.
        environments: How many.
        seed: Of environments and actions.
    """

    def __init__(self, bench: Bench, environments: int = 8, seed: int = 1) -> None:
        self.steps = 0
        self._bench = bench
        self._horizon = bench.behavior.settings.time_horizon
        self._policy = PolicyNetwork(CARTPOLE, bench.behavior.settings.network_settings)
        self._version = -1
        self._environments = [gymnasium.make("CartPole-v1") for _ in range(environments)]
        self._rng = np.random.default_rng(seed)
        first = [env.reset(seed=seed * 1000 + index)[0] for index, env in enumerate(self._environments)]
        self._observations = np.array(first, np.float32)
        self._returns = np.zeros(environments)
        self._lengths = np.zeros(environments, np.int64)
        self._open: list[list[tuple[Any, ...]]] = [[] for _ in self._environments]
        self._closed: list[tuple[list[tuple[Any, ...]], SegmentEnd, NDArray[np.float32]]] = []
        self._episodes: list[tuple[float, int]] = []

    def run(self, steps: int) -> None:
        """Takes at least so many steps and sends what is closed."""
        self._take_policy()
        end = self.steps + steps
        while self.steps < end:
            self._step()
        self._send()

    def _take_policy(self) -> None:
        version = self._bench.published.progress[-1].version
        if version != self._version:
            self._policy.load_state_dict(self._bench.published.state)
            self._version = version

    @torch.no_grad()
    def _step(self) -> None:
        logits = self._policy([torch.from_numpy(self._observations)]).logits
        if logits is None:
            raise TypeError("CartPole has discrete actions")
        log_probs = logits.numpy()
        actions = np.argmax(log_probs + self._rng.gumbel(size=log_probs.shape), axis=1)
        for index, env in enumerate(self._environments):
            action = int(actions[index])
            following, reward, terminated, truncated, _ = env.step(action)
            row = (self._observations[index].copy(), action, log_probs[index, action], reward, self._version)
            self._open[index].append(row)
            self._returns[index] += float(reward)
            self._lengths[index] += 1
            self._observations[index] = following
            self._close(index, following, terminated=terminated, truncated=truncated)
        self.steps += len(self._environments)

    def _close(self, index: int, following: Any, *, terminated: bool, truncated: bool) -> None:
        rows = self._open[index]
        if not (terminated or truncated or len(rows) >= self._horizon):
            return
        end = SegmentEnd.TERMINATED if terminated else SegmentEnd.TRUNCATED if truncated else SegmentEnd.CUT
        self._closed.append((rows, end, np.array(following, np.float32)))
        self._open[index] = []
        if terminated or truncated:
            self._episodes.append((self._returns[index], int(self._lengths[index])))
            self._returns[index], self._lengths[index] = 0.0, 0
            self._observations[index] = self._environments[index].reset()[0]

    def _send(self) -> None:
        rows = [row for segment, _, _ in self._closed for row in segment]
        if not rows:
            return
        versions = np.array([row[4] for row in rows])
        columns: dict[str, NDArray[Any]] = {
            "obs/state": np.array([row[0] for row in rows], np.float32),
            "discrete_action": np.array([[row[1]] for row in rows], np.int32),
            "log_prob": np.array([[row[2]] for row in rows], np.float32),
            "reward": np.array([row[3] for row in rows], np.float32),
            "version_offset": (versions - versions.min()).astype(np.uint32),
            "length": np.array([len(segment) for segment, _, _ in self._closed], np.uint32),
            "first_step": np.zeros(
                len(self._closed), np.uint32
            ),  # of no segment that was cut, which matters to none here
            "end": np.array([end for _, end, _ in self._closed], np.uint8),
            "final_obs/state": np.array([final for _, _, final in self._closed], np.float32),
            "episode/return": np.array([episode[0] for episode in self._episodes], np.float32),
            "episode/length": np.array([episode[1] for episode in self._episodes], np.uint32),
        }
        chunk = Chunk(
            generation=1,
            base_version=int(versions.min()),
            segments=len(self._closed),
            rows=len(rows),
            episodes=len(self._episodes),
            columns=columns,
        )
        self._closed, self._episodes = [], []
        self._bench.put(chunk)
