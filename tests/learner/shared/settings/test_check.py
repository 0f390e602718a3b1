"""Tests that check-config shows the settings with their sources, and whether a run would start."""

from __future__ import annotations

import io
import json

from learner.shared.exits import ExitCode
from learner.shared.settings.check import check_config

from .conftest import WriteRun


def test_the_tree_shows_each_value_with_its_source(write_run: WriteRun) -> None:
    """A line of the tree has a key, its value and its source."""
    output, errors = io.StringIO(), io.StringIO()
    path = write_run("behaviors: {A: {trainer_type: ppo, threadet: true}}\n".replace("threadet", "threaded"))
    code = check_config(path, output=output, errors=errors, environ={"ROLLCAST_DEBUG": "yes"})
    lines = {" ".join(line.split()) for line in output.getvalue().splitlines()}
    assert code is ExitCode.OK
    assert {"threaded: true # yaml", "debug: true # env ROLLCAST_DEBUG", "max_steps: 500000 # default"} <= lines
    assert errors.getvalue() == ""


def test_explained_values_have_their_meaning(write_run: WriteRun) -> None:
    """With --explain every value and block has its meaning, also of trainers and signals."""
    output = io.StringIO()
    path = write_run(
        "behaviors: {A: {trainer_type: sac, reward_signals: {rnd: {}}}}\nenvironment_parameters: {mass: 3}\n"
    )
    check_config(path, output=output, errors=io.StringIO(), explain=True)
    lines = [" ".join(line.split()) for line in output.getvalue().splitlines()]
    assert "buffer_size: 50000 # default; steps the replay memory holds" in lines
    assert "rnd: # reward for observations that are new to the signal's network" in lines
    assert any(line.endswith("# yaml; lessons, in order") for line in lines)
    free = {"behaviors", "environment_parameters"}  # whose keys are names that the user gives
    assert [line for line in lines if " # " not in line and line.partition(":")[0] not in {"A", "mass", *free}] == []
    assert [line for line in lines if line.endswith(("# default", "# yaml", "# derived"))] == []


def test_json_is_the_resolved_tree_and_nothing_else(write_run: WriteRun) -> None:
    """JSON output has no warnings in it."""
    output, errors = io.StringIO(), io.StringIO()
    path = write_run("behaviors: {A: {framework: x}}\n")
    assert check_config(path, output=output, errors=errors, as_json=True) is ExitCode.OK
    assert json.loads(output.getvalue())["behaviors"]["A"]["max_steps"] == 500000
    assert errors.getvalue().startswith("warning: ")
