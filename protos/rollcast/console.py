"""The entry points of the commands, and the options that their command lines share.

Other packages may also be named `learner` or `actor_client`. An entry point checks that it has found Rollcast's own
package before it runs it.
"""

import argparse
import difflib
import importlib
import importlib.util
import re
import sys
from collections.abc import Sequence
from typing import Any, Final

SHADOWED: Final = 19
"""The exit code of every command if another package hides one of Rollcast's."""
_OWNER: Final = "rollcast"
_MODULES: Final = {"grpcio": "grpc", "protobuf": "google.protobuf"}
"""Modules with other names than their packages."""
_SHELLS: Final = ("bash", "zsh", "tcsh")


def learner() -> int:
    """Runs `rollcast-learner`."""
    return _run("learner.cli", ("learner",))


def actor() -> int:
    """Runs `rollcast-actor`."""
    return _run("actor_client.__main__", ("actor_client",))


def unity() -> int:
    """Runs `rollcast-unity`, which starts processes of both packages."""
    return _run("actor_client.unity.dropin.cli", ("actor_client", "learner"))


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
        import shtab  # noqa: PLC0415 - as slow to import as all of `--help`

        sys.stdout.write(shtab.complete(parser, str(values)) + "\n")
        parser.exit()


class StrictParser(argparse.ArgumentParser):
    """A parser that refuses unknown arguments itself; argparse would report them with the help of the top parser."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parses a command line; unknown words are an error."""
        parsed, words = super().parse_known_args(args, namespace)
        if words:
            self.error(self._unrecognized(words))
        return parsed, words

    def _unrecognized(self, words: list[str]) -> str:
        flags = [flag for action in self._actions for flag in action.option_strings]
        said = f"unrecognized arguments: {' '.join(words)}"
        for word in words:
            if word.startswith("--") and (near := difflib.get_close_matches(word.partition("=")[0], flags, n=1)):
                return f"{said}; did you mean {near[0]}?"
        return said


def _run(module: str, packages: Sequence[str]) -> int:
    for package in packages:
        # The command reports a package that is not installed, with how to install it.
        if importlib.util.find_spec(package) is not None and (stranger := _stranger(package)) is not None:
            print(  # noqa: T201 - the one line of a command that cannot start
                f"error: the package {package!r} is not Rollcast's, but {stranger}: uninstall it and reinstall Rollcast, "
                "remove it from PYTHONPATH, or install Rollcast in a separate virtual environment",
                file=sys.stderr,
            )
            return SHADOWED
    code: int = importlib.import_module(module).main()
    return code


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
            print(  # noqa: T201 - see `_run`
                f"error: Rollcast needs {requirement.replace(' ', '')}, and found version {getattr(module, '__version__', '')} at "
                f"{module.__file__}: run pip install '{requirement.replace(' ', '')}', or remove that folder from PYTHONPATH",
                file=sys.stderr,
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
