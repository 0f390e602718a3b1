"""Trains CartPole-v1 with Sample Factory's asynchronous PPO for a time, on two worker processes.

Runs in an environment of its own: `python sample_factory_cartpole.py SEED SECONDS`. Its own log goes to standard output;
the harness reads the "Fps is" and "Avg episode reward" lines from it, and ends it: it goes on after SECONDS. Two workers of eight
scalar environments, a 2x64 tanh network, rollouts of 32, minibatches of 1,024 and four epochs.
"""

import sys
import tempfile

import gymnasium
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import run_rl


def make_cartpole(full_env_name, cfg=None, env_config=None, render_mode=None):
    """Returns one scalar environment; the signature is Sample Factory's."""
    return gymnasium.make("CartPole-v1")


def main(seed: str, seconds: str) -> int:
    """Trains once."""
    register_env("cartpole", make_cartpole)
    settings = {
        "env": "cartpole", "algo": "APPO", "device": "cpu", "seed": seed, "train_for_seconds": seconds,
        "num_workers": "2", "num_envs_per_worker": "8", "worker_num_splits": "2", "rollout": "32",
        "batch_size": "1024", "num_batches_per_epoch": "1", "num_epochs": "4", "async_rl": "True", "serial_mode": "False",
        "learning_rate": "1e-3", "gamma": "0.98", "gae_lambda": "0.8", "reward_scale": "0.1",
        "nonlinearity": "tanh", "use_rnn": "False", "normalize_input": "False",
        "decorrelate_experience_max_seconds": "0", "decorrelate_envs_on_one_worker": "False",
        "train_dir": tempfile.mkdtemp(), "experiment": "bench",
    }  # fmt: skip
    arguments = [f"--{key}={value}" for key, value in settings.items()] + ["--encoder_mlp_layers", "64", "64"]
    parser, _ = parse_sf_args(argv=arguments, evaluation=False)
    return int(run_rl(parse_full_cfg(parser, arguments)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
