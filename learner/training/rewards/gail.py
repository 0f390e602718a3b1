"""Adversarial imitation: rewards steps that resemble demonstrations (Ho and Ermon 2016, arXiv:1606.03476).

| symbol | shape | meaning |
|---|---|---|
| x | [B, inputs] | encoded observations; with `use_actions` the action (told_apart draws, one-hot choices) and the end |
| l(x) | [B] | the discriminator's score; D(x) = sigmoid(l(x)) is how likely x was demonstrated |
| z | [B, 128] | with `use_vail`, a draw from N(mu(x), sigma^2), through which the score sees x |

The loss is binary cross entropy (demonstrated = 1) plus 10 times the mean of ``(|grad_x l| - 1)^2`` at random points
between demonstrated and own steps (Gulrajani et al. 2017, arXiv:1704.00028; Kodali et al. 2017, arXiv:1705.07215). With
`use_vail` (Peng et al. 2019, arXiv:1810.00821) the loss also has ``beta * (KL - 0.5)``, where KL is the information of z
about x, in nats, and beta follows ``max(0, beta + 5e-4 * (KL - 0.5))``.

Two things differ from ML-Agents. The penalty is on the score and on all of x, not on D and the first observation alone:
raw pictures and category numbers have no meaningful points between them. KL includes the factor 1/2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from learner.shared.settings.rewards import GAILSettings
from learner.training.networks.dense import DenseLayers
from learner.training.networks.initializers import Initializer
from learner.training.networks.observing import build_observer
from learner.training.rewards.actions import ActionNumbers
from learner.training.rewards.demonstrations import DemonstrationBuffer
from learner.training.rewards.learned import LearnedReward, SignalSetup
from learner.training.rewards.transitions import Transitions

BOTTLENECK = 128
"""Width of the bottleneck with ``use_vail``."""
PENALTY = 10.0
CERTAINTY = 1.0 - 1e-7
"""Factor of D in the reward, which keeps it finite."""
INFORMATION_NATS = 0.5
BETA_STEP = 5e-4
_SMALL = 1e-7
"""Keeps the gradient of a norm finite at 0."""


class Discriminator(nn.Module):
    """Distinguishes demonstrated steps from others.

    Args:
        settings: Settings of the signal.
        setup: Observations and actions.
    """

    beta: Tensor

    def __init__(self, settings: GAILSettings, setup: SignalSetup) -> None:
        super().__init__()
        network = settings.network_settings.without_memory()
        initializer = Initializer(network.initialization, setup.generator)
        self.encoder = build_observer(setup.spec.observations, network, initializer)
        self._actions = ActionNumbers(setup.spec.action, setup.squash, setup.device) if settings.use_actions else None
        inputs = self.encoder.size + (0 if self._actions is None else self._actions.size + 1)
        self.layers = DenseLayers(inputs, network.widths, network.activation, initializer)
        width = self.layers.size
        self.mean = initializer.linear(width, BOTTLENECK, 0.1) if settings.use_vail else None
        self.sigma = nn.Parameter(torch.ones(BOTTLENECK)) if settings.use_vail else None
        self.score = initializer.linear(BOTTLENECK if settings.use_vail else width, 1, 0.2)
        self._reduce = setup.reduce
        self.register_buffer("beta", torch.zeros(()))

    def inputs(self, transitions: Transitions) -> Tensor:
        """Computes x, ``[B, inputs]``."""
        encoded: Tensor = self.encoder(list(transitions.observations))
        if self._actions is None:
            return encoded
        action = self._actions.of(transitions.continuous, transitions.discrete)
        return torch.cat((encoded, action, transitions.terminated.float().unsqueeze(1)), dim=1)

    def scores(self, inputs: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Computes l(x), ``[B]``, and mu(x), ``[B, 128]``, which is None without a bottleneck.

        Args:
            inputs: The encoded steps x, ``[B, inputs]``.
            noise: Standard normal ``[B, 128]``; None leaves z at its mean.
        """
        hidden = self.layers(inputs)
        if self.mean is None or self.sigma is None:
            return self.score(hidden).squeeze(1), None
        mean = self.mean(hidden)
        z = mean if noise is None else mean + self.sigma * noise
        return self.score(z).squeeze(1), mean

    def divergence(self, mean: Tensor) -> Tensor:
        """Computes KL(N(mu, sigma^2) || N(0, 1)) in nats, summed over z, averaged over the rows of mu: a scalar."""
        if self.sigma is None:
            raise ValueError("only a bottleneck has a divergence")
        variance = self.sigma.square()
        return 0.5 * (mean.square().sum(1).mean() + (variance - 1.0 - (variance + _SMALL).log()).sum())

    def loss(
        self, own: Transitions, expert: Transitions, random: torch.Generator | None
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """Computes the loss and the statistics to report.

        Args:
            own: B steps of the policy.
            expert: B demonstrated steps.
            random: Generator of noise and of points between own and demonstrated steps; None uses torch's default
                generator.
        """
        own_inputs, expert_inputs = self.inputs(own), self.inputs(expert)
        both = torch.cat((own_inputs, expert_inputs))
        scores, means = self.scores(both, self._noise(both, random))
        of_own, of_expert = torch.chunk(scores, 2)
        entropy = nn.functional.softplus(of_own).mean() + nn.functional.softplus(-of_expert).mean()
        penalty = self._penalty(own_inputs, expert_inputs, random)
        loss = entropy + PENALTY * penalty
        reported = [entropy, torch.sigmoid(of_own).mean(), torch.sigmoid(of_expert).mean(), penalty]
        if means is not None:
            divergence, beta = self.divergence(means), self.beta.clone()
            loss = loss + beta * (divergence - INFORMATION_NATS)
            reported += [divergence, beta]
            with torch.no_grad():
                self.beta.add_(BETA_STEP * (self._over_learners(divergence, len(own_inputs)) - INFORMATION_NATS))
                self.beta.clamp_(min=0.0)
        return loss, reported

    def _over_learners(self, divergence: Tensor, rows: int) -> Tensor:
        """Returns the divergence over the rows of all learners."""
        if self._reduce.ranks == 1:
            return divergence
        total, count = self._reduce.sums(torch.stack((divergence * rows, divergence.new_tensor(rows))))
        mean: Tensor = total / count.clamp(min=1.0)
        return mean

    def _noise(self, inputs: Tensor, random: torch.Generator | None) -> Tensor | None:
        if self.sigma is None:
            return None
        return torch.randn((len(inputs), BOTTLENECK), generator=random, device=inputs.device)

    def _penalty(self, own: Tensor, expert: Tensor, random: torch.Generator | None) -> Tensor:
        """Computes the mean of ``(|grad_x l| - 1)^2`` at points between own and demonstrated steps: a scalar."""
        shares = torch.rand((len(own), 1), generator=random, device=own.device)
        between = (shares * own.detach() + (1.0 - shares) * expert.detach()).requires_grad_()
        scores, _ = self.scores(between, self._noise(between, random))
        (gradient,) = torch.autograd.grad(scores.sum(), between, create_graph=True)
        norm = (gradient.square().sum(1) + _SMALL).sqrt()
        return (norm - 1.0).square().mean()


class GAILReward(LearnedReward):
    """Rewards steps that look demonstrated: ``-ln(1 - D(x) (1 - 1e-7))``, which is never negative.

    Continuing an episode is therefore worth more than ending it. This suits survival tasks and misleads where
    demonstrations end early: use `use_actions` there, so that x includes the end, and choose the strength with care.

    Args:
        settings: Settings of the signal.
        setup: The remaining arguments.

    Raises:
        UserError: The demonstrations cannot be read or belong to another behavior.
    """

    network: Discriminator

    def __init__(self, settings: GAILSettings, setup: SignalSetup) -> None:
        self.reported = (
            "Losses/GAIL Loss",
            "Policy/GAIL Policy Estimate",
            "Policy/GAIL Expert Estimate",
            "Policy/GAIL Grad Mag Loss",
            *(("Losses/GAIL KL Loss", "Policy/GAIL Beta") if settings.use_vail else ()),
        )
        setting = f"behaviors.{setup.spec.name}.reward_signals.gail.demo_path"
        self._buffer = DemonstrationBuffer.load(
            settings.demo_path,
            setup.spec,
            setup.device,
            setup.squash,
            setting=setting,
            pairing=settings.demo_pairing,
        )
        super().__init__("gail", settings, Discriminator(settings, setup), setup)
        self._random = torch.Generator(setup.device)
        # From the generator of the initial weights, so that it also follows the run's seed.
        self._random.manual_seed(int(torch.randint(2**62, (), generator=setup.generator)))

    def begin_draws(self, seed: int) -> None:
        """Seeds the draws of demonstrations and noise."""
        self._random.manual_seed(seed)

    def rewards(self, transitions: Transitions) -> Tensor:
        """Computes rewards ``[B]``."""
        scores, _ = self.network.scores(self.network.inputs(transitions))
        return -torch.log1p(-torch.sigmoid(scores.double()) * CERTAINTY)

    def loss(self, transitions: Transitions) -> tuple[Tensor, Sequence[Tensor]]:
        """Computes the loss on equally many own and demonstrated steps, and the statistics to report."""
        expert = self._buffer.drawn(len(transitions.reward), self._random)
        return self.network.loss(transitions, expert, self._random)

    def state_dict(self) -> dict[str, Any]:
        """Returns copies of a learned signal's state and of the random generator's."""
        random = {"device": self._random.device.type, "state": self._random.get_state()}
        return {**super().state_dict(), "random": random}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads a saved state.

        Raises:
            KeyError, TypeError, ValueError, RuntimeError: The state does not fit.
        """
        super().load_state_dict(state)
        random = state["random"]
        if random["device"] == self._random.device.type:  # a generator of another kind of device has another state
            self._random.set_state(random["state"].cpu())
