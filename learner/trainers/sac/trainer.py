"""The SAC trainer: off-policy actor-critic with learned temperatures, from the replay memory of many actors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch
from rollcast.enums import Squash
from rollcast.specs import BehaviorSpec

from learner.common.saved_values import number
from learner.networks.fit import require_fit
from learner.networks.policy import PolicyNetwork
from learner.networks.squashed import SquashedPolicyNetwork
from learner.networks.twin import TwinCritic
from learner.rewards.episodes import EpisodeRewards
from learner.rewards.extrinsic import EXTRINSIC
from learner.rewards.signal_set import SignalSet
from learner.rewards.signals import build_signals
from learner.settings.hyperparameters import SACHyperparameters
from learner.trainers.cloning import build_cloning
from learner.trainers.context import TrainerContext
from learner.trainers.normalization import ObservationStatistics
from learner.trainers.replay import PUBLISH_UPDATES, ReplayTrainer
from learner.trainers.replay_intake import Taken
from learner.trainers.sac.batches import BatchMaker
from learner.trainers.sac.learner import Report, Restorable, SACLearner
from learner.trainers.sac.networks import SACNetworks, Temperatures
from learner.trainers.sac.report import read_report
from learner.trainers.schedules import LEARNING_RATE_FLOOR, ScheduledValue

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
