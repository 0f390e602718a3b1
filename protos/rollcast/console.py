"""The entry points: `rollcast`, which has every command, and its aliases for one side each.

Other packages may also be named `learner` or `actor_client`. An entry point checks that it has found Rollcast's own
package before it runs it, and imports nothing that the chosen command does not need.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, NoReturn

from rollcast.extras import install
from rollcast.parsers import subparsers_of

USAGE: Final = 10
"""The exit code of every command if its command line is wrong."""
SHADOWED: Final = 19
"""The exit code of every command if another package hides one of Rollcast's."""
_OWNER: Final = "rollcast"
_MODULES: Final = {"grpcio": "grpc", "protobuf": "google.protobuf"}
"""Modules with other names than their packages."""
_SHELLS: Final = ("bash", "zsh", "tcsh", "fish")
_SHOWN_PACKAGES: Final = (
    *("grpcio", "protobuf", "numpy", "torch", "onnx", "onnxruntime"),
    *("gymnasium", "pettingzoo", "open-spiel"),
)


class _Program(NamedTuple):
    """A module with the `main` of some commands.

    Attributes:
        module: The module.
        packages: Packages that its commands need, the module's own first.
        extras: Extras to install if the package is missing.
        missing: The exit code if a package is missing.
        parser: The module with `build_parser`.
        alias: The alias that runs it.
    """

    module: str
    packages: tuple[str, ...]
    extras: str
    missing: int
    parser: str
    alias: str


class _Command(NamedTuple):
    """A command of `rollcast`.

    Attributes:
        program: The program that has it.
        group: Its group in `rollcast --help`.
        help: Its purpose in one line.
    """

    program: _Program
    group: str
    help: str


_LEARNER: Final = _Program("learner.cli.cli", ("learner",), "learner", 14, "learner.cli.cli", "rollcast-learner")
_TRAIN: Final = _LEARNER._replace(packages=("learner", "actor_client"), extras="learner,actor,gym")
_ACTOR: Final = _Program(
    "actor_client.__main__", ("actor_client",), "actor,gym", 12, "actor_client.cli", "rollcast-actor"
)
_UNITY: Final = _Program(
    "actor_client.unity.dropin.cli",
    ("actor_client", "learner"),
    "learner,actor,unity",
    14,
    "actor_client.unity.dropin.flags",
    "rollcast-unity",
)
_RUN: Final = "train"
_WATCH: Final = "watch and steer a learner that runs"
_AFTER: Final = "runs and policies"
_NETWORK: Final = "networks"
COMMANDS: Final[Mapping[str, _Command]] = {
    "train": _Command(_TRAIN, _RUN, "train on a Gymnasium environment: learner and actors in one command"),
    "sweep": _Command(_LEARNER, _RUN, "search settings by many runs, and end the worse ones early"),
    "unity": _Command(_UNITY, _RUN, "train Unity players: learner, and players or a port for the editor"),
    "init": _Command(_LEARNER, _RUN, "write a commented run file to start from"),
    "check-config": _Command(_LEARNER, _RUN, "show the settings a run file resolves to"),
    "serve": _Command(_LEARNER, _RUN, "a learner alone: listen for actors, learn, broadcast policies"),
    "act": _Command(_ACTOR, _RUN, "an actor alone, on any machine: gym, unity, pettingzoo, boards, ..."),
    "trainer": _Command(_LEARNER, _RUN, "train for a learner on another machine"),
    "status": _Command(_LEARNER, _WATCH, "show the state, books and actors of a running learner"),
    "page": _Command(_LEARNER, _WATCH, "print the link to the status page, with the operator's token"),
    "pause": _Command(_LEARNER, _WATCH, "pause training and hold the actors"),
    "resume": _Command(_LEARNER, _WATCH, "end a pause"),
    "save": _Command(_LEARNER, _WATCH, "save a checkpoint now"),
    "set": _Command(_LEARNER, _WATCH, "change settings while a run trains, or undo the last change"),
    "drain": _Command(_LEARNER, _WATCH, "save and end a run; its actors exit"),
    "release": _Command(_LEARNER, _WATCH, "let an actor that is shut out for faults of form in again"),
    "healthcheck": _Command(_LEARNER, _WATCH, "exit with 0 if the learner accepts actors, or waits for its trainers"),
    "runs": _Command(_LEARNER, _AFTER, "list runs with their state, steps and best return"),
    "compare": _Command(_LEARNER, _AFTER, "compare groups of runs over their seeds, with intervals and curves"),
    "evaluate": _Command(_LEARNER, _AFTER, "measure a run's policy over whole episodes, without training"),
    "tournament": _Command(_LEARNER, _AFTER, "play checkpoints and models against each other, with ratings"),
    "play": _Command(_ACTOR, _AFTER, "play a board game against an exported model, or let it be an engine"),
    "backup": _Command(_LEARNER, _AFTER, "copy a run, while it trains too"),
    "push": _Command(_LEARNER, _AFTER, "share a run on the Hugging Face hub, with a card that repeats it"),
    "pull": _Command(_LEARNER, _AFTER, "fetch a run that push shared"),
    "certs": _Command(_LEARNER, _NETWORK, "make certificates and tokens, so that actors can join over a network"),
    "join": _Command(_ACTOR, _NETWORK, "write the folder for --certs from the join code of a learner"),
}
"""Every command of `rollcast`, in the order of its help."""
_WHOLE_PROGRAMS: Final = frozenset({"act", "unity"})
"""Commands that are the program of an alias under another name; the others are commands of a program."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `rollcast`, and returns its exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given and (command := COMMANDS.get(given[0])) is not None:
        called = f"{_OWNER} {given[0]}"
        if given[0] in _WHOLE_PROGRAMS:
            return _run(command.program, given[1:], called, called)
        return _run(command.program, given, _OWNER, called)
    try:
        parser = _parser()
        parsed = parser.parse_args(given)
        if parsed.version:
            print_versions()
            return 0
        if parsed.command:
            near = difflib.get_close_matches(parsed.command[0], COMMANDS, n=1)
            parser.error(f"there is no command {parsed.command[0]!r}{f'; did you mean {near[0]}?' if near else ''}")
        parser.print_help()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output has gone, as in `... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for output that is still written at exit
        return 0
    return USAGE


def learner() -> int:
    """Runs `rollcast-learner`."""
    return _run(_LEARNER, sys.argv[1:], _LEARNER.alias, _LEARNER.alias)


def actor() -> int:
    """Runs `rollcast-actor`."""
    return _run(_ACTOR, sys.argv[1:], _ACTOR.alias, _ACTOR.alias)


def unity() -> int:
    """Runs `rollcast-unity`, which starts processes of both packages."""
    return _run(_UNITY, sys.argv[1:], _UNITY.alias, _UNITY.alias)


class _Parser(argparse.ArgumentParser):
    """The parser of what precedes a command."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"error: {message}; see {_OWNER} --help\n")


def _parser() -> argparse.ArgumentParser:
    """Returns the parser of a command line without a command."""
    parser = _Parser(
        prog=_OWNER,
        usage=f"{_OWNER} [--help] [--version] COMMAND ...",
        description="Trains policies on simulators that run on this machine or on others.",
        epilog=f"{_listed()}\n\n{_OWNER} COMMAND --help describes a command, its flags and its exit codes.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print versions and exit")
    add_completion(parser)
    parser.add_argument("command", nargs="*", help=argparse.SUPPRESS)
    return parser


def _listed() -> str:
    """Returns the commands by group, a line each."""
    lines: list[str] = []
    group = ""
    for name, command in COMMANDS.items():
        if command.group != group:
            group = command.group
            lines.append(f"{group}:")
        lines.append(f"  {name:<13} {command.help}")
    return "\n".join(lines)


def print_versions(packages: Sequence[str] = _SHOWN_PACKAGES) -> None:
    """Prints the versions of Rollcast, its protocol, Python, and packages."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - only `--version` needs it

    from rollcast.limits import PROTOCOL_REVISION  # noqa: PLC0415 - as above

    lines = [f"rollcast {version(_OWNER)}, protocol {PROTOCOL_REVISION}, Python {sys.version.split()[0]}"]
    for package in packages:
        try:
            lines.append(f"  {package} {version(package)}")
        except PackageNotFoundError:
            lines.append(f"  {package} (not installed)")
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def add_completion(parser: argparse.ArgumentParser) -> None:
    """Adds `--print-completion SHELL` to a command."""
    parser.add_argument(
        "--print-completion",
        choices=_SHELLS,
        action=_PrintCompletion,
        dest=argparse.SUPPRESS,
        default=argparse.SUPPRESS,
        help="print a shell's completion script",
    )


class _PrintCompletion(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        del namespace, option_string
        from rollcast.completion import completion_script  # noqa: PLC0415 - as slow to import as all of `--help`

        if parser.prog == _OWNER:
            parser = whole_parser()
        sys.stdout.write(completion_script(parser, str(values)))
        parser.exit()


def whole_parser() -> argparse.ArgumentParser:
    """Returns a parser with every command whose package is installed."""
    whole = argparse.ArgumentParser(prog=_OWNER, allow_abbrev=False)
    whole.add_argument("--version", action="store_true", help="print versions and exit")
    add_completion(whole)
    commands = whole.add_subparsers(dest="command", metavar="COMMAND")
    for name, command in COMMANDS.items():
        if importlib.util.find_spec(command.program.packages[0]) is None:
            continue
        build = importlib.import_module(command.program.parser).build_parser
        found = build(f"{_OWNER} {name}") if name in _WHOLE_PROGRAMS else subparsers_of(build(_OWNER))[name]
        commands.add_parser(name, help=command.help)
        commands.choices[name] = found
    return whole


def _run(program: _Program, arguments: Sequence[str], prog: str, called: str) -> int:
    """Runs a command line, after a check that its packages are Rollcast's.

    Args:
        program: The program.
        arguments: The command line.
        prog: The name of the program in its help and its errors.
        called: The command as the user called it.
    """
    for package in program.packages:
        if importlib.util.find_spec(package) is None:
            _say(f"{called} needs the package {package!r}, which is not installed here: {install(program.extras)}")
            return program.missing
        if (stranger := _stranger(package)) is not None:
            _say(
                f"the package {package!r} is not Rollcast's, but {stranger}: uninstall it and reinstall Rollcast, "
                "remove it from PYTHONPATH, or install Rollcast in a separate virtual environment",
            )
            return SHADOWED
    code: int = importlib.import_module(program.module).main(arguments, prog)
    return code


def _say(text: str) -> None:
    """Prints the one line of a command that cannot start."""
    with suppress(OSError):
        print(f"error: {text}", file=sys.stderr)  # noqa: T201


def report_old_package() -> bool:
    """Prints which installed package has a version that Rollcast cannot use, after an error; returns whether there is one.

    Another folder may come first, as one in PYTHONPATH, of a notebook or of a cluster's module.
    """
    from importlib import metadata  # noqa: PLC0415 - only after an error

    for requirement in metadata.requires(_OWNER) or ():
        found = re.match(r"[\w-]+", requirement)
        module = (
            sys.modules.get(_MODULES.get(found[0], found[0])) if found is not None and ";" not in requirement else None
        )
        version = _numbers(str(getattr(module, "__version__", "")))
        least, below = (_numbers(_after(sign, requirement)) for sign in (">=", "<"))
        if found is not None and module is not None and version and (version < least or (below and version >= below)):
            _say(
                f"Rollcast needs {requirement.replace(' ', '')}, and found version {getattr(module, '__version__', '')} at "
                f"{module.__file__}: run pip install '{requirement.replace(' ', '')}', or remove that folder from PYTHONPATH",
            )
            return True
    return False


def _after(sign: str, requirement: str) -> str:
    found = re.search(rf"{sign}([\d.]+)", requirement)
    return found[1] if found is not None else ""


def _numbers(version: str) -> list[int]:
    """Returns the numbers at the beginning of a version."""
    found = re.match(r"\d+(\.\d+)*", version)
    return [int(number) for number in found[0].split(".")] if found is not None else []


def _stranger(package: str) -> str | None:
    """Returns the location of a package with this name if it is not Rollcast's, otherwise None."""
    try:
        found = importlib.import_module(package)
    except Exception as error:  # noqa: BLE001 - a stranger's code may raise anything
        return f"another one, which cannot be imported ({type(error).__name__})"
    if getattr(found, "DISTRIBUTION", None) == _OWNER:
        return None
    return f"the one at {found.__file__ or next(iter(found.__path__))}"
