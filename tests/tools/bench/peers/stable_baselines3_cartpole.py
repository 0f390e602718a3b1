"""Trains CartPole-v1 with Stable-Baselines3's PPO until the mean return of 100 episodes reaches a target.

Runs in an environment of its own: `python stable_baselines3_cartpole.py SEED TARGET`. Prints one line of JSON. Eight
scalar environments in one process, a 2x64 tanh network, and the settings its own tuned collection gives for CartPole.
"""

import json
import sys
import time

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

MAX_STEPS = 400_000


class UntilTarget(BaseCallback):
    """Stops the training at the target and remembers how long it took."""

    def __init__(self, target: float) -> None:
        super().__init__()
        self.target = target
        self.started = 0.0
        self.seconds: float | None = None

    def _on_rollout_start(self) -> None:
        self.started = self.started or time.perf_counter()

    def _on_step(self) -> bool:
        episodes = self.model.ep_info_buffer
        if len(episodes) < 100 or sum(episode["r"] for episode in episodes) / len(episodes) < self.target:
            return True
        self.seconds = time.perf_counter() - self.started
        return False


def main(seed: int, target: float) -> None:
    """Trains once and prints the result."""
    # A second thread brings this small network nothing, and where cores are busy the two wait for each other.
    torch.set_num_threads(1)
    model = PPO(
        "MlpPolicy", make_vec_env("CartPole-v1", 8, seed=seed), seed=seed, device="cpu", n_steps=32, batch_size=256,
        n_epochs=20, gamma=0.98, gae_lambda=0.8, ent_coef=0.0,
        learning_rate=lambda left: 1e-3 * left, clip_range=lambda left: 0.2 * left,
    )  # fmt: skip
    until = UntilTarget(target)
    model.learn(MAX_STEPS, callback=until)
    seconds = until.seconds or time.perf_counter() - until.started
    steps = model.num_timesteps
    result = {"steps_per_second": steps / seconds, "seconds_to_target": until.seconds, "steps": steps}
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
