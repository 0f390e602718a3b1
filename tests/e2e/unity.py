"""Starts gateways with scripted players as processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.processes import Child, Processes
from tests.e2e.runs import small
from tests.ports import reserve_ports
from tests.tools.players.build import make_build


def run_for_any_behavior(folder: Path, **changes: Any) -> Path:
    """Writes a run file for any behaviors of players and returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "default_settings": small(),
        "env_settings": {"seed": 7},
        "rollcast": {"lease_seconds": 2.0, "drain_seconds": 2.0, "torch_threads": 1},
    }
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(document | changes, sort_keys=False))
    return path


class Gateway:
    """Runs `rollcast act unity` with scripted players.

    Args:
        processes: Starts it.
        learner: Where its learner is.
        options: Of the command, beside those for build, port and logs.
        play: Arguments of the players; None for an editor.
        players: How many.
        name: Of the actor.
        inside: Arguments of the interpreter that come first, of a program that continues as the gateway.
    """

    def __init__(
        self,
        processes: Processes,
        learner: str,
        *options: str,
        play: tuple[str, ...] | None = (),
        players: int = 1,
        name: str = "gateway",
        inside: tuple[str, ...] = (),
    ) -> None:
        self.folder = processes.folder / name
        self.folder.mkdir(parents=True)
        self.port = reserve_ports(players)
        arguments = ["--learner", learner, "--name", name, "--log-format", "json", "--metrics-address", "off"]
        arguments += ["--base-port", str(self.port), "--log-dir", str(self.folder)]
        if play is not None:
            build = make_build(self.folder, "--events", str(self.folder / "events"), *play)
            arguments += ["--env", str(build), "--num-envs", str(players)]
        self.child: Child = processes.python(name, *inside, "-m", "actor_client", "unity", *arguments, *options)

    def players_said(self) -> str:
        """Returns what players wrote to their logs, former ones included."""
        return "".join(path.read_text() for path in sorted(self.folder.glob("Player-*.log")))

    def told(self) -> list[dict[str, Any]]:
        """Returns all that players were told, in the order of their lines."""
        path = self.folder / "events"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def books(self) -> list[dict[str, Any]]:
        """Returns what it said last of the steps of each behavior, after checking that they balance."""
        latest = {books["behavior"]: books for books in self.child.events("books")}
        for books in latest.values():
            fates = books["open"] + books["unacked"] + books["acked"]
            fates += sum(books["discarded"].values()) + sum(books["dropped"].values())
            assert books["produced"] == fates, books
        return list(latest.values())
