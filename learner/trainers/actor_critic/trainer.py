"""What ppo, appo and impala share: one actor-critic, trained for some epochs on each buffer of fresh experience."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import numpy as np
import structlog
import torch
from numpy.typing import NDArray
from rollcast.specs import BehaviorSpec
from torch import Tensor, nn

from learner.buffers.batches import Minibatches
from learner.buffers.buffer import Plan
from learner.buffers.sequences import SequenceMinibatches
from learner.link.experience import QueuedChunk
from learner.networks.fit import require_fit
from learner.networks.kept import KeptBytes
from learner.networks.policy import PolicyNetwork, PolicyOutput
from learner.networks.value import ActorCritic, build_critic
from learner.observe.metrics.behaviors import LossNumbers
from learner.observe.rates import Throttle
from learner.optimizers.adam import FlatAdam
from learner.settings.hyperparameters import ActorCriticHyperparameters, SharedCriticHyperparameters
from learner.settings.trainer import TrainerSettings
from learner.trainers.actor_critic.agreement import Agreement, can_act, compare
from learner.trainers.actor_critic.epochs import EpochSums, run_epochs
from learner.trainers.actor_critic.experience import Experience, ExperienceMaker, Recorded
from learner.trainers.actor_critic.footprint import minibatch_bytes
from learner.trainers.actor_critic.loss import Batch, Coefficients, LossTerms, statistic_of
from learner.trainers.actor_critic.targets import TargetRule
from learner.trainers.auxiliaries import Auxiliaries
from learner.trainers.base import TrainerContext
from learner.trainers.normalization import ObservationStatistics
from learner.trainers.on_policy import OnPolicyTrainer
from learner.trainers.schedules import BETA_FLOOR, LEARNING_RATE_FLOOR, ScheduledValue

log = structlog.get_logger(__name__)

LOG_PROB_ERROR_LIMIT = 1e-3
_SHOWN_ELSEWHERE: Final = ("policy_loss", "value_loss", "entropy")
"""Scalars of a loss that have names of their own in reports."""


class ActorCriticTrainer(OnPolicyTrainer):
    """Trains a policy and its critic with one optimizer; `loss`, `target_rule` and coefficients are the algorithm's.

    Args:
        context: everything from outside.

    Attributes:
        hyperparameters: of the run file.
        network: policy and critic.
        optimizer: of both.
        auxiliaries: what learns beside them.
        signals: the reward signals.
        statistics: behind the normalizers.

    Raises:
        UserError: the settings do not fit the behavior.
    """

    normalizes_advantages: ClassVar[bool] = True
    keeps_values: ClassVar[bool] = False
    """Whether a loss sees the values from before the update (`Batch.old_values`), as one with a clip of values does."""

    def __init__(self, context: TrainerContext) -> None:
        self.hyperparameters = self.own_hyperparameters(context, ActorCriticHyperparameters)
        # One generator for the initial weights, one for the permutations: the second lives where the data is.
        self._weights = torch.Generator().manual_seed(context.seed)
        # With a memory whole sequences are drawn, by the host, which must know their lengths.
        is_recurrent = context.behavior.memory_size > 0
        self._shuffle = torch.Generator("cpu" if is_recurrent else context.device).manual_seed(context.seed)
        self._disagreements = Throttle()
        super().__init__(context)
        hyper, steps = self.hyperparameters, self.get_max_steps
        self._learning_rate = ScheduledValue(
            hyper.learning_rate_schedule, hyper.learning_rate, LEARNING_RATE_FLOOR, steps
        )
        self._beta = ScheduledValue(hyper.beta_schedule, hyper.beta, BETA_FLOOR, steps)

    @classmethod
    def build_networks(
        cls, spec: BehaviorSpec, settings: TrainerSettings, generator: torch.Generator | None
    ) -> ActorCritic:
        """Builds policy and critic on torch's default device.

        Args:
            spec: what the behavior sees and does.
            settings: its block of the run file.
            generator: where initial weights come from; None is torch's own.

        Raises:
            UserError: the settings do not fit the behavior.
        """
        network, hyper = settings.network_settings, settings.hyperparameters
        policy = PolicyNetwork(spec, network, generator)
        critic = build_critic(
            policy,
            network,
            signals=len(settings.reward_signals.active()),
            shared=isinstance(hyper, SharedCriticHyperparameters) and hyper.shared_critic,
            generator=generator,
        )
        return ActorCritic(policy, critic)

    @classmethod
    def minibatch_bytes(cls, network: nn.Module, spec: BehaviorSpec, settings: TrainerSettings) -> KeptBytes:
        """Counts what a minibatch takes.

        Args:
            network: of `build_networks`, on the meta device.
            spec: what the behavior sees and does.
            settings: its block of the run file.
        """
        del settings
        if not isinstance(network, ActorCritic):
            raise TypeError(f"{type(network).__name__} is no ActorCritic")
        return minibatch_bytes(network, spec)

    @abstractmethod
    def target_rule(self) -> TargetRule:
        """Returns how advantages and returns are made."""

    @abstractmethod
    def loss(self, output: PolicyOutput, values: Tensor, batch: Batch, coefficients: Coefficients) -> LossTerms:
        """Computes what is descended; see `learner.trainers.actor_critic.loss.Loss`."""

    def epsilon_at(self, step: int) -> float:
        """Returns `Coefficients.epsilon` at a step of training; 0, that of a loss without a clip, unless it is overridden."""
        del step
        return 0.0

    def after_update(self, scalars: Mapping[str, float]) -> None:
        """Is called after each update that is kept: a coefficient may follow here what came of it.

        Args:
            scalars: `LossTerms.scalars`, each the mean over the update.
        """

    def create_policy(self, spec: BehaviorSpec) -> PolicyNetwork:
        """Makes the network that acts, and its critic."""
        self.network = self.build_networks(spec, self.trainer_settings, self._weights).to(self.context.device)
        return self.network.policy

    def create_optimizer(self) -> None:
        """Makes the reward signals and the optimizer."""
        hyper, context = self.hyperparameters, self.context
        self.auxiliaries = Auxiliaries(context, self.policy, self._weights)
        self.signals, self.cloning = self.auxiliaries.signals, self.auxiliaries.cloning
        self.optimizer = FlatAdam(
            self.network,
            hyper.learning_rate,
            context.reduce,
            epsilon=hyper.adam_epsilon,
            max_grad_norm=hyper.max_grad_norm,
        )
        self.statistics = ObservationStatistics(self.network, context.behavior.spec, context.reduce, context.device)
        stride = context.behavior.memory_stride
        self._minibatches = (
            SequenceMinibatches(hyper.part_steps, stride, self._shuffle)
            if self.network.memory_size
            else Minibatches(hyper.part_steps, self._shuffle)
        )
        bounds = torch.tensor(context.metrics.lag_bounds, dtype=torch.float64, device=context.device)
        self._lag_bounds = bounds.unsqueeze(1)
        self._maker = ExperienceMaker(
            context.behavior.spec,
            self.network,
            self.signals,
            targets=self.target_rule(),
            ratio=hyper.ratio,
            reduce=context.reduce,
            device=context.device,
            normalizes=self.normalizes_advantages,
            keeps_values=self.keeps_values,
            memory_stride=stride,
            row_bytes=self._forward_row_bytes(),
        )

    def _forward_row_bytes(self) -> int:
        """Counts what one row of a forward pass takes."""
        spec, settings = self.context.behavior.spec, self.trainer_settings
        with torch.device("meta"):
            network = self.build_networks(spec, settings, None)
        return self.minibatch_bytes(network, spec, settings).per_forward_row

    def _update_policy(self) -> int:
        """Trains on the taken segments; returns the gradient steps, or 0 if the result was not finite.

        The normalizer takes in the steps before the update, as in ML-Agents, so that what is trained is what will act.
        Taking them in afterwards changes the policy behind the back of the update, whose clipping then protects nothing.
        """
        metrics = self.context.metrics
        with metrics.assemble.time():
            plan = self.update_buffer.plan()
            storage = self.update_buffer.ring.storage
            recorded = self._maker.recorded(plan, storage, self.version)
            agreement = compare(
                self.policy,
                recorded,
                observations=self._maker.observations,
                ratio=self.hyperparameters.ratio,
                sample=self.hyperparameters.batch_size,
            )
            before, statistics_before = self.optimizer.snapshot(), self.statistics.state_dict()
            auxiliaries_before = self.auxiliaries.state_dict()
            self.statistics.merge(self.statistics.moments(storage, plan.step_rows))
            self.statistics.publish()
            experience = self._maker.make(plan, storage, recorded)
        coefficients = self._coefficients()
        with metrics.optimize.time():
            sums = run_epochs(
                self.network,
                self.optimizer,
                self._minibatches,
                experience,
                loss=self.loss,
                observations=self._maker.observations,
                coefficients=coefficients,
                epochs=self.hyperparameters.num_epoch,
                parts=self.hyperparameters.gradient_accumulation,
                after_minibatch=self._update_signals if self.signals.learns else None,
            )
            taken = self.optimizer.steps - before.steps
            if self.cloning is not None:
                self.cloning.update(self.get_step)
            lags = self._report_agreement(recorded, agreement, plan)
            acts = can_act(self.policy, recorded, observations=self._maker.observations)
            scalars = self._report(
                experience, sums, coefficients, self.optimizer.is_finite() & self.auxiliaries.is_finite() & acts
            )
        if scalars is None:
            self.optimizer.restore(before)
            self.auxiliaries.load_state_dict(auxiliaries_before)
            self.statistics.load_state_dict(statistics_before)
            self.statistics.publish()
            self._forget()
            return 0
        metrics.policy_lag.add(lags, self.mean_lag * plan.step_count)
        if coefficients.epsilon:
            self.stats_reporter.add_stat("Policy/Epsilon", coefficients.epsilon)
        self.stats_reporter.add_stat("Policy/Beta", coefficients.beta)
        self.auxiliaries.report()
        self.auxiliaries.report_episodes(self.collected_rewards, plan.ended_episodes)
        self.after_update(scalars)
        return taken

    def _forget(self) -> None:
        """Forgets what the critic remembers of running episodes."""
        if self._maker.recurrence is not None:
            self._maker.recurrence.forget()

    def _update_signals(self, columns: Mapping[str, Tensor]) -> None:
        """Lets reward signals learn from a minibatch of the policy's."""
        self.signals.update(self._maker.transitions.of(columns))

    def _process_trajectory(self, item: QueuedChunk) -> None:
        self._note_group_rewards(item)
        super()._process_trajectory(item)

    def _coefficients(self) -> Coefficients:
        """Sets the learning rate of the present step and returns the other scheduled values."""
        step = self.get_step
        learning_rate = self._learning_rate.at(step)
        self.optimizer.learning_rate = learning_rate
        self.stats_reporter.add_stat("Policy/Learning Rate", learning_rate)
        return Coefficients(epsilon=self.epsilon_at(step), beta=self._beta.at(step), ratio=self.hyperparameters.ratio)

    def _report_agreement(self, recorded: Recorded, agreement: Agreement, plan: Plan) -> NDArray[np.float64]:
        """Reads lag and agreement from the device, and warns of an actor that acts by another policy.

        Returns:
            How many steps are in each bucket of lag (`BehaviorMetrics.policy_lag`).
        """
        lag = recorded.lag.double()
        within = (lag <= self._lag_bounds).sum(1).double()
        scalars = torch.cat(
            [torch.stack([agreement.error.double(), agreement.worst.double(), lag.mean(), lag.max()]), within]
        ).tolist()
        self.log_prob_error_max, worst, self.mean_lag, lag_max, *cumulative = scalars
        counts: NDArray[np.float64] = np.diff([0.0, *cumulative, float(plan.step_count)])
        add = self.stats_reporter.add_stat
        add("Rollcast/Policy Lag", self.mean_lag)
        add("Rollcast/Policy Lag Max", lag_max)
        add("Rollcast/Log Prob Error Max", self.log_prob_error_max)
        if self.log_prob_error_max > LOG_PROB_ERROR_LIMIT:
            actor_index = plan.actor_of(int(worst))
            left_out = self._disagreements.admit(actor_index)
            if left_out is None:
                return counts
            log.warning(
                "log_prob_error",
                behavior=self.brain_name,
                error=round(self.log_prob_error_max, 6),
                limit=LOG_PROB_ERROR_LIMIT,
                actor_index=actor_index,
                hint="this actor's policy, mask or normalizer is not the learner's",
                left_out=left_out,
            )
        return counts

    def _report(
        self, experience: Experience, sums: EpochSums, coefficients: Coefficients, learned_is_finite: Tensor
    ) -> dict[str, float] | None:
        """Reads the statistics from the device, and reports them.

        Returns:
            The means of what the loss reports; None if they or what was learned are not finite.
        """
        ratio = sums.log_ratio
        terms = torch.stack(list(sums.scalars.values())).double() / sums.drawn
        scalars = torch.stack(
            [
                (learned_is_finite & terms.isfinite().all()).double(),
                (ratio.exp() - 1.0 - ratio).double().mean(),
                coefficients.is_limited(ratio.exp()).double().mean(),
                self.optimizer.gradient_norm().double(),
                experience.explained,
                *experience.values,
                *experience.rewards,
                *terms,
            ]
        ).tolist()
        finite, divergence, clipped, norm, explained, *rest = scalars
        if not finite:
            return None
        signals, named = rest[: -len(terms)], dict(zip(sums.scalars, rest[-len(terms) :], strict=True))
        policy, value, entropy = (named.get(name, 0.0) for name in _SHOWN_ELSEWHERE)
        numbers = LossNumbers(
            policy=policy,
            value=coefficients.value * value,
            entropy=-coefficients.beta * entropy,
            grad_norm=norm,
            approx_kl=divergence,
            clip_ratio=clipped,
            explained_variance=explained,
            entropy_nats=entropy,
            learning_rate=self.optimizer.learning_rate,
            log_prob_error_max=self.log_prob_error_max,
        )
        self.context.metrics.note_losses(numbers)
        add = self.stats_reporter.add_stat
        add("Losses/Policy Loss", abs(policy))
        add("Losses/Value Loss", value)
        add("Policy/Entropy", entropy)
        add("Rollcast/Approximate KL", divergence)
        add("Rollcast/Explained Variance", explained)
        for name, own in named.items():
            if name not in _SHOWN_ELSEWHERE:
                add(statistic_of(name), own)
        for index, name in enumerate(self.signals.names):
            add(f"Policy/{name.capitalize()} Value Estimate", signals[index])
            self.collected_rewards[name] = signals[len(self.signals) + index]
        return named

    def _take_faulty_signals(self) -> tuple[str, ...]:
        """Returns the reward signals whose rewards were not finite since the last call; waits for the device."""
        return self.signals.take_faulty()

    def _publish_statistics(self) -> None:
        """Puts running statistics of the observations into actor and critic."""
        self.statistics.publish()

    def model_state(self) -> dict[str, Any]:
        """Returns networks, optimizer, normalizer, reward signals and generators."""
        return {
            "network": {name: value.clone() for name, value in self.network.state_dict().items()},
            "optimizer": self.optimizer.state_dict(),
            "statistics": self.statistics.state_dict(),
            **self.auxiliaries.state_dict(),
            "shuffle": {"device": self._shuffle.device.type, "state": self._shuffle.get_state()},
        }

    def load_model_state(self, state: Mapping[str, Any]) -> None:
        """Takes over what `model_state` returned.

        Raises:
            ValueError, KeyError, TypeError, RuntimeError: it does not fit.
        """
        require_fit(state["network"], self.network.state_dict())
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.statistics.load_state_dict(state["statistics"])
        self.auxiliaries.load_state_dict(state)
        self._forget()
        shuffle = state["shuffle"]
        if shuffle["device"] == self._shuffle.device.type:  # another kind of device has another kind of generator
            self._shuffle.set_state(shuffle["state"].cpu())
