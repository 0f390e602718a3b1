"""Tests training in Godot itself: Debian's server build runs `game.gd`, which speaks the plug-in's protocol.

`make nightly NIGHTLY=simulators` installs it. No game with the plug-in's own scripts is part of the tests.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.processes import ROOT, processes_in
from tests.e2e.runs import cartpole, write_run

pytestmark = pytest.mark.timeout(1800)
GAME = ROOT / "tests/nightly/simulators/game.gd"


def test_the_engine_trains_cartpole(tmp_path: Path) -> None:
    """Two games of four agents reach a mean return of 150, and end when they are told to."""
    build = tmp_path / "Game.x86_64"
    build.write_text(f'#!/bin/sh\ncd {tmp_path} && HOME={tmp_path} exec godot3-server -s {GAME} "$@"\n')
    build.chmod(0o755)
    options = ("--log-format", "json", "--metrics-address", "off", "--num-envs", "2")
    with processes_in(tmp_path) as processes:
        learner = processes.learner(write_run(tmp_path, {"Pole": cartpole()}, target_return=150.0))
        actor = processes.python(
            "godot", "-m", "actor_client", "godot", "--env", str(build), "--learner", learner.address, *options
        )
        assert (learner.wait(), actor.wait()) == (0, 0), learner.said() + actor.said()
        assert not actor.events("environment_failed")
        assert not actor.events("books")[-1]["discarded"]
