"""The SAC trainer: off-policy actor-critic with learned temperatures, from the replay memory of many actors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from rollcast.enums import Squash
from rollcast.specs import BehaviorSpec
from torch import Tensor

from learner.common.saved_values import number
from learner.networks.distributions import categorical_entropy
from learner.networks.fit import require_fit
from learner.networks.policy import PolicyNetwork
from learner.networks.squashed import SquashedPolicyNetwork
from learner.networks.twin import TwinCritic
from learner.observe.metrics.behaviors import LossNumbers
from learner.rewards.signals import EXTRINSIC, SignalSet, build_signals
from learner.settings.hyperparameters import SACHyperparameters
from learner.trainers.base import TrainerContext
from learner.trainers.cloning import build_cloning
from learner.trainers.intake import Taken
from learner.trainers.normalization import ObservationStatistics
from learner.trainers.replay import PUBLISH_UPDATES, ReplayTrainer
from learner.trainers.sac.batches import BatchMaker, can_act
from learner.trainers.sac.learner import Report, Restorable, SACLearner
from learner.trainers.sac.networks import SACNetworks, Temperatures
from learner.trainers.schedules import LEARNING_RATE_FLOOR, ScheduledValue
from learner.trainers.tally import EpisodeRewards


@dataclass(frozen=True, slots=True)
class TurnNumbers:
    """Of the last minibatch of a turn.

    Attributes:
        policy_loss: the entropy bonus is part of it.
        critic_losses: of both critics.
        bonus: the part of the policy loss that is the entropy's.
        continuous_entropy: of the squashed action, in nats; None without continuous actions.
        discrete_entropy: sum over the branches; None without discrete actions.
        continuous_alpha: the temperature; None without continuous actions.
        discrete_alphas: of the branches.
        values: mean of what the critics are driven at, of each signal.
        explained: share of the variance of these that the critics explain.
        grad_norm: of policy and critics together, before clipping.
    """

    policy_loss: float
    critic_losses: tuple[float, float]
    bonus: float
    continuous_entropy: float | None
    discrete_entropy: float | None
    continuous_alpha: float | None
    discrete_alphas: tuple[float, ...]
    values: tuple[float, ...]
    explained: float
    grad_norm: float

    @property
    def entropy(self) -> float:
        """Of the whole action, in nats."""
        return (self.continuous_entropy or 0.0) + (self.discrete_entropy or 0.0)

    def numbers(self, learning_rate: float) -> LossNumbers:
        """Returns what metrics show. There are no recorded log-probabilities that could be compared."""
        return LossNumbers(
            policy=self.policy_loss - self.bonus,
            value=sum(self.critic_losses),
            entropy=self.bonus,
            grad_norm=self.grad_norm,
            approx_kl=0.0,
            clip_ratio=0.0,
            explained_variance=self.explained,
            entropy_nats=self.entropy,
            learning_rate=learning_rate,
            log_prob_error_max=0.0,
        )

    def statistics(self, signals: Sequence[str]) -> dict[str, float]:
        """Returns what TensorBoard shows, by ML-Agents' names.

        There is no value network; ``Value Loss`` is the mean of the two critics' losses.
        """
        first, second = self.critic_losses
        found = {
            "Losses/Policy Loss": self.policy_loss,
            "Losses/Q1 Loss": first,
            "Losses/Q2 Loss": second,
            "Losses/Value Loss": (first + second) / 2,
            "Policy/Entropy": self.entropy,
            "Rollcast/Explained Variance": self.explained,
        }
        for name, value in zip(signals, self.values, strict=True):
            found[f"Policy/{name.capitalize()} Value"] = value
        if self.continuous_alpha is not None:
            found["Policy/Continuous Entropy Coeff"] = self.continuous_alpha
        if self.discrete_alphas:
            found["Policy/Discrete Entropy Coeff"] = sum(self.discrete_alphas) / len(self.discrete_alphas)
        return found


@torch.no_grad()
def read_report(
    report: Report, temperatures: Temperatures, is_finite: Tensor, learner: SACLearner
) -> TurnNumbers | None:
    """Waits for the device and returns what the last update was like; None if something is not finite."""
    drawn, targets = report.drawn, report.targets
    axes, branches = drawn.log_prob is not None, len(learner.branches)
    entropies: list[Tensor] = [] if drawn.log_prob is None else [-drawn.log_prob.mean()]
    if drawn.probabilities is not None and drawn.output.logits is not None:
        entropies += categorical_entropy(drawn.output.logits, drawn.probabilities, learner.branches).mean(0).unbind()
    alphas = [] if temperatures.continuous is None else [temperatures.continuous.exp()]
    alphas += [] if temperatures.discrete is None else temperatures.discrete.exp().unbind()
    spread = targets.var(0, correction=0).mean()
    norms = torch.stack((learner.policy_optimizer.gradient_norm(), learner.critic_optimizer.gradient_norm()))
    scalars = [
        is_finite
        & can_act(learner.networks.policy, report.batch)
        & report.policy_loss.isfinite()
        & report.critic_losses.isfinite().all(),
        report.policy_loss,
        *report.critic_losses.unbind(),
        1.0 - report.critic_losses.sum() / spread,
        torch.linalg.vector_norm(norms),
        *targets.mean(0).unbind(),
        *entropies,
        *alphas,
    ]
    finite, policy, first, second, explained, norm, *rest = torch.stack([each.double() for each in scalars]).tolist()
    if not finite:
        return None
    signals, factors = targets.shape[1], int(axes) + branches
    values, found, temperature = rest[:signals], rest[signals : signals + factors], rest[signals + factors :]
    weights = [1.0] * int(axes) + [1.0 / max(1, branches)] * branches
    bonus = -sum(alpha * entropy * each for alpha, entropy, each in zip(temperature, found, weights, strict=True))
    return TurnNumbers(
        policy_loss=policy,
        critic_losses=(first, second),
        bonus=bonus,
        continuous_entropy=found[0] if axes else None,
        discrete_entropy=sum(found[int(axes) :]) if branches else None,
        continuous_alpha=temperature[0] if axes else None,
        discrete_alphas=tuple(temperature[int(axes) :]),
        values=tuple(values),
        explained=explained,
        grad_norm=norm,
    )


CLONING_UPDATES: Final = 50
"""So often demonstrations are gone over. ML-Agents does it beside each update, and does little else then."""


class SACTrainer(ReplayTrainer):
    """Soft actor-critic over replay memory; see ``sac.md``.

    Args:
        context: everything from outside.

    Attributes:
        networks: everything that is trained.
        learner: what trains it.
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
        self._episode_rewards = EpisodeRewards()
        self._report: Report | None = None
        self._before: tuple[Restorable, dict[str, Any], dict[str, Any]] | None = None
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
        signals = build_signals(
            self.trainer_settings.reward_signals,
            spec,
            self._weights,
            context.device,
            reduce=context.reduce,
            squash=Squash.TANH,
        )
        self.signals = SignalSet(signals, context.device)
        critic = TwinCritic(spec, network, len(self.signals), self._weights)
        temperatures = Temperatures(spec.action, hyper.init_entcoef)
        self.networks = SACNetworks(self.policy, critic, temperatures).to(context.device)
        self.learner = SACLearner(self.networks, hyper, self.signals, context.reduce, self._draws)
        self.statistics = ObservationStatistics(self.networks, spec, context.reduce, context.device)
        self.cloning = build_cloning(context, self.policy, Squash.TANH)

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
        for name, episode in self._episode_rewards.add(self.collected_rewards, taken.ended_episodes).items():
            self.context.metrics.show_signal(name, episode)
            if name != EXTRINSIC:  # `tally` has it
                shown = np.full(self._episode_rewards.episodes, episode)
                self.stats_reporter.add_stats(f"Policy/{name.capitalize()} Reward", shown)

    def _begin_updates(self) -> None:
        """Sets the learning rate, shows the statistics, and remembers what a faulty turn goes back to."""
        self.learner.set_learning_rate(self._learning_rate.at(self.get_step))
        if self._statistics_changed:
            self.statistics.publish()
            self._statistics_changed = False
        # In lock-step in every turn: a run that was resumed remembers from another update on than one that was not.
        if self._before is None or self._in_rounds or self._updates_since_snapshot >= PUBLISH_UPDATES:
            cloning = {} if self.cloning is None else self.cloning.state_dict()
            self._before = (self.learner.snapshot(), self.signals.state_dict(), cloning)
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
        is_finite = self.learner.is_finite() & self.signals.is_finite()
        if self.cloning is not None:
            is_finite = is_finite & self.cloning.is_finite()
        found = read_report(report, self.networks.temperatures, is_finite, self.learner)
        if found is None:
            self._go_back()
            return False
        self.context.metrics.note_losses(found.numbers(self.learner.policy_optimizer.learning_rate))
        for name, value in found.statistics(self.signals.names).items():
            self.stats_reporter.add_stat(name, value)
        self.stats_reporter.add_stat("Policy/Learning Rate", self.learner.policy_optimizer.learning_rate)
        self.stats_reporter.add_stat("Rollcast/Replay Steps", float(self.memory.steps))
        cloned = {} if self.cloning is None else self.cloning.statistics()
        for name, value in {**self.signals.statistics(), **cloned}.items():
            self.stats_reporter.add_stat(name, value)
        return True

    def _go_back(self) -> None:
        if self._before is not None:
            snapshot, signals, cloning = self._before
            self.learner.restore(snapshot)
            self.signals.load_state_dict(signals)
            if self.cloning is not None:
                self.cloning.load_state_dict(cloning)
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
            "signals": self.signals.state_dict(),
            "signal_steps": self._signal_steps,
            "cloning": {} if self.cloning is None else self.cloning.state_dict(),
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
        self.signals.load_state_dict(state["signals"])
        # No more than one update of theirs: what is saved may be of other settings.
        self._signal_steps = min(
            number(state, "signal_steps", least=0.0), self.hyperparameters.reward_signal_steps_per_update
        )
        if self.cloning is not None and state.get("cloning"):  # absent where it is asked for from now on
            self.cloning.load_state_dict(state["cloning"])
        self._before = None
        draws = state["draws"]
        if draws["device"] == self._draws.device.type:  # another kind of device has another kind of generator
            self._draws.set_state(draws["state"].cpu())
        if self._choices is not self._draws and state.get("choices") is not None:
            self._choices.set_state(state["choices"].cpu())
