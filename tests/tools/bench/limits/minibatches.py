"""Measures the limit of a learner thread: PPO minibatches through a 2x64 network.

`python -m tests.tools.bench.limits.minibatches SECONDS` prints one line of JSON.
"""

import json
import sys
import time

import torch
from torch import Tensor, nn

BATCH_SIZE = 1024
EPOCHS = 4
"""As in the run file: a step goes through the network this many times."""
_ROWS = 8192
_WARM_UP_BATCHES = 20


class _ActorCritic(nn.Module):
    """Two layers of 64 with two logits and a value."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.policy = nn.Linear(64, 2)
        self.value = nn.Linear(64, 1)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Returns logits ``[B, 2]`` and values ``[B, 1]`` for observations ``[B, 4]``."""
        hidden = self.body(observations)
        return self.policy(hidden), self.value(hidden)


def samples_per_second(seconds: float) -> float:
    """Returns how many samples forward, PPO loss, backward, clip and fused Adam take in a second, on one thread."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    network = _ActorCritic()
    parameters = list(network.parameters())
    optimizer = torch.optim.Adam(parameters, lr=1e-3, eps=1e-5, fused=True)
    batches = [
        (
            torch.randn(BATCH_SIZE, 4),
            torch.randint(0, 2, (BATCH_SIZE, 1)),
            torch.full((BATCH_SIZE, 1), -0.693),
            torch.randn(BATCH_SIZE, 1),
            torch.randn(BATCH_SIZE, 1),
        )
        for _ in range(_ROWS // BATCH_SIZE)
    ]

    def descend(index: int) -> None:
        observations, actions, log_prob, advantages, returns = batches[index % len(batches)]
        logits, values = network(observations)
        ratio = (logits.log_softmax(1).gather(1, actions) - log_prob).exp()
        surrogate = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
        loss = nn.functional.mse_loss(values, returns) * 0.5 - surrogate
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 0.5, foreach=True)
        optimizer.step()

    for index in range(_WARM_UP_BATCHES):
        descend(index)
    begun, count = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        descend(count)
        count += 1
    return count * BATCH_SIZE / (time.perf_counter() - begun)


if __name__ == "__main__":
    rate = samples_per_second(float(sys.argv[1])) / EPOCHS
    sys.stdout.write(json.dumps({"steps_per_second": rate}) + "\n")
