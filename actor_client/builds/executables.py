"""Finds the executable of a build of a game engine, and says why a path is none."""

import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from actor_client.exits import ActorError, ExitCode

_SUFFIXES: Final = (".app", ".exe", ".x86_64", ".x86")
_RUN_FILES: Final = (".yaml", ".yml")
_SHOWN: Final = 3
_HEAD_BYTES: Final = 20
_ELF: Final = b"\x7fELF"
_PROGRAMS: Final = (
    (b"MZ", "Windows"),
    *((magic, "macOS") for magic in (b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\xce\xfa\xed\xfe")),
)
"""First bytes of programs for other systems than Linux."""
_ELF_MACHINES: Final = {3: ("i386", "i686", "x86_64"), 62: ("x86_64",), 183: ("aarch64",)}
"""Processors, as `platform.machine` names them, that run the programs of a machine number of ELF."""
_FORMATS: Final = Path("/proc/sys/fs/binfmt_misc")
"""Further formats that Linux was told how to start, as with Wine or QEMU."""
_CONTROLS: Final = frozenset({"register", "status"})
"""Files of that folder that are no formats."""


class Engine(NamedTuple):
    """What messages say about the builds of a game engine.

    Attributes:
        name: The engine.
        makes: The engine and what it did to make a build, as in "name the executable that Unity built".
        menu: Where the editor makes a build.
        project: A file or folder that only a project has.
        run_file: Advice for a run file in place of a build, worded to follow "is a run file, which ", with `{env}`.
    """

    name: str
    makes: str
    menu: str
    project: str
    run_file: str


def find_build(env: str, engine: Engine, system: str = sys.platform) -> Path:
    """Returns the absolute path of a build's executable.

    Args:
        env: The user's path: the executable, the application's folder, or either without its suffix.
        engine: The engine of the build.
        system: The operating system, as in `sys.platform`.

    Raises:
        ActorError: No executable is found, or it may not be run (UNKNOWN_ENVIRONMENT).
    """
    stem = env.strip()
    if stem.endswith(_RUN_FILES):
        raise _unknown(f"--env {env} is a run file, which {engine.run_file.format(env=env)}")
    for suffix in _SUFFIXES:
        stem = stem.replace(suffix, "") if stem.endswith(suffix) else stem
    try:
        for path in _candidates(Path(stem).absolute(), system):
            if path.is_file():
                return _runnable(path, system)
        if Path(env).is_dir():
            raise _unknown(_about_folder(env, engine))
    except (OSError, ValueError) as error:  # not a possible file name
        raise _unknown(f"--env {env!r} cannot be looked up ({error}); name the build's executable") from None
    raise _unknown(f"--env {env}: there is no such build{_beside(Path(stem))}; name the executable that {engine.makes}")


def _candidates(stem: Path, system: str) -> Iterator[Path]:
    """Yields the paths where a build may be."""
    name = stem.name
    if system == "darwin":
        folder = stem.with_name(f"{name}.app") / "Contents" / "MacOS"
        yield folder / name
        yield from sorted(folder.glob("*"))
    elif system == "win32":
        yield stem.with_name(f"{name}.exe")
        yield from (path for path in sorted(stem.glob("*.exe")) if not path.name.startswith("UnityCrashHandler"))
    else:
        yield stem.with_name(f"{name}.x86_64")
        yield stem.with_name(f"{name}.x86")
        yield stem


def _runnable(path: Path, system: str) -> Path:
    """Returns the path of an executable.

    Raises:
        ActorError: This user may not run it, or this machine cannot.
    """
    if not os.access(path, os.X_OK):
        raise _unknown(
            f"--env {path} cannot be executed by this user: allow it with chmod +x, on a disk that is not mounted noexec"
        )
    if system == "linux" and (what := _foreign(path)):
        raise _unknown(f"--env {path} {what}: build the player for Linux and this processor ({platform.machine()})")
    return path


def _foreign(path: Path) -> str:
    """Returns why Linux cannot start a file, in words that follow its name; empty if it can, or if that is not certain."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        entries = [entry for entry in _FORMATS.glob("*") if entry.name not in _CONTROLS]
        further = [entry.read_text(errors="replace") for entry in entries]
    except OSError:  # a file may be executable and not readable
        return ""
    if head.startswith(b"#!") or any(f"magic {head[:2].hex()}" in text or "extension" in text for text in further):
        return ""
    if head.startswith(_ELF):
        machines = _ELF_MACHINES.get(int.from_bytes(head[18:20], "little"), ())
        return "is a program for another processor" if machines and platform.machine() not in machines else ""
    for magic, name in _PROGRAMS:
        if head.startswith(magic):
            return f"is a program for {name}"
    return "is neither a program nor a script that begins with #!"


def _about_folder(env: str, engine: Engine) -> str:
    """Returns the message for a folder in place of an executable."""
    folder = Path(env)
    if (folder / engine.project).exists():
        return (
            f"--env {env} is a {engine.name} project, and --env names the executable that {engine.makes} from it "
            f"({engine.menu}); to train in the editor, leave --env out and press Play"
        )
    if (folder / "Contents" / "MacOS").is_dir():
        return f"--env {env} is a build for macOS: build the player for this system"
    return f"--env {env} is a folder; name the player in it{_found(folder)}"


def _found(folder: Path) -> str:
    """Returns the names of the players in a folder as text."""
    names = sorted(path.name for suffix in _SUFFIXES for path in folder.glob(f"*{suffix}"))
    return f", as in {', '.join(str(folder / name) for name in names[:_SHOWN])}" if names else ""


def _beside(stem: Path) -> str:
    """Returns a text that names what is missing: the folder, or the build in it."""
    folder = stem.absolute().parent
    return f" in {folder}" if folder.is_dir() else f", and no folder {folder}"


def _unknown(message: str) -> ActorError:
    return ActorError(ExitCode.UNKNOWN_ENVIRONMENT, message)
