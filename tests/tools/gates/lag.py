"""The gate of policy lag: trains in one process with an actor that lags behind, so that nothing else varies.

Its control ignores the recorded log-probabilities.
"""

import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from rollcast.policies import PolicyDescription
from torch import Tensor

from learner.link.channel import Link
from learner.service.ingest.behaviors import BehaviorTable
from learner.service.ingest.ledger import Ledger
from learner.shared.observe.stats import StatsReporter
from learner.shared.settings.load import load_run_options
from learner.training.buffers.columns import ACTION_MASK, CONTINUOUS_ACTION, DISCRETE_ACTION, LOG_PROB
from learner.training.export.describe import Progress
from learner.training.networks.distributions import branch_offsets
from learner.training.trainers.actor_critic.loss import log_probability
from learner.training.trainers.actor_critic.trainer import ActorCriticTrainer
from learner.training.trainers.appo.trainer import APPOTrainer
from learner.training.trainers.memory_estimate import estimate_memory
from learner.training.trainers.ppo.trainer import PPOTrainer
from tests.learner.training.trainers.in_process import CARTPOLE, Bench, CartPoleActor, Published
from tests.tools.bench.measurement import MeasurementFailed
from tests.tools.gates.gate import Arm, Trained

LAG = 8
"""Versions between acting and learning."""
STEPS_AT_ONCE = 256
POINT_STEPS = 2000
"""Between two points of a curve."""


class _Version(NamedTuple):
    number: int
    state: dict[str, Tensor]


class Delayed(Published):
    """A publisher that delivers each version after this many newer ones exist.

    Attributes:
        lag: How many.
    """

    def __init__(self, lag: int) -> None:
        super().__init__()
        self.lag = lag
        self._versions: deque[_Version] = deque(maxlen=lag + 1)

    def publish(self, state: Mapping[str, Tensor], progress: Progress, *, keep: bool = False) -> PolicyDescription:
        """Keeps a copy among the newest; the oldest of them acts."""
        header = super().publish(state, progress, keep=keep)
        self._versions.append(_Version(progress.version, self.state))
        return header

    @property
    def acting(self) -> _Version:
        """Returns what acts now: in the beginning the first version."""
        return self._versions[0]


class LaggingActor(CartPoleActor):
    """Steps CartPole with the policy of ``delayed.lag`` versions ago.

    Args:
        bench: Where chunks go.
        delayed: Where policies come from.
        seed: Of environments and actions.
    """

    def __init__(self, bench: Bench, delayed: Delayed, seed: int) -> None:
        super().__init__(bench, seed=seed)
        self._delayed = delayed

    def _take_policy(self) -> None:
        acting = self._delayed.acting
        if acting.number != self._version:
            self._policy.load_state_dict(acting.state)
            self._version = acting.number


class RecomputingPPO(PPOTrainer):
    """PPO whose old log-probabilities are those of the current weights.

    Its ratio begins at 1 in each update, however old the steps are: nothing corrects for their age.
    """

    def _update_policy(self) -> int:
        self._recompute()
        return super()._update_policy()

    @torch.no_grad()
    def _recompute(self) -> None:
        """Overwrites the recorded log-probabilities."""
        plan, storage = self.update_buffer.plan(), self.update_buffer.ring.storage
        rows = {name: column.index_select(0, plan.step_rows) for name, column in storage.items()}
        output = self.policy([rows[name] for name in self._maker.observations], rows.get(ACTION_MASK))
        discrete = rows.get(DISCRETE_ACTION)
        if discrete is not None:
            discrete = discrete + branch_offsets(self.context.behavior.spec.action.discrete_branches)
        now = log_probability(output, rows.get(CONTINUOUS_ACTION), discrete, "per_action")
        storage[LOG_PROB].index_copy_(0, plan.step_rows, now)


def train_appo(arm: Arm, seed: int, kept: Path) -> Trained:
    """Trains appo on steps of `LAG` versions ago; see `train`."""
    del kept
    return train(arm, seed, APPOTrainer)


def train_control(arm: Arm, seed: int, kept: Path) -> Trained:
    """Trains the control on such steps; see `train`."""
    del kept
    return train(arm, seed, RecomputingPPO)


def train(arm: Arm, seed: int, kind: type[ActorCriticTrainer]) -> Trained:
    """Trains CartPole until the arm's target or budget: the trainer, its queue and buffer are real, the actor is ours.

    Args:
        arm: Run file, settings, budget and target.
        seed: Of weights, minibatches, environments and actions.
        kind: Of trainer; the run file is its.

    Raises:
        MeasurementFailed: Steps were dropped: the two arms would not see the same.
    """
    torch.set_num_threads(1)  # networks of this size gain nothing from more
    delayed = Delayed(LAG)
    bench = _bench(arm, delayed)
    trainer = kind(bench.context(seed=seed))
    trainer.start()
    actor = LaggingActor(bench, delayed, seed)
    began = time.monotonic()
    curve: list[tuple[int, float]] = []
    best, reached, stop_reason = 0.0, None, "max_steps"
    while actor.steps < arm.budget_steps:
        actor.run(min(STEPS_AT_ONCE, arm.budget_steps - actor.steps))
        trainer.advance()
        mean = trainer.mean_return() or 0.0
        if actor.steps >= POINT_STEPS * (len(curve) + 1):
            curve.append((actor.steps, round(mean, 2)))
        if trainer.episodes < bench.table.service.reward_buffer_episodes:
            continue
        best = max(best, mean)
        if arm.target is not None and mean >= arm.target:
            reached, stop_reason = actor.steps, "target_return"
            break
        if time.monotonic() - began > arm.wall_seconds:
            stop_reason = "max_wall_seconds"
            break
    dropped = dict(bench.ledger.books(CARTPOLE.name).dropped)
    if dropped:
        raise MeasurementFailed(f"{arm.name} seed {seed}: steps were dropped: {dropped}")
    seconds = time.monotonic() - began
    return Trained(
        seed=seed,
        stop_reason=stop_reason,
        steps=actor.steps,
        seconds=round(seconds, 1),
        episodes=trainer.episodes,
        train=trainer.mean_return(),
        best=best,
        steps_to_target=reached,
        seconds_to_target=round(seconds, 1) if reached else None,
        optimizer_steps=trainer.optimizer_steps,
        lag=round(trainer.numbers["mean_lag"], 2),
        curve=(*curve, (actor.steps, round(trainer.mean_return() or 0.0, 2))),
    )


def _bench(arm: Arm, delayed: Delayed) -> Bench:
    """Makes everything around a trainer but the service."""
    changes = [f"max_steps={arm.budget_steps}", *arm.settings]
    items = [f"behaviors.{CARTPOLE.name}.{change}" for change in changes]
    options = load_run_options(Path(arm.run_file), set_items=items, environ={}).options
    ledger, link = Ledger(), Link()
    table = BehaviorTable(options, ledger, estimate_memory, link.to_trainers.send)
    return Bench(link, table, table.declare(CARTPOLE, 0, 1), ledger, StatsReporter(CARTPOLE.name), delayed)
