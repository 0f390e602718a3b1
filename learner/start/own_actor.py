"""Runs the actor that an evaluation starts (``evaluate --env``): it plays, may film, and ends with the evaluation."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from rollcast.addresses import reached_here

from learner.shared.exits import ExitCode, UserError
from learner.shared.settings.service import ServiceSettings
from learner.start.actors import (
    ABORT_SECONDS,
    END_SECONDS,
    OwnIdentity,
    actor_program,
    end_actor,
    require_actors,
    start_actor,
)
from learner.training.trainers.parts import RunPart, Trainers

CONNECT_SECONDS: Final = 60
"""Seconds after which the actor gives up if it cannot reach the learner."""


@dataclass(frozen=True, slots=True)
class ActorRequest:
    """Arguments of the actor.

    Attributes:
        env: Environment as for `--env` of the actor, or the game of `rollcast act boards`.
        behavior: Behavior to play; None if the run has only one. Agents of PettingZoo and Godot get theirs by `arguments`.
        video: Folder for videos; None for no videos.
        video_every: Interval between filmed episodes of the first environment, in episodes.
        log_format: Format of its log.
        arguments: Additional arguments of the actor.
        kind: The actor's command.
        opponent: Script that plays opponents; empty for none.
    """

    env: str
    behavior: str | None
    video: Path | None
    video_every: int
    log_format: str
    arguments: tuple[str, ...]
    kind: Literal["gym", "pettingzoo", "boards", "godot"] = "gym"
    opponent: str = ""

    def command(self, address: str) -> list[str]:
        """Returns the command that starts the actor.

        Args:
            address: Address of the learner, ``host:port``.
        """
        command = actor_program(self.kind, "--game" if self.kind == "boards" else "--env", self.env)
        command += ["--learner", reached_here(address), "--name", "evaluation"]
        command += ["--metrics-address", "off", "--connect-timeout", str(CONNECT_SECONDS)]
        log_format = "auto" if self.log_format == "mlagents" else self.log_format  # which only learners have
        command += ["--log-format", log_format, "--log-level", "warning"]
        if self.behavior is not None and self.kind in {"gym", "boards"}:
            command += ["--behavior", self.behavior]
        if self.opponent:
            command += ["--opponent", self.opponent]
        if self.video is not None:
            command += ["--video", str(self.video), "--video-every", str(self.video_every)]
        return [*command, *self.arguments]


class OwnActor(RunPart):
    """Starts an actor once the learner listens, monitors it, and waits for its end.

    Args:
        request: Arguments of the actor.
        service: The learner's addresses and files.
        is_done: Returns whether all episodes are played, so that the actor may end.

    Raises:
        UserError: The actor package is not installed.

    Attributes:
        tokens: Tokens by which a learner with TLS knows the actor; none if the user gave it an identity.
    """

    def __init__(self, request: ActorRequest, service: ServiceSettings, is_done: Callable[[], bool]) -> None:
        require_actors(f"--env {request.env}", request.kind, "leave --env out and start rollcast act elsewhere")
        self._request = request
        self._is_done = is_done
        self._identity = OwnIdentity(service, request.arguments)
        self.tokens = self._identity.tokens
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, address: str) -> None:
        """Starts the actor, with its output on standard error.

        Args:
            address: Address of the learner, ``host:port``.
        """
        self._process = start_actor([*self._request.command(address), *self._identity.flags()], 2)

    def after_turn(self, trainers: Trainers) -> None:
        """Ends the evaluation if its actor has ended early.

        Raises:
            UserError: The actor has ended too early.
        """
        del trainers
        code = None if self._process is None else self._process.poll()
        if code is None or self._is_done():
            return
        exit_code = ExitCode.MISSING_EXTRA if code == ExitCode.MISSING_EXTRA else ExitCode.EVALUATION_CUT_SHORT
        raise UserError(
            exit_code,
            f"the actor of --env {self._request.env} ended with exit code {code} before all episodes were played; its "
            "output above says why",
        )

    def close(self) -> None:
        """Waits for the end of the actor, and ends it if it does not end by itself."""
        process, self._process = self._process, None
        if process is not None:
            end_actor(process, END_SECONDS if self._is_done() else ABORT_SECONDS)
        self._identity.close()
