"""Flags, and the loading of settings, that the commands on a finished run share."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rollcast.extras import install

from learner.shared.exits import ExitCode, UserError
from learner.shared.results import listing

if TYPE_CHECKING:
    from learner.shared.settings.load import LoadedRun
    from learner.start.evaluate_run import Report


def add_run(parser: argparse.ArgumentParser) -> None:
    """Adds the run, and the folder of all runs."""
    parser.add_argument("which", metavar="RUN", help="folder or id of a run")
    parser.add_argument("--results-dir", metavar="DIR", default="results", help="folder of all runs (default: results)")


def add_actors(parser: argparse.ArgumentParser) -> None:
    """Adds the number of actors to wait for."""
    parser.add_argument(
        "--actors", metavar="N", type=count_of, default=1, help="begin when N actors have joined (default: 1)"
    )


def add_address(parser: argparse.ArgumentParser, default: str) -> None:
    """Adds the address for actors.

    Args:
        parser: Parser of a command.
        default: What holds without the flag.
    """
    parser.add_argument("--address", metavar="HOST:PORT", help=f"address for actors (default: {default})")
    parser.add_argument(
        "--insecure",
        action="store_const",
        const="true",
        help="allow plain text on addresses that other machines can reach",
    )


def run_folder(which: str, results_dir: Path) -> Path:
    """Returns the folder of a run from its path or its id.

    Raises:
        UserError: The run does not exist or has no settings.
    """
    for folder in (Path(which), results_dir / which):
        if (folder / "configuration.yaml").is_file():
            return folder
    raise UserError(
        ExitCode.NOTHING_TO_RESUME,
        f"there is no run {which!r}: neither {Path(which)} nor {results_dir / which} has a configuration.yaml; "
        f"{listing(results_dir)} lists the runs",
    )


def whole(least: int, most: int) -> Callable[[str], int]:
    """Returns a parser of whole numbers within limits, as `type` of an argument."""

    def parse(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least} to {most}")
        return int(text)

    return parse


count_of: Final = whole(1, 10**6)
seed_of: Final = whole(0, 2**31 - 1)


def real(least: float, most: float, of: str = "") -> Callable[[str], float]:
    """Returns a parser of numbers within limits, as `type` of an argument.

    Args:
        least: Smallest number.
        most: Largest number.
        of: What they count, with a space before it, for the error.
    """

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number{of} from {least:g} to {most:g}")
        return number

    return parse


def env_seed(parsed: argparse.Namespace, loaded: LoadedRun) -> int:
    """Returns the seed of the environments: that of the command line, or the run's."""
    seed: int | None = parsed.seed
    return max(0, loaded.options.env_settings.seed) if seed is None else seed


def load_run(
    parsed: argparse.Namespace,
    folder: Path,
    over: Collection[str],
    set_items: Sequence[str] = (),
) -> LoadedRun:
    """Returns the settings of a finished run, without a status page.

    Args:
        parsed: The command line.
        folder: Folder of the run.
        over: Names of flags that replace settings of the run.
        set_items: Further settings, as of ``--set``.

    Raises:
        UserError: The settings cannot be used.
    """
    from learner.shared.settings.load import load_run_options  # noqa: PLC0415 - help needs none of it

    return load_run_options(
        folder / "configuration.yaml",
        cli={name: value for name in over if (value := getattr(parsed, name)) is not None},
        set_items=["rollcast.http=false", *set_items],
        environ=dict(os.environ),
    )


def report_of(loaded: LoadedRun, play: Callable[[], Report], *, as_json: bool) -> int:
    """Plays games with a log, prints the report, and returns the exit code.

    Args:
        loaded: The settings.
        play: Plays.
        as_json: Print JSON in place of the table.
    """
    from learner.shared.observe import logs  # noqa: PLC0415 - help needs none of it

    logs.configure(loaded.options.rollcast.log_format, loaded.options.log_level)
    report = play()
    sys.stdout.write(f"{report.document if as_json else report.table}\n")
    return ExitCode.OK if report.is_complete else ExitCode.EVALUATION_CUT_SHORT


@contextlib.contextmanager
def needing_extra(command: str, extras: str = "learner") -> Iterator[None]:
    """Says how to install what a command needs if the block cannot import a module.

    Args:
        command: Name of the command.
        extras: Extras of the distribution that have it.

    Raises:
        UserError: A module is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise UserError(
            ExitCode.MISSING_EXTRA, f"{command} needs the module {error.name!r}; {install(extras)}"
        ) from None
