"""Trainers that minimize losses of replay minibatches; an algorithm defines the networks and the loss."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor, nn

from learner.shared.saved_values import number
from learner.shared.settings.hyperparameters import ReplayHyperparameters
from learner.shared.settings.trainer import TrainerSettings
from learner.training.buffers.columns import ACTION_MASK, CONTINUOUS_ACTION, DISCRETE_ACTION, REWARD, observation_column
from learner.training.buffers.replay import replay_columns
from learner.training.networks.fit import require_fit
from learner.training.networks.kept import Columns, KeptBytes, kept_bytes
from learner.training.networks.policy import PolicyNetwork
from learner.training.networks.squashed import squash_of
from learner.training.optimizers.adam import FlatAdam, Snapshot, all_finite
from learner.training.trainers.actor_critic.loss import LossTerms, require_terms, statistic_of
from learner.training.trainers.auxiliaries import Auxiliaries
from learner.training.trainers.base import TrainerContext
from learner.training.trainers.intake import Taken
from learner.training.trainers.normalization import ObservationStatistics
from learner.training.trainers.replay import PUBLISH_UPDATES, ReplayTrainer
from learner.training.trainers.replay_batches import Batch, BatchMaker, Part, Remembered, can_act, hidden_of
from learner.training.trainers.schedules import LEARNING_RATE_FLOOR, ScheduledValue

EXPLAINED_VARIANCE: Final = "Rollcast/Explained Variance"
CLONING_UPDATES: Final = 50
"""Updates between two imitations of the demonstrations, and the most minibatches of one imitation: imitation then takes
no more gradient steps than learning from rewards, however many demonstrations there are. ML-Agents passes over all
demonstrations with each update."""
_NEXT = "next/"
_REMEMBERED = "remembered/"


class Restorable(NamedTuple):
    """The state that a turn restores if its result is not finite.

    Attributes:
        optimizers: Parameters and moments, by name of the optimizer.
        fixed: Parameters that no optimizer changes, such as those of targets.
        auxiliaries: State of signals and cloning.
    """

    optimizers: dict[str, Snapshot]
    fixed: list[Tensor]
    auxiliaries: dict[str, Any]


class Learned(NamedTuple):
    """The last minibatch of a turn, or its last part.

    Attributes:
        batch: The steps.
        loss: Scalar, the loss that was minimized.
        scalars: Scalars of `LossTerms`.
    """

    batch: Batch
    loss: Tensor
    scalars: Mapping[str, Tensor]


class OffPolicyTrainer(ReplayTrainer):
    """Trains networks on replay minibatches; the algorithm defines `build_networks`, `build_optimizers` and `loss`.

    Args:
        context: Everything the trainer receives from the run.

    Attributes:
        networks: Everything that is trained, and its copies.
        optimizers: Optimizers by their names in checkpoints.
        auxiliaries: The reward signals and the cloning.
        signals: The reward signals.
        statistics: Running statistics behind the normalizers.
        cloning: Imitates demonstrations in addition to the rewards; None if the run file does not request it.

    Raises:
        UserError: The settings do not fit the behavior.
    """

    networks: nn.Module
    optimizers: Mapping[str, FlatAdam]

    def __init__(self, context: TrainerContext) -> None:
        self._weights = torch.Generator().manual_seed(context.seed)
        self._clipped: list[FlatAdam] = []
        super().__init__(context)
        self.settings_changed()
        self._batches = BatchMaker(
            context.behavior.spec, self.memory, self.signals, squash_of(self.policy), self._choices
        )
        self._signal_steps = 0.0  # steps that reward signals have not been updated for
        self._statistics_changed = False
        self._learned: Learned | None = None
        self._before: Restorable | None = None
        self._updates_since_snapshot = 0

    def settings_changed(self) -> None:
        """Computes the schedules from the current settings."""
        super().settings_changed()
        hyper = self.hyperparameters
        self._learning_rates = {
            name: ScheduledValue(
                hyper.learning_rate_schedule, self.initial_rate(name), LEARNING_RATE_FLOOR, self.get_max_steps
            )
            for name in self.optimizers
        }
        self._set_rates()
        for optimizer in self._clipped:
            optimizer.max_grad_norm = hyper.max_grad_norm
        if self.cloning is not None:
            self.cloning.use(self.trainer_settings)

    def initial_rate(self, optimizer: str) -> float:
        """Returns the learning rate of an optimizer at the start, which follows ``learning_rate_schedule``."""
        del optimizer
        return self.hyperparameters.learning_rate

    @classmethod
    @abstractmethod
    def build_networks(
        cls, spec: BehaviorSpec, settings: TrainerSettings, generator: torch.Generator | None
    ) -> nn.Module:
        """Builds everything that is trained and its copies; the attribute ``policy`` is the acting network.

        Args:
            spec: Observations and actions of the behavior.
            settings: The behavior's block of the run file.
            generator: Draws the initial weights; None uses torch's default generator.

        Raises:
            UserError: The settings do not fit the behavior.
        """

    @classmethod
    def minibatch_bytes(cls, network: nn.Module, spec: BehaviorSpec, settings: TrainerSettings) -> KeptBytes:
        """Counts the bytes of a minibatch: those of a pass through the policy, scaled to all networks' parameters.

        An algorithm whose loss is a function of networks and minibatch counts the bytes of that loss instead.

        Args:
            network: Result of `build_networks`, on the meta device.
            spec: Observations and actions of the behavior.
            settings: The behavior's block of the run file.
        """
        policy = network.get_submodule("policy")
        if not isinstance(policy, PolicyNetwork):
            raise TypeError(f"{cls.__name__}.build_networks returned a policy that is not a PolicyNetwork")

        def loss(batch: Batch) -> Tensor:
            output = policy.act(hidden_of(policy, batch).now, batch.masks)
            parts = (output.mean, output.log_std, output.logits)
            return torch.cat([part.square().mean().reshape(1) for part in parts if part is not None])

        counted = minibatch_bytes(policy, spec, settings, loss)
        numbers, of_policy = (sum(value.numel() for value in each.parameters()) for each in (network, policy))
        return counted._replace(per_row=counted.per_row * -(-numbers // of_policy))

    @abstractmethod
    def build_optimizers(self) -> dict[str, FlatAdam]:
        """Creates the optimizers of `networks`, by their names in checkpoints; see `adam`."""

    @abstractmethod
    def loss(self, batch: Batch) -> LossTerms:
        """Computes the loss; reads nothing back from the device.

        All optimizers step along the gradient of the total, which autograd computes. Compute terms that no optimizer
        may descend under ``torch.no_grad``, or detach them. The scalars of the last minibatch of a turn are reported:
        ``policy_loss``, ``value_loss`` and ``entropy`` under the names that every trainer uses (``entropy_bonus`` is a
        part of the first), any other under the name of `statistic_of`.

        Args:
            batch: A minibatch, or a part of one if ``gradient_accumulation`` is set; the loss is a mean over its steps.
        """

    def after_step(self) -> None:
        """Called after each step of the optimizers; target networks are updated here."""

    def measured(self) -> Mapping[str, Tensor]:
        """Returns further scalars of the last `loss` to report, computed once a turn and named in the same way."""
        return {}

    def adam(self, network: nn.Module, *, clips: bool = True) -> FlatAdam:
        """Creates an optimizer with the settings of the run file; its learning rate follows from `initial_rate`.

        Args:
            network: The network to train.
            clips: Whether ``max_grad_norm`` applies to it.
        """
        hyper = self.hyperparameters
        optimizer = FlatAdam(network, hyper.learning_rate, self.context.reduce, epsilon=hyper.adam_epsilon)
        if clips:
            self._clipped.append(optimizer)
        return optimizer

    def noise(self, *sizes: int) -> Tensor | None:
        """Draws standard normal noise for continuous actions, ``[*sizes, n]``; None without such actions.

        The generator is saved with the trainer, so that a resumed run repeats the same draws.
        """
        axes = self.context.behavior.spec.action.continuous_size
        return torch.randn((*sizes, axes), generator=self._draws, device=self.context.device) if axes else None

    @property
    def _learning_rate(self) -> float:
        """Reported learning rate: that of the optimizer ``policy``, or of the first one."""
        rates = self._learning_rates
        return rates.get("policy", next(iter(rates.values()))).at(self.get_step)

    def create_policy(self, spec: BehaviorSpec) -> PolicyNetwork:
        """Builds all networks and returns the acting one."""
        self.networks = self.build_networks(spec, self.trainer_settings, self._weights).to(self.context.device)
        policy = self.networks.policy
        if not isinstance(policy, PolicyNetwork):
            raise TypeError(f"{type(self).__name__}.build_networks returned a policy that is not a PolicyNetwork")
        return policy

    def create_optimizer(self) -> None:
        """Creates the reward signals and the optimizers."""
        context = self.context
        self.auxiliaries = Auxiliaries(context, self.numbers, self.policy, self._weights, squash_of(self.policy))
        self.signals, self.cloning = self.auxiliaries.signals, self.auxiliaries.cloning
        self._fixed = [value for value in self.networks.parameters() if not value.requires_grad]
        self.optimizers = self.build_optimizers()
        self.statistics = ObservationStatistics(self.networks, context.behavior.spec, context.reduce, context.device)

    def _note_experience(self, taken: Taken) -> None:
        """Adds new steps to the running statistics of the observations; the networks receive them in the next turn.

        Rewards are reported with their current values; training computes them again when a step is drawn.
        """
        moments = self.statistics.moments(self.memory.storage, taken.places)
        if moments:
            self.statistics.merge(moments)
            self._statistics_changed = True
        pieces = torch.split(taken.places, self.hyperparameters.batch_size)
        sums = torch.stack([self._batches.rewards(places).sum(0) for places in pieces]).sum(0)
        *rewards, clipped = torch.cat([sums.double(), self.statistics.clipped.reshape(1)]).tolist()
        self.numbers["observations_clipped"] = clipped
        self.collected_rewards = dict(zip(self.signals.names, rewards, strict=True))
        self.auxiliaries.report_episodes(self.collected_rewards, taken.ended_episodes)

    def _begin_updates(self) -> None:
        """Sets the learning rates, publishes the statistics, and stores the state that a faulty turn restores."""
        self._set_rates()
        self.stats_reporter.add_stat("Policy/Learning Rate", self._learning_rate)
        if self._statistics_changed:
            self.statistics.publish()
            self._statistics_changed = False
        # Stored in every turn in lock-step: a resumed run would otherwise store after a different update than an
        # uninterrupted one.
        if self._before is None or self._in_rounds or self._updates_since_snapshot >= PUBLISH_UPDATES:
            self._before = Restorable(
                {name: optimizer.snapshot() for name, optimizer in self.optimizers.items()},
                [value.detach().clone() for value in self._fixed],
                self.auxiliaries.state_dict(),
            )
            self._updates_since_snapshot = 0

    def _set_rates(self) -> None:
        for name, optimizer in self.optimizers.items():
            optimizer.learning_rate = self._learning_rates[name].at(self.get_step)

    def _update_once(self) -> None:
        """Takes one gradient step; reward signals train on the same steps at their own rate."""
        hyper = self.hyperparameters
        parts = self._batches.draw(hyper.batch_size, hyper.gradient_accumulation)
        self._descend(parts)
        self._updates_since_snapshot += 1
        if self.cloning is not None and (self.optimizer_steps + self._updates) % CLONING_UPDATES == 0:
            self.cloning.update(self.get_step, CLONING_UPDATES)
        if not self.signals.learns:
            return
        self._signal_steps += hyper.steps_per_update
        while self._signal_steps >= hyper.reward_signal_steps_per_update:
            self._signal_steps -= hyper.reward_signal_steps_per_update
            for part in parts:
                self.signals.update(self._batches.transitions(*part.places))
            if self._signal_steps >= hyper.reward_signal_steps_per_update:
                parts = self._batches.draw(hyper.batch_size, hyper.gradient_accumulation)

    def _descend(self, parts: list[Part]) -> None:
        """Steps all optimizers along the mean gradient over the steps of all parts."""
        optimizers = self.optimizers.values()
        for optimizer in optimizers:
            optimizer.zero_grad()
        for part in parts:
            batch = self._batches.read(part)
            terms = self.loss(batch)
            if self._learned is None:  # only once a turn
                require_terms(terms, self.loss)
            total, scalars = terms
            (total if len(parts) == 1 else total * part.steps).backward()
            self._learned = Learned(batch, total.detach(), scalars)
        weight = 1.0 if len(parts) == 1 else float(sum(part.steps for part in parts))
        for optimizer in optimizers:
            optimizer.step(weight)
        self.after_step()

    def _end_updates(self) -> bool:
        """Reads losses and parameters from the device, once a turn."""
        if self._learned is None:
            raise RuntimeError("a turn without an update")
        learned, self._learned = self._learned, None
        if not self._report(learned):
            self._go_back()
            return False
        self.stats_reporter.add_stat("Rollcast/Replay Steps", float(self.memory.steps))
        self.auxiliaries.report()
        return True

    @torch.no_grad()
    def _report(self, learned: Learned) -> bool:
        """Waits for the device and reports the last minibatch; returns False if something is not finite."""
        terms, further = learned.scalars, self.measured()
        losses = torch.stack([learned.loss, *terms.values()]).double()
        norms = torch.stack([optimizer.gradient_norm() for optimizer in self.optimizers.values()])
        finite = self._is_finite() & can_act(self.policy, learned.batch) & losses.isfinite().all()
        scalars = [finite, torch.linalg.vector_norm(norms), *losses[1:], *further.values()]
        is_finite, norm, *rest = torch.stack([scalar.double() for scalar in scalars]).tolist()
        if not is_finite:
            return False
        self._note(dict(zip((*terms, *further), rest, strict=True)), norm)
        return True

    def _note(self, named: dict[str, float], norm: float) -> None:
        """Reports scalars by name, and the norm of the last gradient."""
        bonus = named.pop("entropy_bonus", 0.0)
        policy, critics = (named.get(name, 0.0) for name in ("policy_loss", "value_loss"))
        self.note_losses(policy=policy - bonus, value=critics, entropy=bonus)
        self.numbers.update(
            grad_norm=norm,
            explained_variance_ratio=named.get(EXPLAINED_VARIANCE, 0.0),
            entropy_nats=named.get("entropy", 0.0),
            learning_rate=self._learning_rate,
        )
        for name, value in {statistic_of(name): value for name, value in named.items()}.items():
            self.stats_reporter.add_stat(name, value)

    def _is_finite(self) -> Tensor:
        """Returns a scalar bool on the device: whether all trained networks and their targets are finite."""
        found = self.auxiliaries.is_finite()
        for optimizer in self.optimizers.values():
            found = found & optimizer.is_finite()
        for value in self._fixed:
            found = found & all_finite(value)
        return found

    @torch.no_grad()
    def _go_back(self) -> None:
        if self._before is None:
            return
        for name, snapshot in self._before.optimizers.items():
            self.optimizers[name].restore(snapshot)
        for value, before in zip(self._fixed, self._before.fixed, strict=True):
            value.copy_(before)
        self.auxiliaries.load_state_dict(self._before.auxiliaries)
        self._before = None

    def _take_faulty_signals(self) -> tuple[str, ...]:
        """Returns the reward signals whose rewards were not finite since the last call; waits for the device."""
        return self.signals.take_faulty()

    def _publish_statistics(self) -> None:
        """Leaves publishing the statistics to the next turn, so that saving a state changes nothing."""
        self._statistics_changed = True

    def model_state(self) -> dict[str, Any]:
        """Returns networks, optimizers, normalizer, reward signals and generators."""
        return {
            "networks": {name: value.clone() for name, value in self.networks.state_dict().items()},
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()},
            "statistics": self.statistics.state_dict(),
            **self.auxiliaries.state_dict(),
            "signal_steps": self._signal_steps,
            "draws": {"device": self._draws.device.type, "state": self._draws.get_state()},
            "choices": self._choices.get_state(),
        }

    def load_model_state(self, state: Mapping[str, Any]) -> None:
        """Loads what `model_state` returned.

        Raises:
            ValueError, KeyError, TypeError, RuntimeError: The state does not fit.
        """
        require_fit(state["networks"], self.networks.state_dict())
        self.networks.load_state_dict(state["networks"])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        self.statistics.load_state_dict(state["statistics"])
        self.auxiliaries.load_state_dict(state)
        # At most one update of the signals, because the state may have been saved under other settings.
        self._signal_steps = min(
            number(state, "signal_steps", least=0.0), self.hyperparameters.reward_signal_steps_per_update
        )
        self._before = None
        draws = state["draws"]
        if draws["device"] == self._draws.device.type:  # a generator of another kind of device has another state
            self._draws.set_state(draws["state"].cpu())
        self._choices.set_state(state["choices"].cpu())


def minibatch_bytes(
    networks: nn.Module, spec: BehaviorSpec, settings: TrainerSettings, loss: Callable[[Batch], Tensor]
) -> KeptBytes:
    """Counts the bytes that a minibatch takes.

    Args:
        networks: Networks on the meta device.
        spec: Observations and actions of the behavior.
        settings: The behavior's block of the run file.
        loss: Computes the loss of a minibatch on the meta device; with memory, the minibatch is one sequence.
    """
    memory, signals = settings.network_settings.memory, len(settings.reward_signals.active())
    memory_size = 0 if memory is None else memory.memory_size

    def columns(rows: int) -> dict[str, Tensor]:
        found = {column.name: torch.zeros((rows, *column.shape), dtype=column.dtype) for column in replay_columns(spec)}
        seen = [observation_column(observation.name) for observation in spec.observations]
        for name in (*seen, ACTION_MASK):
            if name in found:
                found[_NEXT + name] = torch.zeros_like(found[name])
        if memory_size:  # also the observation after the last step
            found |= {_REMEMBERED + name: torch.cat((found[name], found[name][:1])) for name in seen}
        return found

    counted = kept_bytes(networks, columns, lambda columns: loss(_batch(columns, spec, signals, memory_size)))
    hyper = settings.hyperparameters
    if not isinstance(hyper, ReplayHyperparameters) or not hyper.burn_in:
        return counted
    seen = {observation_column(observation.name) for observation in spec.observations}
    of_row = sum(column.row_bytes for column in replay_columns(spec) if column.name in seen) + counted.per_forward_row
    return counted._replace(per_row=counted.per_row - (-hyper.burn_in * of_row // settings.memory_stride))


def _batch(columns: Columns, spec: BehaviorSpec, signals: int, memory_size: int) -> Batch:
    seen = [observation_column(observation.name) for observation in spec.observations]
    rows, draws, choices = columns[REWARD].shape[0], columns.get(CONTINUOUS_ACTION), columns.get(DISCRETE_ACTION)
    per_signal = columns[REWARD].unsqueeze(1).expand(rows, signals)
    return Batch(
        [columns[name] for name in seen],
        [columns[_NEXT + name] for name in seen],
        draws,
        draws,
        None if choices is None else choices.long(),
        columns.get(ACTION_MASK),
        columns.get(_NEXT + ACTION_MASK),
        per_signal,
        per_signal,
        _remembered([columns[_REMEMBERED + name] for name in seen], rows, memory_size) if memory_size else None,
    )


def _remembered(observations: list[Tensor], rows: int, memory_size: int) -> Remembered:
    device = observations[0].device
    places = torch.ones(rows + 1, dtype=torch.int64)  # on the CPU, where LSTMs read them
    return Remembered(
        observations, torch.arange(rows, device=device), places, torch.zeros(1, memory_size, device=device)
    )
