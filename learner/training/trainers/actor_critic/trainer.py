"""Code shared by ppo, appo and impala: one actor-critic, trained for some epochs on each buffer of fresh experience."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import structlog
import torch
from numpy.typing import NDArray
from rollcast.specs import BehaviorSpec
from rollcast.throttle import Throttle
from torch import Tensor, nn

from learner.shared.observe.behavior_state import LOG_PROB_ERROR_LIMIT
from learner.shared.settings.hyperparameters import (
    ActorCriticHyperparameters,
    OnPolicyHyperparameters,
    SharedCriticHyperparameters,
)
from learner.shared.settings.trainer import TrainerSettings
from learner.training.buffers.batches import Minibatches
from learner.training.buffers.buffer import UpdateRows
from learner.training.buffers.columns import (
    ACTION_MASK,
    CONTINUOUS_ACTION,
    DISCRETE_ACTION,
    LOG_PROB,
    observation_column,
    on_policy_columns,
)
from learner.training.buffers.sequences import SequenceMinibatches, sampled_steps
from learner.training.networks.fit import require_fit
from learner.training.networks.kept import Columns, KeptBytes, kept_bytes
from learner.training.networks.policy import PolicyNetwork, PolicyOutput, build_policy
from learner.training.networks.value import ActorCritic, PolicyAndCritic, Sequences, build_critic
from learner.training.optimizers.adam import FlatAdam
from learner.training.trainers.actor_critic.divergence import DivergenceMeter, Limits, approximate_kl
from learner.training.trainers.actor_critic.epochs import EpochSums, run_epochs
from learner.training.trainers.actor_critic.experience import Experience, ExperienceMaker, Recorded
from learner.training.trainers.actor_critic.loss import (
    Batch,
    Coefficients,
    LossTerms,
    Ratio,
    actor_critic_loss,
    log_probability,
    statistic_of,
)
from learner.training.trainers.actor_critic.rank_reports import Combined, RankWatch, combined, draw_seeds
from learner.training.trainers.actor_critic.targets import TargetRule
from learner.training.trainers.actor_critic.value_scale import ValueScale
from learner.training.trainers.auxiliaries import Auxiliaries
from learner.training.trainers.base import TrainerContext
from learner.training.trainers.normalization import ObservationStatistics
from learner.training.trainers.on_policy import OnPolicyTrainer
from learner.training.trainers.schedules import BETA_FLOOR, EPSILON_FLOOR, LEARNING_RATE_FLOOR, ScheduledValue

log = structlog.get_logger(__name__)

_SHOWN_ELSEWHERE: Final = ("policy_loss", "value_loss", "entropy")
"""Scalars of a loss that have other names in reports."""
ACTING_STEPS: Final = 256
"""Number of steps on which an updated policy is tried. A diverged policy fails on any step, so a few of an update's
steps suffice."""


class ActorCriticTrainer(OnPolicyTrainer):
    """Trains a policy and its critic with one optimizer; the algorithm defines `loss`, `target_rule` and coefficients.

    Args:
        context: Everything the trainer receives from the run.

    Attributes:
        hyperparameters: Hyperparameters of the run file.
        network: Policy and critic; `evaluate` computes both.
        optimizer: Optimizer of both.
        auxiliaries: The reward signals and the cloning.
        signals: The reward signals.
        statistics: Running statistics behind the normalizers.
        value_scale: The scale of the value heads.

    Raises:
        UserError: The settings do not fit the behavior.
    """

    maker_type: ClassVar[type[ExperienceMaker]] = ExperienceMaker
    """Evaluates the taken segments with the trainer's critic."""
    keeps_values: ClassVar[bool] = False
    """True if the loss uses the values from before the update (`Batch.old_values`), as a loss that clips values does.
    """

    def __init__(self, context: TrainerContext) -> None:
        self.hyperparameters = self.own_hyperparameters(context, ActorCriticHyperparameters)
        # One generator for the initial weights and one for the permutations, on the device of the data.
        self._weights = torch.Generator().manual_seed(context.seed)
        # With memory, the host draws whole sequences, because it must know their lengths.
        is_recurrent = context.behavior.memory_size > 0
        self._shuffle = torch.Generator("cpu" if is_recurrent else context.device).manual_seed(context.seed)
        self._disagreements = Throttle()
        super().__init__(context)
        self._watch = RankWatch(context.reduce, context.behavior.name, self.numbers)
        self.settings_changed()

    def settings_changed(self) -> None:
        """Computes schedules and targets from the current settings."""
        self.hyperparameters = self.own_hyperparameters(self.context, ActorCriticHyperparameters)
        hyper, steps = self.hyperparameters, self.get_max_steps
        self._learning_rate = (
            None
            if hyper.learning_rate_schedule == "adaptive"
            else ScheduledValue(
                hyper.learning_rate_schedule,
                hyper.learning_rate,
                LEARNING_RATE_FLOOR,
                steps,
                warmup_steps=hyper.learning_rate_warmup,
            )
        )
        self._beta = ScheduledValue(hyper.beta_schedule, hyper.beta, BETA_FLOOR, steps)
        self._epsilon: ScheduledValue | None = None
        if isinstance(hyper, OnPolicyHyperparameters):
            self._epsilon = ScheduledValue(hyper.epsilon_schedule, hyper.epsilon, EPSILON_FLOOR, steps)
        self.optimizer.max_grad_norm = hyper.max_grad_norm
        self._maker.targets = self.target_rule()
        if self.cloning is not None:
            self.cloning.use(self.trainer_settings)

    def obstacle_to(self, settings: TrainerSettings) -> str:
        """Returns why the learning rate cannot change, if it is adaptive or would be."""
        old, new = self.hyperparameters, settings.hyperparameters
        rates = {(each.learning_rate, each.learning_rate_schedule) for each in (old, new)}
        if len(rates) > 1 and any(schedule == "adaptive" for _, schedule in rates):
            return (
                "an adaptive learning rate is a part of the optimizer's state and can neither be set, begun nor ended"
            )
        return ""

    @classmethod
    def build_networks(
        cls, spec: BehaviorSpec, settings: TrainerSettings, generator: torch.Generator | None
    ) -> PolicyAndCritic:
        """Builds policy and critic on torch's default device.

        Args:
            spec: Observations and actions of the behavior.
            settings: The behavior's block of the run file.
            generator: Draws the initial weights; None uses torch's default generator.

        Raises:
            UserError: The settings do not fit the behavior.
        """
        network, hyper = settings.network_settings, settings.hyperparameters
        policy = build_policy(PolicyNetwork, spec, network, generator)
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
        """Counts the bytes that a minibatch takes.

        Args:
            network: Result of `build_networks`, on the meta device.
            spec: Observations and actions of the behavior.
            settings: The behavior's block of the run file.
        """
        del settings
        if not isinstance(network, ActorCritic):
            raise TypeError(f"{type(network).__name__} is not an ActorCritic")
        return minibatch_bytes(network, spec)

    @abstractmethod
    def target_rule(self) -> TargetRule:
        """Returns the rule that computes advantages and returns."""

    @abstractmethod
    def loss(self, output: PolicyOutput, values: Tensor, batch: Batch, coefficients: Coefficients) -> LossTerms:
        """Computes the loss; see `learner.training.trainers.actor_critic.loss.Loss`."""

    def epsilon_at(self, step: int) -> float:
        """Returns `Coefficients.epsilon` at a step of training: that of the schedule; 0 for a loss without a clip."""
        return 0.0 if self._epsilon is None else self._epsilon.at(step)

    def after_update(self, scalars: Mapping[str, float]) -> None:
        """Called after each update that is kept; a subclass can adapt a coefficient to the result here.

        Args:
            scalars: `LossTerms.scalars`, each averaged over the update.
        """

    def create_policy(self, spec: BehaviorSpec) -> PolicyNetwork:
        """Creates the acting network and its critic."""
        self.network = self.build_networks(spec, self.trainer_settings, self._weights).to(self.context.device)
        return self.network.policy

    def create_optimizer(self) -> None:
        """Creates the reward signals and the optimizer."""
        hyper, context = self.hyperparameters, self.context
        self.auxiliaries = Auxiliaries(context, self.numbers, self.policy, self._weights)
        self.signals, self.cloning = self.auxiliaries.signals, self.auxiliaries.cloning
        self.optimizer = FlatAdam(
            self.network,
            hyper.learning_rate,
            context.reduce,
            epsilon=hyper.adam_epsilon,
            max_grad_norm=hyper.max_grad_norm,
            weight_decay=hyper.weight_decay,
            adaptive=hyper.learning_rate_schedule == "adaptive",
        )
        self.statistics = ObservationStatistics(self.network, context.behavior.spec, context.reduce, context.device)
        self.value_scale = ValueScale(
            self.network.value_head, context.reduce, context.device, is_on=hyper.normalize_values
        )
        stride = context.behavior.memory_stride
        self._minibatches = (
            SequenceMinibatches(hyper.part_steps, stride, self._shuffle)
            if self.network.memory_size
            else Minibatches(hyper.part_steps, self._shuffle)
        )
        bounds = torch.tensor(context.metrics.lag_bounds, dtype=torch.float64, device=context.device)
        self._lag_bounds = bounds.unsqueeze(1)
        self._maker = self.maker_type(
            context.behavior.spec,
            self.network,
            self.signals,
            self.value_scale,
            targets=self.target_rule(),
            ratio=hyper.ratio,
            reduce=context.reduce,
            device=context.device,
            normalizes=hyper.normalize_advantages,
            keeps_values=self.keeps_values,
            memory_stride=stride,
            row_bytes=self._forward_row_bytes(),
        )

    def evaluate(self, columns: Mapping[str, Tensor], sequences: Sequences | None) -> tuple[PolicyOutput, Tensor]:
        """Computes the outputs of policy and critic for a minibatch.

        Args:
            columns: Columns of the minibatch by name.
            sequences: Layout of its sequences; None without memory.
        """
        if not isinstance(self.network, ActorCritic):
            raise TypeError(f"{type(self).__name__} has no ActorCritic and must override evaluate")
        observations = [columns[name] for name in self._maker.observations]
        return self.network.forward(observations, columns.get(ACTION_MASK), sequences)

    def _forward_row_bytes(self) -> int:
        """Counts the bytes of one row of a forward pass."""
        spec, settings = self.context.behavior.spec, self.trainer_settings
        with torch.device("meta"):
            network = self.build_networks(spec, settings, None)
        return self.minibatch_bytes(network, spec, settings).per_forward_row

    def _update_policy(self) -> int:
        """Trains on the taken segments; returns the number of gradient steps, or 0 if the result was not finite.

        The normalizer is updated with the steps before the update, as in ML-Agents, so that the trained policy is the
        one that acts. A later update of the normalizer would change the policy without the protection of the clip.
        """
        metrics, reduce = self.context.metrics, self.context.reduce
        self._watch.begin()
        self._begin_draws()
        with metrics.assemble.time():
            plan = self.update_buffer.plan()
            reduce.has_rows = not plan.is_stand_in
            storage = self.update_buffer.ring.storage
            recorded = self._maker.recorded(plan, storage, self.version)
            agreement = compare(
                self.policy,
                recorded,
                observations=self._maker.observations,
                ratio=self.hyperparameters.ratio,
                sample=self.hyperparameters.batch_size,
            )
            steps_before, restore = self.optimizer.steps, self._restorer()
            self.statistics.merge(self.statistics.moments(storage, plan.step_rows))
            self.statistics.publish()
            experience = self._maker.make(plan, storage, recorded)
        coefficients = self._coefficients()
        with metrics.optimize.time():
            sums = run_epochs(
                self.evaluate,
                self.optimizer,
                self._minibatches,
                experience,
                loss=self.loss,
                coefficients=coefficients,
                epochs=self.hyperparameters.num_epoch,
                meter=self._meter(),
                parts=self.hyperparameters.gradient_accumulation,
                after_minibatch=self._update_signals if self.signals.learns else None,
            )
            taken = self.optimizer.steps - steps_before
            reduce.has_rows = True  # of demonstrations, which every learner has
            if self.cloning is not None:
                self.cloning.update(self.get_step)
            lags = self._report_agreement(recorded, agreement, plan)
            acts = can_act(self.policy, recorded, observations=self._maker.observations) | plan.is_stand_in
            scalars = self._report(experience, sums, coefficients, self._is_finite() & acts, plan)
        if scalars is None:
            restore()
            return 0
        self._watch.end(plan, self.optimizer.parameters, self._version + 1)
        metrics.policy_lag.add(lags, self.numbers["mean_lag"] * plan.all_steps)
        if coefficients.epsilon:
            self.stats_reporter.add_stat("Policy/Epsilon", coefficients.epsilon)
        self.stats_reporter.add_stat("Policy/Beta", coefficients.beta)
        self.auxiliaries.report()
        self.auxiliaries.report_episodes(self.collected_rewards, plan.ended_episodes)
        self.after_update(scalars)
        return taken

    def _restorer(self) -> Callable[[], None]:
        """Returns a function that undoes an update which begins now."""
        optimizer, statistics = self.optimizer.snapshot(), self.statistics.state_dict()
        auxiliaries, scale = self.auxiliaries.state_dict(), self.value_scale.state_dict()

        def restore() -> None:
            self.optimizer.restore(optimizer)
            self.value_scale.load_state_dict(scale)
            self.auxiliaries.load_state_dict(auxiliaries)
            self.statistics.load_state_dict(statistics)
            self.statistics.publish()
            self._forget()

        return restore

    def _begin_draws(self) -> None:
        """Seeds the draws of one of several learners: they differ between learners, and belong to no run state."""
        reduce = self.context.reduce
        if reduce.ranks > 1:
            first, second = draw_seeds(reduce, self.context.seed, self._version, self._failed_updates)
            self._shuffle.manual_seed(first)
            self.auxiliaries.begin_draws(second)

    def _meter(self) -> DivergenceMeter:
        hyper = self.hyperparameters
        desired = hyper.desired_kl if hyper.learning_rate_schedule == "adaptive" else None
        return DivergenceMeter(Limits(hyper.target_kl, desired), self.optimizer, hyper.ratio)

    def _is_finite(self) -> Tensor:
        """Returns a scalar bool on the device: whether everything that learns is finite."""
        return self.optimizer.is_finite() & self.auxiliaries.is_finite() & self.value_scale.is_finite()

    def _forget(self) -> None:
        """Forgets the critic's memories of running episodes."""
        self._maker.forget()

    def _update_signals(self, columns: Mapping[str, Tensor]) -> None:
        """Trains reward signals on a minibatch of the policy."""
        self.signals.update(self._maker.transitions.of(columns))

    def _coefficients(self) -> Coefficients:
        """Sets the learning rate for the current step, unless it is adaptive; returns the other scheduled values."""
        step = self.get_step
        if self._learning_rate is not None:
            self.optimizer.learning_rate = self._learning_rate.at(step)
        hyper = self.hyperparameters
        return Coefficients(
            epsilon=self.epsilon_at(step), beta=self._beta.at(step), ratio=hyper.ratio, value=hyper.value_coefficient
        )

    def _report_agreement(self, recorded: Recorded, agreement: Agreement, plan: UpdateRows) -> NDArray[np.float64]:
        """Reads lag, agreement and clipped observations from the device, and warns of an actor that acts with another policy.

        Returns:
            Number of steps in each bucket of lag (`BehaviorMeters.policy_lag`).
        """
        lag = recorded.lag.double()
        numbers = {
            "error": agreement.error,
            "lag": lag.mean(),
            "lag_max": lag.max(),
            "clipped": self.statistics.clipped,
            "forbidden": lag.new_zeros(()) if agreement.forbidden is None else agreement.forbidden,
            "within": (lag <= self._lag_bounds).sum(1),
        }
        found = combined(self.context.reduce, numbers, plan)
        (error,), (mean_lag,), (lag_max,) = found.max("error"), found.mean("lag"), found.max("lag_max")
        (clipped,), (forbidden,) = found.sum("clipped"), found.mean("forbidden")
        self.numbers.update(log_prob_error_max=error, mean_lag=mean_lag, observations_clipped=clipped)
        counts: NDArray[np.float64] = np.diff([0.0, *found.sum("within"), float(plan.all_steps)])
        add = self.stats_reporter.add_stat
        add("Rollcast/Policy Lag", mean_lag)
        add("Rollcast/Policy Lag Max", lag_max)
        add("Rollcast/Log Prob Error Max", error)
        if agreement.forbidden is not None:
            self.numbers["forbidden_choice_ratio"] = forbidden
            add("Policy/Forbidden Choice Mass", forbidden)
        if (
            error > LOG_PROB_ERROR_LIMIT and float(agreement.error) > LOG_PROB_ERROR_LIMIT
        ):  # of this learner's own steps
            actor_index = plan.actor_of(int(agreement.worst))
            left_out = self._disagreements.admit(actor_index)
            if left_out is None:
                return counts
            log.warning(
                "log_prob_error",
                behavior=self.brain_name,
                error=round(error, 6),
                limit=LOG_PROB_ERROR_LIMIT,
                actor_index=actor_index,
                hint="this actor's policy, mask or normalizer differs from the learner's",
                left_out=left_out,
            )
        return counts

    def _report(
        self,
        experience: Experience,
        sums: EpochSums,
        coefficients: Coefficients,
        own_is_finite: Tensor,
        plan: UpdateRows,
    ) -> dict[str, float] | None:
        """Reads the statistics from the device and reports them.

        Returns:
            Means of the loss scalars; None if they or the learned parameters are not finite.
        """
        rate = self.optimizer.learning_rate
        found = self._read(experience, sums, coefficients, own_is_finite, plan)
        if any(found.sum("unsound")):
            return None
        (divergence,), (clipped,), (norm,) = found.mean("divergence"), found.mean("clipped"), found.mean("norm")
        (adapted,), (explained,) = found.mean("learning_rate"), found.mean("explained")
        learning_rate = rate if isinstance(rate, float) else adapted
        named = dict(zip(sums.scalars, found.mean("terms"), strict=True))
        policy, value, entropy = (named.get(name, 0.0) for name in _SHOWN_ELSEWHERE)
        self.note_losses(policy=policy, value=coefficients.value * value, entropy=-coefficients.beta * entropy)
        self.numbers.update(
            grad_norm=norm,
            approx_kl=divergence,
            clip_ratio=clipped,
            explained_variance_ratio=explained,
            entropy_nats=entropy,
            learning_rate=learning_rate,
            update_epochs=sums.epochs,
        )
        add = self.stats_reporter.add_stat
        add("Policy/Learning Rate", learning_rate)
        add("Losses/Policy Loss", abs(policy))
        add("Losses/Value Loss", value)
        add("Policy/Entropy", entropy)
        add("Rollcast/Approximate KL", divergence)
        add("Rollcast/Explained Variance", explained)
        for name, own in named.items():
            if name not in _SHOWN_ELSEWHERE:
                add(statistic_of(name), own)
        for name, value, reward, scale, baseline in zip(
            self.signals.names,
            found.mean("values"),
            found.sum("rewards"),
            found.mean("scale"),
            found.mean("baselines"),
            strict=True,
        ):
            add(f"Policy/{name.capitalize()} Value Estimate", value)
            self.collected_rewards[name] = reward
            if experience.baselines is not None:
                add(f"Policy/{name.capitalize()} Baseline Estimate", baseline)
            if self.value_scale.is_on:
                self.numbers[f"return_scale/{name}"] = scale
                add(f"Policy/{name.capitalize()} Return Scale", scale)
        return named

    def _read(
        self,
        experience: Experience,
        sums: EpochSums,
        coefficients: Coefficients,
        own_is_finite: Tensor,
        plan: UpdateRows,
    ) -> Combined:
        """Returns the statistics of all learners; `unsound` is 0 if everything is finite."""
        log_ratio, rate = sums.log_ratio, self.optimizer.learning_rate
        terms = torch.stack(list(sums.scalars.values())).double() / sums.drawn
        norm = self.optimizer.gradient_norm()
        numbers = {
            "unsound": ~(own_is_finite & terms.isfinite().all()),
            "divergence": approximate_kl(log_ratio.double()),
            "clipped": coefficients.is_limited(log_ratio.exp()).double().mean(),
            "norm": norm,
            "learning_rate": norm if isinstance(rate, float) else rate,  # one that is not adaptive is known on the host
            "explained": experience.explained,
            "values": experience.values,
            "rewards": experience.rewards,
            "scale": self.value_scale.scale,
            "baselines": experience.values if experience.baselines is None else experience.baselines,
            "terms": terms,
        }
        return combined(self.context.reduce, numbers, plan)

    def _take_faulty_signals(self) -> tuple[str, ...]:
        """Returns the reward signals whose rewards were not finite since the last call; waits for the device."""
        return self.signals.take_faulty()

    def _publish_statistics(self) -> None:
        """Copies running statistics of the observations into actor and critic."""
        self.statistics.publish()

    def model_state(self) -> dict[str, Any]:
        """Returns networks, optimizer, normalizer, reward signals and generators."""
        return {
            "network": {name: value.clone() for name, value in self.network.state_dict().items()},
            "optimizer": self.optimizer.state_dict(),
            "statistics": self.statistics.state_dict(),
            "value_scale": self.value_scale.state_dict(),
            **self.auxiliaries.state_dict(),
            "shuffle": {"device": self._shuffle.device.type, "state": self._shuffle.get_state()},
        }

    def load_model_state(self, state: Mapping[str, Any]) -> None:
        """Loads what `model_state` returned.

        Raises:
            ValueError, KeyError, TypeError, RuntimeError: The state does not fit.
        """
        require_fit(state["network"], self.network.state_dict())
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.statistics.load_state_dict(state["statistics"])
        self.value_scale.load_state_dict(state["value_scale"])
        self.auxiliaries.load_state_dict(state)
        self._forget()
        shuffle = state["shuffle"]
        if shuffle["device"] == self._shuffle.device.type:  # a generator of another kind of device has another state
            self._shuffle.set_state(shuffle["state"].cpu())


def minibatch_bytes(network: ActorCritic, spec: BehaviorSpec) -> KeptBytes:
    """Counts the bytes of a minibatch, with a loss that uses every output of an actor-critic.

    Args:
        network: Network on the meta device.
        spec: Observations and actions of the behavior.
    """
    observations = [observation_column(observation.name) for observation in spec.observations]

    def columns(rows: int) -> dict[str, Tensor]:
        return {
            column.name: torch.zeros((rows, *column.shape), dtype=column.dtype) for column in on_policy_columns(spec)
        }

    def loss(columns: Columns) -> Tensor:
        recorded = columns[LOG_PROB]
        output, values = network(
            [columns[name] for name in observations], columns.get(ACTION_MASK), _sequence(network, recorded.shape[0])
        )
        advantage, returns = recorded.new_zeros(recorded.shape[0], 1), torch.zeros_like(values)
        batch = Batch(columns.get(CONTINUOUS_ACTION), columns.get(DISCRETE_ACTION), recorded, advantage, returns)
        ratios = (log_probability(output, batch.continuous, batch.discrete, "per_action") - recorded).exp()
        coefficients = Coefficients(epsilon=0.0, beta=1.0, ratio="per_action")
        return actor_critic_loss((ratios * advantage).mean(), output, values, batch, coefficients).total

    return kept_bytes(network, columns, loss)


def _sequence(network: ActorCritic, rows: int) -> Sequences | None:
    """Returns one sequence of ``rows`` rows; None for a network without memory."""
    if not network.memory_size:
        return None
    places = torch.ones(rows, dtype=torch.int64)  # on the CPU, where LSTMs read them
    memory = torch.zeros(1, network.memory_size, device="meta")
    return Sequences(places, memory, None if network.critic_body is network.policy.body else memory)


class Agreement(NamedTuple):
    """The largest difference between recorded and recomputed log-probabilities, on the device.

    Attributes:
        error: Scalar, largest absolute difference; 0 if no step was fresh.
        worst: Scalar int64, index of the step with that difference.
        forbidden: Scalar, mean probability of forbidden choices in a branch before masks; None without masks.
    """

    error: Tensor
    worst: Tensor
    forbidden: Tensor | None = None


@torch.no_grad()
def compare(
    policy: PolicyNetwork,
    recorded: Recorded,
    *,
    observations: tuple[str, ...],
    ratio: Ratio,
    sample: int,
) -> Agreement:
    """Compares log-probabilities of fresh steps. Call it before the parameters or the normalizer change.

    With memory, a step is fresh only if all steps of its sequence up to it are fresh, because its memory begins with
    the sequence.

    Args:
        policy: The policy that was published last.
        recorded: N steps; steps of older versions may differ and are not compared.
        observations: Names of the observation columns.
        ratio: Form of the recorded log-probabilities.
        sample: Number of steps to compare, evenly spread over all N.
    """
    chosen = sampled_steps(recorded.lag.shape[0], recorded.table, sample=sample, device=recorded.lag.device)
    columns = {name: source.at(chosen.steps) for name, source in recorded.sources.items()}
    masks = columns.get(ACTION_MASK)
    hidden = policy.body.forward([columns[name] for name in observations], chosen.sequences)
    output = policy.act(hidden, masks)
    own = log_probability(output, columns.get(CONTINUOUS_ACTION), columns.get(DISCRETE_ACTION), ratio)
    errors = (own - columns[LOG_PROB]).abs().amax(1)
    is_fresh = (recorded.lag.index_select(0, chosen.steps) == 0) & (recorded.lag.index_select(0, chosen.firsts) == 0)
    error, place = torch.where(is_fresh, errors, torch.zeros_like(errors)).max(0)
    # Not `chosen.steps[place]`: that would read the place from the device.
    worst = chosen.steps.index_select(0, place.reshape(1)).squeeze(0)
    return Agreement(error, worst, None if masks is None else _forbidden(policy, hidden, masks))


def _forbidden(policy: PolicyNetwork, hidden: Tensor, masks: Tensor) -> Tensor | None:
    head = policy.categorical
    if head is None:
        return None
    mass = head.forward(hidden, None).exp() * (masks == 0)
    return mass.sum(1).mean() / len(head.branches)


@torch.no_grad()
def can_act(policy: PolicyNetwork, recorded: Recorded, *, observations: tuple[str, ...]) -> Tensor:
    """Returns a scalar bool on the device: whether a policy's outputs are finite on a sample of the update's steps.

    Parameters can be finite while the outputs are not; actors could not act with such a policy.

    Args:
        policy: The policy that would be published next.
        recorded: N steps.
        observations: Names of the observation columns.
    """
    lag = recorded.lag
    chosen = sampled_steps(lag.shape[0], recorded.table, sample=ACTING_STEPS, device=lag.device)
    sources = recorded.sources
    masks = sources[ACTION_MASK].at(chosen.steps) if ACTION_MASK in sources else None
    return policy.unroll([sources[name].at(chosen.steps) for name in observations], masks, chosen.sequences).is_finite()
