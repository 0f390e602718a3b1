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
from learner.evaluation.round import Candidate, EvaluationRound, players
from learner.link.commands import StartEvaluation
from learner.link.evaluation import EvaluationResult, Played
from learner.observe import logs
from learner.observe.address import BoundAddresses
from learner.run.policy_server import PolicyServer, ServeConfig
from learner.service.server import require_free
from learner.settings.load import LoadedRun
from learner.settings.options import RunOptions
from learner.trainers.base import Trainer

log = structlog.get_logger(__name__)

SETTLE_SECONDS = 1.0
"""Actors are shared out once nobody has come for so long: those of one script do not start at the same moment."""


@dataclass(frozen=True, slots=True)
class EvaluationRequest:
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


class OfflineEvaluation:
    """Waits for actors, shares the episodes out, and ends when all were played; an `EpisodeScheduler` and `EvaluationSink`.

    Args:
        request: what is asked for.
        policy_server: serves the policies.
    """

    def __init__(self, request: EvaluationRequest, policy_server: PolicyServer) -> None:
        self._request = request
        self._policy_server = policy_server
        self._running: EvaluationRound | None = None
        self._present: Sequence[Candidate] = ()
        self._changed_at = time.monotonic()
        self._ordered: set[str] = set()
        self._steps: dict[str, int] = {}
        self._told_of = (0, 0)  # actors that are connected, and those of them that can play

    def add(self, behavior: str, team: int, assignment_id: int, played: Played) -> None:
        """Takes a finished episode."""
        if self._running is not None:
            self._running.add((behavior, team), assignment_id, played)

    def after_turn(self, trainers: Mapping[str, Trainer]) -> None:
        """Begins once all are here, and ends once all was played."""
        wanted = [name for name in trainers if self._request.behavior in {None, name}]
        self._steps = {name: trainers[name].get_step for name in wanted}
        present = players(self._policy_server.sessions, wanted)
        if present != self._present:
            self._present, self._changed_at = present, time.monotonic()
        if self._running is None:
            if time.monotonic() - self._changed_at >= SETTLE_SECONDS:
                if len(present) >= self._request.actors:
                    self._begin(wanted)
                else:
                    self._tell_who_is_missing(wanted, len(present))
            return
        live = {candidate.session_id for candidate in present}
        for session_id in self._ordered - live:
            self._running.lose(session_id)
        self._ordered &= live
        self._deal(self._running)
        if self._running.is_done:
            self._policy_server.stopping.ask_anywhere("evaluated", True)

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
        found = {name: policy for name in wanted if (policy := self._policy_server.store.latest(name)) is not None}
        if not found:
            return
        versions = {name: (each.description.generation, each.description.version) for name, each in found.items()}
        # What acts is published as it shall act; the order only says it.
        is_deterministic = all(each.description.deterministic for each in found.values())
        self._running = EvaluationRound(self._request.episodes, versions, is_deterministic=is_deterministic)
        log.info("evaluation_begins", actors=len(self._present), episodes=self._request.episodes, steps=self._steps)

    def _tell_who_is_missing(self, wanted: Sequence[str], players_present: int) -> None:
        """Says, each time that it changes, that actors have come and what they cannot begin without."""
        connected = sum(session.is_connected for session in self._policy_server.sessions.live())
        if (connected, players_present) == self._told_of:
            return
        self._told_of = (connected, players_present)
        if connected:
            log.info(
                "waiting_for_more_actors",
                connected=connected,
                that_can_play=players_present,
                needed=self._request.actors,
                behaviors=list(wanted),
            )

    def _deal(self, running: EvaluationRound) -> None:
        for order in running.deal(self._present):
            self._ordered.add(order.session_id)
            self._policy_server.commands.send(StartEvaluation(order))


def evaluate(request: EvaluationRequest, *, json_file: str | None) -> int:
    """Evaluates, prints what it came to, and returns the exit code.

    Args:
        request: what is asked for.
        json_file: where the results go as JSON; ``-`` is standard output, in place of the table.

    Raises:
        UserError: the run, its checkpoint, the file or an address cannot be used.
    """
    if json_file not in {None, "-"}:
        _check_target(json_file)
    service = request.loaded.options.rollcast
    logs.configure(service.log_format, "info")
    require_free(service.address, "--address")
    results, is_complete, named = asyncio.run(_evaluate(request))
    document = {
        "run": str(request.folder),
        "checkpoint": request.checkpoint,
        "seed": request.seed,
        "episodes_asked": request.episodes,
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


async def _evaluate(request: EvaluationRequest) -> tuple[list[EvaluationResult], bool, Mapping[str, int]]:
    sittings: list[OfflineEvaluation] = []

    def direct(policy_server: PolicyServer) -> OfflineEvaluation:
        sittings.append(OfflineEvaluation(request, policy_server))
        return sittings[0]

    states = SavedPolicies(request.folder, request.checkpoint, request.behavior)
    options = _acting_options(request.loaded.options, states.names)
    config = ServeConfig(
        options=options,
        run_id=request.folder.resolve().name,
        generation=1,
        seed=request.seed,
        load=states.load,
        task=policy_pb2.BehaviorAssignment(role=policy_pb2.AssignmentRole.ValueType(AssignmentRole.IDLE)),
        is_deterministic=request.is_deterministic,
        behaviors_table=states.behaviors_table,
    )
    stop = await PolicyServer(config, direct).run(lambda bound: _announce(request, bound))
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


def _announce(request: EvaluationRequest, bound: BoundAddresses) -> None:
    missing = f"{request.actors} actors" if request.actors > 1 else "an actor"
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
