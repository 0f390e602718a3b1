"""The parser of a command, which reports unknown words itself, old spellings of flags, and walks over parsers.

Words of other programs for what a flag or a setting here means are in `MEANT`: the most similar flag would often be another
one.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final


def _means(words: str, *meanings: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(words.split(), meanings)


_TRAINER: Final = "behaviors.NAME."
MEANT: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        # How long: in steps it is a setting of the run, and of actors the flag for seconds.
        **_means("max-steps total-timesteps n-timesteps timesteps total-steps num-steps steps train-for-env-steps", _TRAINER + "max_steps"),
        **_means("max-time time-limit train-for-seconds timeout max-runtime", "--max-wall-seconds"),
        **_means("max-episode-length max-ep-len episode-length max-path-length", "--max-episode-steps"),
        **_means("target-reward reward-threshold stop-reward target-score reward-target", "--target-return"),
        **_means("eval-episodes n-eval-episodes num-episodes n-episodes num-eval-episodes max-episodes", "--episodes"),
        **_means("eval-freq eval-interval evaluation-interval", "rollcast.evaluation.interval_steps"),
        # What trains.
        **_means("algo algorithm agent trainer trainer-type", "--trainer", _TRAINER + "trainer_type"),
        **_means("lr learning-rate", _TRAINER + "hyperparameters.learning_rate"),
        **_means("batch-size minibatch-size mini-batch-size", _TRAINER + "hyperparameters.batch_size"),
        **_means("buffer-size n-steps rollout", _TRAINER + "hyperparameters.buffer_size"),
        **_means("num-epoch num-epochs n-epochs update-epochs", _TRAINER + "hyperparameters.num_epoch"),
        **_means("ent-coef entropy-coef beta", _TRAINER + "hyperparameters.beta"),
        **_means("clip-range clip-coef clip epsilon", _TRAINER + "hyperparameters.epsilon"),
        **_means("gae-lambda lambd lam", _TRAINER + "hyperparameters.lambd"),
        **_means("gamma discount", _TRAINER + "reward_signals.extrinsic.gamma"),
        **_means("hidden-units hidden-size net-arch", _TRAINER + "network_settings.hidden_units"),
        **_means("num-layers", _TRAINER + "network_settings.num_layers"),
        **_means("normalize norm-obs normalize-obs", _TRAINER + "network_settings.normalize"),
        **_means("time-horizon unroll-length rollout-length", _TRAINER + "time_horizon"),
        **_means("summary-freq log-interval log-freq", _TRAINER + "summary_freq"),
        **_means("save-freq checkpoint-freq checkpoint-interval save-interval", _TRAINER + "checkpoint_interval"),
        **_means("keep-checkpoints", _TRAINER + "keep_checkpoints"),
        **_means("device cuda gpu cpu use-cuda", "--torch-device"),
        # Where, and from what.
        **_means("env-id environment env-name gym-id task env-path", "--env", "--game"),
        **_means("game", "--env"),
        **_means("n-envs envs num-environments", "--num-envs"),
        **_means("num-workers workers num-actors n-workers num-agents", "--actors", "--num-envs"),
        **_means("render render-mode", "--env-kwargs"),
        **_means("record-video capture-video save-video video-folder video-dir", "--video"),
        **_means("framestack n-stack", "--frame-stack"),
        **_means("frameskip action-repeat", "--frame-skip"),
        **_means("wrapper env-wrapper", "--wrap"),
        **_means("name exp-name experiment run-name experiment-name", "--run-id", "--name"),
        **_means("experiment-dir log-dir logdir log-folder save-dir output-dir out-dir train-dir tensorboard-log summaries-dir", "--results-dir", "--output"),
        **_means("load continue restore resume-from restart trained-agent", "--resume", "--checkpoint"),
        **_means("overwrite", "--force"),
        **_means("load-from pretrained init-from", "--initialize-from"),
        **_means("host port ip server url", "--learner", "--control", "--address"),
        **_means("cert tls ssl ca", "--certs", "--tls-ca"),
        **_means("token", "--token-file", "--certs"),
        **_means("track wandb use-wandb mlflow", "rollcast.stats_writers"),
        **_means("random-seed", "--seed"),
        **_means("verbose log-level", "--log-level", "--log-format"),
    }
)  # fmt: skip
"""What words of ML-Agents, Gymnasium, Stable-Baselines3, CleanRL, RLlib, Sample Factory and gdrl mean: flags, or settings of a run.

The first that a command has counts; settings can be named in any command.
"""


class StrictParser(argparse.ArgumentParser):
    """A parser that refuses unknown arguments itself; argparse would report them with the help of the top parser."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parses a command line; unknown words are an error, which comes before that of missing ones."""
        members: list[Any] = [*self._actions, *self._mutually_exclusive_groups]
        required = [each for each in members if each.required]
        for each in required:
            each.required = False
        try:
            words = super().parse_known_args(args, None)[1] if required else []
        finally:
            for each in required:
                each.required = True
        if words:
            self.error(self._unrecognized(words))
        parsed, words = super().parse_known_args(args, namespace)
        if words:
            self.error(self._unrecognized(words))
        return parsed, words

    def _unrecognized(self, words: list[str]) -> str:
        flags = [flag for action in self._actions for flag in action.option_strings]
        said = f"unrecognized arguments: {' '.join(words)}"
        for word in words:
            flag = word.partition("=")[0]
            if not flag.startswith("--"):
                continue
            if meant := _meant(flag, flags):
                return f"{said}; {meant}"
            if near := difflib.get_close_matches(flag, flags, n=1):
                return f"{said}; did you mean {near[0]}?"
        return said


def _meant(flag: str, flags: list[str]) -> str:
    """Returns what a word of another program means for a command with these flags; empty if unknown, or nothing here."""
    for meaning in MEANT.get(flag.removeprefix("--").replace("_", "-"), ()):
        if meaning in flags:
            return f"did you mean {meaning}?"
        if not meaning.startswith("--"):
            if "--set" in flags:
                return f"did you mean --set {meaning}=VALUE?"
            return f"{meaning} is a setting of the learner's run: rollcast serve --set {meaning}=VALUE"
    return ""


def subparsers_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Returns the parsers of a parser's commands, by name."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            return dict(action.choices)
    return {}


def walk(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yields a parser and those of all its commands."""
    yield parser
    for command in subparsers_of(parser).values():
        yield from walk(command)


def add_old_spelling(parser: argparse.ArgumentParser, old: str, new: str) -> None:
    """Lets scripts use the old spelling of a flag, which the help does not show.

    Args:
        parser: Parser that has the flag.
        old: The spelling.
        new: The flag.
    """
    parser._option_string_actions[old] = parser._option_string_actions[new]  # noqa: SLF001 - argparse shows all others


def add_wrappers(parser: argparse._ActionsContainer) -> None:
    """Adds the flags that wrap environments of Gymnasium."""
    parser.add_argument(
        "--wrap",
        metavar="MODULE:CALLABLE",
        action="append",
        help="callable that takes an environment and returns the wrapped one; if repeated, the first is the innermost",
    )
    parser.add_argument("--frame-stack", metavar="N", help="stack the newest N observations into one (default: 1)")
    parser.add_argument("--frame-skip", metavar="N", help="repeat each action N times (default: 1)")
    parser.add_argument(
        "--max-episode-steps",
        metavar="N",
        help="truncate episodes after N steps (default: the environment's own limit)",
    )
    parser.add_argument("--video", metavar="DIR", help="write episodes of the first environment to this folder as .mp4")
    parser.add_argument(
        "--video-every", metavar="N", help="write every Nth episode, starting with the first (default: 100)"
    )
