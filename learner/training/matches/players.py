"""The players of a tournament: exported models, a random player, and scripts that actors run."""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import structlog
from rollcast.files import read_regular
from rollcast.limits import MAX_POLICY_BYTES, SCRIPT_PATTERN

from learner.shared.exits import ExitCode, UserError
from learner.shared.runfolder.names import safe_name

log = structlog.get_logger(__name__)

MAX_PLAYERS: Final = 64
"""Most players of a tournament: the estimate of the ratings takes the cube of their number."""
RANDOM: Final = "random"
ACTOR: Final = "actor:"
BEST, LAST = "best", "last"
_AT: Final = "@"
_MODEL: Final = ".onnx"


class Kind(enum.Enum):
    """Kind of a player."""

    MODEL = "model"
    RANDOM = "random"
    SCRIPT = "script"


@dataclass(frozen=True, slots=True)
class Player:
    """A player.

    Attributes:
        name: Its name in tables, unique in a tournament.
        identity: What makes it the same player in a later start: the SHA-256 of a model's file, ``random``, or
            ``actor:`` and the name of a script.
        kind: What it is.
        path: File of a model; None for others.
        step: Step in the name of a checkpoint; None for others.
    """

    name: str
    identity: str
    kind: Kind
    path: Path | None = None
    step: int | None = None

    @property
    def script(self) -> str:
        """Name of its script; empty for others."""
        return self.identity.removeprefix(ACTOR) if self.kind is Kind.SCRIPT else ""


def checkpoints(folder: Path, behavior: str) -> dict[int, Path]:
    """Returns the exported models of a run's checkpoints by step, ascending.

    Args:
        folder: Folder of the run.
        behavior: Name of the behavior.
    """
    name = safe_name(behavior)
    pattern = re.compile(rf"{re.escape(name)}-([0-9]{{1,18}}){re.escape(_MODEL)}")
    inside = folder / name
    entries = inside.iterdir() if inside.is_dir() else ()
    found = {int(match[1]): path for path in entries if (match := pattern.fullmatch(path.name)) is not None}
    return dict(sorted(found.items()))


def spread(steps: Sequence[int], most: int) -> list[int]:
    """Returns at most so many of the steps, evenly over their places, with the first and the last."""
    if len(steps) <= most:
        return list(steps)
    if most == 1:
        return [steps[-1]]
    places = [round(place * (len(steps) - 1) / (most - 1)) for place in range(most)]
    return [steps[place] for place in places]


def players_of_run(folder: Path, behavior: str, most: int) -> list[Player]:
    """Returns the checkpoints of a run as players; without checkpoints, its model.

    Args:
        folder: Folder of the run.
        behavior: Name of the behavior.
        most: Most checkpoints.

    Raises:
        UserError: The run has no exported model, or one cannot be read.
    """
    found = checkpoints(folder, behavior)
    chosen = spread(list(found), most)
    if chosen:
        return [_model(f"{_AT}{step}", found[step], step) for step in chosen]
    model = folder / f"{safe_name(behavior)}{_MODEL}"
    if not model.is_file():
        raise UserError(
            ExitCode.BAD_CHECKPOINT,
            f"the run in {folder} has no exported model of {behavior!r}: neither {model} nor a checkpoint "
            f"{safe_name(behavior)}-<step>{_MODEL} in {folder / safe_name(behavior)}",
        )
    return [_model(folder.resolve().name, model)]


def opponent(text: str, behavior: str, results_dir: Path, run: Path) -> Player:
    """Returns the player that a text names: ``random``, ``actor:NAME``, ``RUN@STEP``, or a model's file.

    Args:
        text: The text.
        behavior: Name of the behavior.
        results_dir: Folder of all runs.
        run: Folder of the own run; its checkpoints need no name before the ``@``.

    Raises:
        UserError: It names nothing that can play.
    """
    if text == RANDOM:
        return Player(RANDOM, RANDOM, Kind.RANDOM)
    if text.startswith(ACTOR):
        script = text.removeprefix(ACTOR)
        if SCRIPT_PATTERN.fullmatch(script) is None:
            raise _wrong(text, "the name after actor: is that of the actor's --opponent, module:callable")
        return Player(text, text, Kind.SCRIPT)
    name, at, which = text.rpartition(_AT)
    if at and not text.endswith(_MODEL):
        folder = next((each for each in (Path(name), results_dir / name) if name and each.is_dir()), None)
        if name and folder is None:
            raise _wrong(
                text,
                f"there is no run {name!r}, neither {Path(name)} nor {results_dir / name}",
                ExitCode.NOTHING_TO_RESUME,
            )
        return _checkpoint(text, folder or run, which, behavior)
    path = Path(text)
    if not path.is_file():
        raise _wrong(text, "there is no such file; name random, MODEL.onnx, RUN@STEP or actor:module:callable")
    return _model(path.stem, path)


def distinct(players: Sequence[Player]) -> tuple[Player, ...]:
    """Returns the players of a tournament without repetitions, with names that differ.

    Raises:
        UserError: There are too few or too many.
    """
    known = distinct_names(players)
    if not 2 <= len(known) <= MAX_PLAYERS:
        raise UserError(
            ExitCode.USAGE,
            f"a tournament has 2 to {MAX_PLAYERS} players, and this one has {len(known)} different ones; add players with "
            "--against, or take fewer --checkpoints",
        )
    return known


def distinct_names(players: Sequence[Player]) -> tuple[Player, ...]:
    """Returns the players without repetitions, with names that differ; logs which are the same."""
    known: dict[str, Player] = {}
    names: set[str] = set()
    repeated: list[str] = []
    for each in players:
        if each.identity in known:
            repeated.append(f"{each.name} = {known[each.identity].name}")
            continue
        name, number = each.name, 2
        while name in names:
            name, number = f"{each.name} ({number})", number + 1
        names.add(name)
        known[each.identity] = replace(each, name=name)
    if repeated:
        log.info("same_players", players=repeated, reason="they play once, since their content is the same")
    return tuple(known.values())


def _checkpoint(text: str, folder: Path, which: str, behavior: str) -> Player:
    safe = safe_name(behavior)
    found = checkpoints(folder, behavior)
    if which.isdecimal() and len(which) <= 18:
        path, step = found.get(int(which)), int(which)
    elif which == LAST:
        path, step = folder / f"{safe}{_MODEL}", None
    elif which == BEST:
        path, step = folder / safe / f"{BEST}{_MODEL}", None
    else:
        raise _wrong(text, "after the @ is a step, last or best")
    if path is None or not path.is_file():
        kept = ", ".join(map(str, found)) or "none"
        raise _wrong(text, f"the run in {folder} has no such model of {behavior!r} (checkpoints with a model: {kept})")
    return _model(text, path, step)


def _model(name: str, path: Path, step: int | None = None) -> Player:
    try:
        digest = hashlib.sha256(read_regular(path, MAX_POLICY_BYTES)).hexdigest()
    except OSError as error:
        raise UserError(
            ExitCode.BAD_CHECKPOINT, f"the model {path} cannot be read: {error.strerror or error}"
        ) from error
    return Player(name, digest, Kind.MODEL, path, step)


def _wrong(text: str, why: str, code: ExitCode = ExitCode.USAGE) -> UserError:
    return UserError(code, f"player {text!r}: {why}")
