"""The SAC trainer: off-policy actor-critic with learned temperatures, from the replay memory of many actors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch
from rollcast.enums import Squash
from rollcast.specs import BehaviorSpec
from torch import Tensor

from learner.common.saved_values import number
from learner.networks.fit import require_fit
from learner.networks.policy import PolicyNetwork
from learner.networks.squashed import SquashedPolicyNetwork
from learner.networks.twin import TwinCritic
from learner.observe.metrics.behaviors import LossNumbers
from learner.settings.hyperparameters import SACHyperparameters
from learner.trainers.auxiliaries import Auxiliaries
from learner.trainers.base import TrainerContext
from learner.trainers.intake import Taken
from learner.trainers.normalization import ObservationStatistics
from learner.trainers.replay import PUBLISH_UPDATES, ReplayTrainer
from learner.trainers.sac.batches import BatchMaker, can_act
from learner.trainers.sac.learner import Report, Restorable, SACLearner
from learner.trainers.sac.networks import SACNetworks, Temperatures
from learner.trainers.schedules import LEARNING_RATE_FLOOR, ScheduledValue


class TurnNumbers(NamedTuple):
    """The last minibatch of a turn, in numbers.

    Attributes:
        losses: what metrics show. There are no recorded log-probabilities that could be compared.
        statistics: what TensorBoard shows, by ML-Agents' names. There is no value network; ``Value Loss`` is the mean of
            the two critics' losses.
    """

    losses: LossNumbers
    statistics: dict[str, float]


@torch.no_grad()
def read_report(report: Report, names: Sequence[str], is_finite: Tensor, learner: SACLearner) -> TurnNumbers | None:
    """Waits for the device and returns what the last update was like; None if something is not finite.

    Args:
        report: of the update.
        names: of the reward signals.
        is_finite: scalar bool, of everything that learns.
        learner: what made the update.
    """
    (continuous, discrete), targets, temperatures = report.entropies, report.targets, learner.networks.temperatures
    axes, branches = int(continuous is not None), len(learner.branches)
    entropies = ([] if continuous is None else [continuous]) + ([] if discrete is None else [*discrete.unbind()])
    alphas = [] if temperatures.continuous is None else [temperatures.continuous.exp()]
    alphas += [] if temperatures.discrete is None else temperatures.discrete.exp().unbind()
    critic_losses, spread = report.critic_losses, targets.var(0, correction=0).mean()
    norms = torch.stack((learner.policy_optimizer.gradient_norm(), learner.critic_optimizer.gradient_norm()))
    scalars = [
        is_finite
        & can_act(learner.networks.policy, report.batch)
        & report.policy_loss.isfinite()
        & critic_losses.isfinite().all(),
        report.policy_loss,
        *critic_losses.unbind(),
        1.0 - critic_losses.sum() / spread,
        torch.linalg.vector_norm(norms),
        *targets.mean(0).unbind(),
        *entropies,
        *alphas,
    ]
    finite, policy, first, second, explained, norm, *rest = torch.stack([each.double() for each in scalars]).tolist()
    if not finite:
        return None
    signals, factors = targets.shape[1], axes + branches
    values, found, temperature = rest[:signals], rest[signals : signals + factors], rest[signals + factors :]
    weights = [1.0] * axes + [1.0 / max(1, branches)] * branches
    bonus = -sum(alpha * entropy * each for alpha, entropy, each in zip(temperature, found, weights, strict=True))
    entropy = (found[0] if axes else 0.0) + sum(found[axes:])
    losses = LossNumbers(
        policy=policy - bonus,
        value=first + second,
        entropy=bonus,
        grad_norm=norm,
        approx_kl=0.0,
        clip_ratio=0.0,
        explained_variance=explained,
        entropy_nats=entropy,
        learning_rate=learner.policy_optimizer.learning_rate,
        log_prob_error_max=0.0,
    )
    statistics = {
        "Losses/Policy Loss": policy,
        "Losses/Q1 Loss": first,
        "Losses/Q2 Loss": second,
        "Losses/Value Loss": (first + second) / 2,
        "Policy/Entropy": entropy,
        "Rollcast/Explained Variance": explained,
    }
    for name, value in zip(names, values, strict=True):
        statistics[f"Policy/{name.capitalize()} Value"] = value
    if axes:
        statistics["Policy/Continuous Entropy Coeff"] = temperature[0]
    if branches:
        statistics["Policy/Discrete Entropy Coeff"] = sum(temperature[axes:]) / branches
    return TurnNumbers(losses, statistics)


CLONING_UPDATES: Final = 50
"""So often demonstrations are gone over. ML-Agents does it beside each update, and does little else then."""


class SACTrainer(ReplayTrainer):
    """Soft actor-critic over replay memory; see ``sac.md``.

    Args:
        context: everything from outside.

    Attributes:
        networks: everything that is trained.
        learner: what trains it.
        auxiliaries: what learns beside them.
        signals: the reward signals.
        statistics: behind the normalizers.
        cloning: imitates demonstrations beside the rewards; None if the run file asks for none.

    Raises:
        UserError: the settings do not fit the behavior.
    """

    def __init__(self, context: TrainerContext) -> None:
        self._weights = torch.Generator().manual_seed(context.seed)
        super().__init__(context)
        hyper = self.hyperparameters
        self._learning_rate = ScheduledValue(
            hyper.learning_rate_schedule, hyper.learning_rate, LEARNING_RATE_FLOOR, self.get_max_steps
        )
        self._batches = BatchMaker(context.behavior.spec, self.memory, self.signals, context.device)
        self._signal_steps = 0.0  # that reward signals have not been updated for
        self._statistics_changed = False
        self._report: Report | None = None
        self._before: tuple[Restorable, dict[str, Any]] | None = None
        self._updates_since_snapshot = 0

    def create_policy(self, spec: BehaviorSpec) -> PolicyNetwork:
        """Makes the network that acts."""
        policy = SquashedPolicyNetwork(spec, self.trainer_settings.network_settings, self._weights)
        return policy.to(self.context.device)

    def create_optimizer(self) -> None:
        """Makes the critics, the temperatures, the reward signals and the optimizers."""
        context = self.context
        hyper = self._own_hyperparameters(context, SACHyperparameters)
        spec, network = context.behavior.spec, self.trainer_settings.network_settings
        if not isinstance(self.policy, SquashedPolicyNetwork):
            raise TypeError(f"{type(self.policy).__name__} is no squashed policy")
        self.auxiliaries = Auxiliaries(context, self.policy, self._weights, Squash.TANH)
        self.signals, self.cloning = self.auxiliaries.signals, self.auxiliaries.cloning
        critic = TwinCritic(spec, network, len(self.signals), self._weights)
        temperatures = Temperatures(spec.action, hyper.init_entcoef)
        self.networks = SACNetworks(self.policy, critic, temperatures).to(context.device)
        self.learner = SACLearner(self.networks, hyper, self.signals, context.reduce, self._draws)
        self.statistics = ObservationStatistics(self.networks, spec, context.reduce, context.device)

    def _note_experience(self, taken: Taken) -> None:
        """Takes new steps into the running statistics of the observations; the networks see them in the next turn.

        Rewards are reported as they are now; those that are learned from are computed when a step is drawn.
        """
        moments = self.statistics.moments(self.memory.storage, taken.places)
        if moments:
            self.statistics.merge(moments)
            self._statistics_changed = True
        pieces = torch.split(taken.places, self.hyperparameters.batch_size)
        rewards = torch.stack([self._batches.rewards(places).sum(0) for places in pieces]).sum(0).tolist()
        self.collected_rewards = dict(zip(self.signals.names, rewards, strict=True))
        self.auxiliaries.report_episodes(self.collected_rewards, taken.ended_episodes)

    def _begin_updates(self) -> None:
        """Sets the learning rate, shows the statistics, and remembers what a faulty turn goes back to."""
        self.learner.set_learning_rate(self._learning_rate.at(self.get_step))
        if self._statistics_changed:
            self.statistics.publish()
            self._statistics_changed = False
        # In lock-step in every turn: a run that was resumed remembers from another update on than one that was not.
        if self._before is None or self._in_rounds or self._updates_since_snapshot >= PUBLISH_UPDATES:
            self._before = (self.learner.snapshot(), self.auxiliaries.state_dict())
            self._updates_since_snapshot = 0

    def _update_once(self) -> None:
        """Takes one gradient step; reward signals take theirs on the same steps, as often as they are to."""
        hyper = self.hyperparameters
        parts = self._batches.draw(hyper.batch_size, hyper.gradient_accumulation)
        self._report = self.learner.update(map(self._batches.read, parts), [part.steps for part in parts])
        self._updates_since_snapshot += 1
        if self.cloning is not None and (self.optimizer_steps + self._updates) % CLONING_UPDATES == 0:
            self.cloning.update(self.get_step)
        if not self.signals.learns:
            return
        self._signal_steps += hyper.steps_per_update
        while self._signal_steps >= hyper.reward_signal_steps_per_update:
            self._signal_steps -= hyper.reward_signal_steps_per_update
            for part in parts:
                self.signals.update(self._batches.transitions(*part.places))
            if self._signal_steps >= hyper.reward_signal_steps_per_update:
                parts = self._batches.draw(hyper.batch_size, hyper.gradient_accumulation)

    def _end_updates(self) -> bool:
        """Reads losses and parameters from the device, once a turn."""
        if self._report is None:
            raise RuntimeError("a turn without an update")
        report, self._report = self._report, None
        is_finite = self.learner.is_finite() & self.auxiliaries.is_finite()
        found = read_report(report, self.signals.names, is_finite, self.learner)
        if found is None:
            self._go_back()
            return False
        self.context.metrics.note_losses(found.losses)
        for name, value in found.statistics.items():
            self.stats_reporter.add_stat(name, value)
        self.stats_reporter.add_stat("Policy/Learning Rate", self.learner.policy_optimizer.learning_rate)
        self.stats_reporter.add_stat("Rollcast/Replay Steps", float(self.memory.steps))
        self.auxiliaries.report()
        return True

    def _go_back(self) -> None:
        if self._before is not None:
            snapshot, auxiliaries = self._before
            self.learner.restore(snapshot)
            self.auxiliaries.load_state_dict(auxiliaries)
            self._before = None

    def _take_faulty_signals(self) -> tuple[str, ...]:
        """Returns the reward signals whose rewards were not finite since the last call; waits for the device."""
        return self.signals.take_faulty()

    def _publish_statistics(self) -> None:
        """Leaves running statistics to the next turn: what a state was saved with acts until then, as if it were not."""
        self._statistics_changed = True

    def model_state(self) -> dict[str, Any]:
        """Returns networks, temperatures, optimizers, normalizer, reward signals and generator."""
        return {
            "networks": {name: value.clone() for name, value in self.networks.state_dict().items()},
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self.learner.optimizers.items()},
            "statistics": self.statistics.state_dict(),
            **self.auxiliaries.state_dict(),
            "signal_steps": self._signal_steps,
            "draws": {"device": self._draws.device.type, "state": self._draws.get_state()},
            "choices": None if self._choices is self._draws else self._choices.get_state(),
        }

    def load_model_state(self, state: Mapping[str, Any]) -> None:
        """Takes over what `model_state` returned.

        Raises:
            ValueError, KeyError, TypeError, RuntimeError: it does not fit.
        """
        require_fit(state["networks"], self.networks.state_dict())
        self.networks.load_state_dict(state["networks"])
        for name, optimizer in self.learner.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        self.statistics.load_state_dict(state["statistics"])
        self.auxiliaries.load_state_dict(state)
        # No more than one update of theirs: what is saved may be of other settings.
        self._signal_steps = min(
            number(state, "signal_steps", least=0.0), self.hyperparameters.reward_signal_steps_per_update
        )
        self._before = None
        draws = state["draws"]
        if draws["device"] == self._draws.device.type:  # another kind of device has another kind of generator
            self._draws.set_state(draws["state"].cpu())
        if self._choices is not self._draws and state.get("choices") is not None:
            self._choices.set_state(state["choices"].cpu())
