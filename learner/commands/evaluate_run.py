"""``rollcast-learner evaluate``: so many episodes of a run's policy, by whatever actors connect."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog
from rollcast.enums import AssignmentRole
from rollcast.v1 import policy_pb2

from learner.commands.finished_run import SavedPolicies
from learner.common.exits import ExitCode, UserError
from learner.evaluation.during_training import OrderDesk
from learner.evaluation.examination import Candidate, Examination
from learner.evaluation.players import players
from learner.link.evaluation import EvaluationResult, Played
from learner.observe import logs
from learner.observe.address import BoundAddresses
from learner.run.acting import Acting, Casting
from learner.service.server import require_free
from learner.settings import LoadedRun, RunOptions
from learner.trainers.base import Trainer

log = structlog.get_logger(__name__)

SETTLE_SECONDS = 1.0
"""Actors are shared out once nobody has come for so long: those of one script do not start at the same moment."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for.

    Attributes:
        folder: of the run.
        loaded: its settings, with the command line's over them.
        checkpoint: ``last``, ``best``, a step, or a file.
        episodes: of each behavior.
        actors: how many are waited for.
        behavior: the only one to be measured; None measures all.
        is_deterministic: the mode of the distribution acts; None leaves it to the run file.
        seed: of the environments.
    """

    folder: Path
    loaded: LoadedRun
    checkpoint: str
    episodes: int
    actors: int
    behavior: str | None
    is_deterministic: bool | None
    seed: int


class Sitting:
    """Waits for actors, shares the episodes out, and ends when all were played; a `Director` and `EvaluationSink`.

    Args:
        wish: what is asked for.
        acting: where it happens.
    """

    def __init__(self, wish: Wish, acting: Acting) -> None:
        self._wish = wish
        self._acting = acting
        self._desk: OrderDesk | None = None
        self._running: Examination | None = None
        self._present: Sequence[Candidate] = ()
        self._changed_at = time.monotonic()
        self._ordered: set[str] = set()
        self._steps: dict[str, int] = {}
        self._told_of = (0, 0)  # actors that are connected, and those of them that can play

    def attach(self, desk: OrderDesk) -> None:
        """Names what brings actors their orders."""
        self._desk = desk

    def add(self, behavior: str, team: int, assignment_id: int, played: Played) -> None:
        """Takes a finished episode."""
        if self._running is not None:
            self._running.add((behavior, team), assignment_id, played)

    def after_turn(self, trainers: Mapping[str, Trainer]) -> None:
        """Begins once all are here, and ends once all was played."""
        if self._desk is None:
            return
        wanted = [name for name in trainers if self._wish.behavior in {None, name}]
        self._steps = {name: trainers[name].get_step for name in wanted}
        present = players(self._acting.sessions, wanted)
        if present != self._present:
            self._present, self._changed_at = present, time.monotonic()
        if self._running is None:
            if time.monotonic() - self._changed_at >= SETTLE_SECONDS:
                if len(present) >= self._wish.actors:
                    self._begin(wanted)
                else:
                    self._tell_who_is_missing(wanted, len(present))
            return
        live = {candidate.session_id for candidate in present}
        for session_id in self._ordered - live:
            self._running.lose(session_id)
        self._ordered &= live
        self._deal(self._running, self._desk)
        if self._running.is_done:
            self._acting.stopping.ask_anywhere("evaluated", True)

    def results(self) -> list[EvaluationResult]:
        """Returns what was played, by behavior; after the end."""
        running = self._running
        if running is None:
            return []
        return [
            EvaluationResult.of(
                name,
                played,
                step=self._steps.get(name, 0),
                version=version,
                is_deterministic=running.is_deterministic,
                is_complete=running.is_done,
            )
            for name, (_, version) in running.versions.items()
            if (played := running.played(name))
        ]

    def _begin(self, wanted: Sequence[str]) -> None:
        found = {name: policy for name in wanted if (policy := self._acting.store.latest(name)) is not None}
        if not found:
            return
        versions = {name: (each.description.generation, each.description.version) for name, each in found.items()}
        # What acts is published as it shall act; the order only says it.
        is_deterministic = all(each.description.deterministic for each in found.values())
        self._running = Examination(self._wish.episodes, versions, is_deterministic=is_deterministic)
        log.info("evaluation_begins", actors=len(self._present), episodes=self._wish.episodes, steps=self._steps)

    def _tell_who_is_missing(self, wanted: Sequence[str], players_present: int) -> None:
        """Says, each time that it changes, that actors have come and what they cannot begin without."""
        connected = sum(session.is_connected for session in self._acting.sessions.live())
        if (connected, players_present) == self._told_of:
            return
        self._told_of = (connected, players_present)
        if connected:
            log.info(
                "waiting_for_more_actors",
                connected=connected,
                that_can_play=players_present,
                needed=self._wish.actors,
                behaviors=list(wanted),
            )

    def _deal(self, running: Examination, desk: OrderDesk) -> None:
        for order in running.deal(self._present):
            self._ordered.add(order.session_id)
            desk.order(order)


def evaluate(wish: Wish, *, json_file: str | None) -> int:
    """Evaluates, prints what it came to, and returns the exit code.

    Args:
        wish: what is asked for.
        json_file: where the results go as JSON; ``-`` is standard output, in place of the table.

    Raises:
        UserError: the run, its checkpoint, the file or an address cannot be used.
    """
    if json_file not in {None, "-"}:
        _check_target(json_file)
    service = wish.loaded.options.rollcast
    logs.configure(service.log_format, "info")
    require_free(service.address, "--address")
    results, is_complete, named = asyncio.run(_evaluate(wish))
    document = {
        "run": str(wish.folder),
        "checkpoint": wish.checkpoint,
        "seed": wish.seed,
        "episodes_asked": wish.episodes,
        "is_complete": is_complete,
        "behaviors": [result.document() for result in results],
    }
    text = json.dumps(document, indent=2)
    if json_file == "-":
        sys.stdout.write(f"{text}\n")
    else:
        sys.stdout.write(f"{table(results, named)}\n")
        if json_file is not None:
            _write(Path(json_file), text)
    return ExitCode.OK if is_complete else ExitCode.EVALUATION_CUT_SHORT


def table(results: Sequence[EvaluationResult], named: Mapping[str, int] | None = None) -> str:
    """Returns results for people; one line each for returns and lengths.

    Args:
        results: of each behavior.
        named: the step that the checkpoint of a behavior has by its name, where one was chosen.
    """
    lines = []
    for result in results:
        how = "deterministic" if result.is_deterministic else "stochastic"
        policy = f"step {result.step} (version {result.version}{_more(result, (named or {}).get(result.behavior))})"
        lines.append(f"{result.behavior}: {result.episodes} episodes at {policy}, {how}")
        for name, spread in (("return", result.returns), ("length", result.lengths)):
            lines.append(
                f"  {name:6}  mean {spread.mean:.6g}  std {spread.std:.6g}  min {spread.min:.6g}  max {spread.max:.6g}"
            )
    return "\n".join(lines) or "no episode was played"


def _more(result: EvaluationResult, named_step: int | None) -> str:
    """Says why a checkpoint is called by a larger step than its policy has."""
    if named_step is None or named_step <= result.step:
        return ""
    return f"; its checkpoint is named {named_step}: {named_step - result.step} steps were collected and not trained"


async def _evaluate(wish: Wish) -> tuple[list[EvaluationResult], bool, Mapping[str, int]]:
    sittings: list[Sitting] = []

    def direct(acting: Acting) -> Sitting:
        sittings.append(Sitting(wish, acting))
        return sittings[0]

    states = SavedPolicies(wish.folder, wish.checkpoint, wish.behavior)
    options = _acting_options(wish.loaded.options, states.names)
    casting = Casting(
        options=options,
        run_id=wish.folder.resolve().name,
        generation=1,
        seed=wish.seed,
        load=states.load,
        duty=policy_pb2.BehaviorAssignment(role=policy_pb2.AssignmentRole.ValueType(AssignmentRole.IDLE)),
        is_deterministic=wish.is_deterministic,
        behaviors_table=states.behaviors_table,
    )
    stop = await Acting(casting, direct).run(lambda bound: _announce(wish, bound))
    if stop.error is not None:
        raise stop.error
    return sittings[0].results(), stop.reason == "evaluated", states.named_steps


def _acting_options(options: RunOptions, names: Sequence[str]) -> RunOptions:
    """Returns a run file with the behaviors of the run alone: actors that have others have come to the wrong run.

    Raises:
        UserError: the run file has one of them no more.
    """
    changes: dict[str, object] = {"rollcast": options.rollcast.model_copy(update={"lockstep": None})}
    if names:
        changes |= {"behaviors": {name: options.settings_for(name) for name in names}, "default_settings": None}
    return options.model_copy(update=changes)


def _announce(wish: Wish, bound: BoundAddresses) -> None:
    missing = f"{wish.actors} actors" if wish.actors > 1 else "an actor"
    log.info(
        "waiting_for_actors",
        address=bound.address,
        missing=missing,
        start=f"rollcast-actor gym --env ID --learner {bound.address}   (or: rollcast-actor unity --env BUILD ...)",
    )


def _check_target(json_file: str) -> None:
    """Looks whether a file can be written, before hours of episodes are played for it.

    Raises:
        UserError: it cannot.
    """
    path = Path(json_file)
    if not json_file or path.is_dir():
        reason = "is a folder" if json_file else "names no file"
    elif not path.parent.is_dir():
        reason = f"has no folder to be in: make {path.parent}"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        reason = "may not be written"
    else:
        return
    raise UserError(ExitCode.USAGE, f"--json {json_file!r} {reason}; name a file that can be written, or - to print it")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise UserError(
            ExitCode.NOT_SAVED, f"{path} cannot be written: {error.strerror}; the results are above", ()
        ) from None
