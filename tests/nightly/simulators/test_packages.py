"""Tests that packages whose environments have processes train; `make nightly NIGHTLY=simulators` runs this folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.processes import ROOT, processes_in
from tests.e2e.runs import small, write_run

pytestmark = pytest.mark.timeout(1800)
HERE = "tests/nightly/simulators"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Installs the packages into a folder of their own."""
    folder = tmp_path_factory.mktemp("packages")
    wanted = ["--require-hashes", "--no-deps", "-r", str(ROOT / HERE / "requirements.txt")]
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), *wanted], check=True)
    return folder


@pytest.mark.parametrize(
    ("steps", "arguments"),
    [
        (20_000, ("doom",)),
        (5_000, ("traffic",)),  # its own speed is about a hundred steps a second
        (20_000, ("Subprocess", "--env-kwargs", '{"start": "fork"}')),
        (20_000, ("Subprocess", "--env-kwargs", '{"start": "forkserver"}')),
        (20_000, ("concatenated", "--vector")),
        (20_000, ("grids", "--vector")),
    ],
)
def test_a_package_trains_and_ends(packages: Path, tmp_path: Path, steps: int, arguments: tuple[str, ...]) -> None:
    """A run trains without a failure of the environment, and the actor ends with 0."""
    name, *more = arguments
    network = {"hidden_units": 32, "num_layers": 1, "vis_encode_type": "fully_connected"}
    behavior = small(max_steps=steps, network_settings=network)
    env = f"{HERE.replace('/', '.')}.packages:{name}"
    options = ("--num-envs", "2", "--max-env-failures", "1", *more)
    with processes_in(tmp_path, cwd=tmp_path) as processes:  # VizDoom writes a file there
        learner = processes.learner(write_run(tmp_path, {"Task": behavior}))
        actor = processes.actor(learner.address, env, *options, environment={"PYTHONPATH": f"{packages}:{ROOT}"})
        assert actor.wait() == 0, actor.said()
    assert actor.events("books")[-1]["acked"] >= steps
