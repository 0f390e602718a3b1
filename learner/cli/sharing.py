"""Defines the commands `push` and `pull`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from learner.cli.run_flags import add_run, count_of, needing_extra, run_folder
from learner.shared.exits import ExitCode

_PUSH = """\
Shares the models, the settings, the summary and the curves of a run in a repository of the Hugging Face hub, with a card: the curve,
the result with its interval, and the commands that repeat it. Log in before with `hf auth login`, or set HF_TOKEN; HF_ENDPOINT names
another hub. Paths, addresses, tokens, logs and events stay here.

  rollcast push cartpole USER/cartpole --env CartPole-v1
  rollcast push cartpole USER/cartpole --checkpoint best --private
"""
_PULL = """\
Fetches a run that `rollcast push` shared: to act with from Python (load_policy), and with a checkpoint to evaluate or to continue from
(--initialize-from). Settings that name files, addresses or code are left out of its configuration.yaml, and named.

  rollcast pull USER/cartpole
"""


def add_push(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `push`."""
    parser.formatter_class, parser.description = argparse.RawDescriptionHelpFormatter, _PUSH
    add_run(parser)
    parser.add_argument("repository", metavar="USER/NAME", help="repository of the hub; made if it is missing")
    parser.add_argument(
        "--env", metavar="ID", help="play this environment for the card (default: what the run measured)"
    )
    parser.add_argument("--episodes", metavar="N", type=count_of, default=100, help="episodes to play (default: 100)")
    parser.add_argument(
        "--checkpoint",
        metavar="WHICH",
        choices=("last", "best"),
        help="share a checkpoint too, to train on from: last or best",
    )
    parser.add_argument("--private", action="store_true", help="a new repository is private")
    parser.set_defaults(run=_push)


def _push(parsed: argparse.Namespace) -> int:
    with needing_extra("push"):
        from learner.start.share import Pushed, push  # noqa: PLC0415 - not for help
    folder = run_folder(parsed.which, Path(parsed.results_dir))
    request = Pushed(folder, parsed.repository, parsed.checkpoint, parsed.env, parsed.episodes, parsed.private)
    with needing_extra("push", "hub"):
        sys.stdout.write(f"{push(request)}\n")
    return ExitCode.OK


def add_pull(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `pull`."""
    parser.formatter_class, parser.description = argparse.RawDescriptionHelpFormatter, _PULL
    parser.add_argument("repository", metavar="USER/NAME", help="repository of the hub")
    parser.add_argument("folder", nargs="?", type=Path, metavar="FOLDER", help="new folder (default: results/NAME)")
    parser.set_defaults(run=_pull)


def _pull(parsed: argparse.Namespace) -> int:
    with needing_extra("pull"):
        from learner.start.share import pull  # noqa: PLC0415 - not for help
    folder = parsed.folder or Path("results", parsed.repository.rpartition("/")[2])
    with needing_extra("pull", "hub"):
        names, left_out = pull(parsed.repository, folder)
    sys.stdout.write("".join(f"{folder / name}\n" for name in names))
    if left_out:
        sys.stderr.write(
            f"left out of {folder / 'configuration.yaml'}, as they name files, addresses or code: {', '.join(left_out)}\n"
        )
    return ExitCode.OK
