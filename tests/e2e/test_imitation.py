"""From what players' agents do to files of demonstrations, and from those to policies, by real processes."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from rollcast.demonstrations.framing import DemonstrationFile

from tests.e2e.processes import Processes
from tests.e2e.runs import small
from tests.e2e.unity import Gateway, run_for_any_behavior

pytestmark = pytest.mark.slow

EVERYTHING = ("CartPole", "Pendulum", "Hybrid", "Groups", "Comers", "Teams", "Pictures", "Rows")
PLAY = ("--task", "everything", "--agents", "6")
MAX_ERROR = 1e-4


def imitating(demonstrations: Path) -> dict[str, Any]:
    """A behavior that learns from demonstrations in every way there is, as ML-Agents' run files ask for it."""
    path = str(demonstrations)
    gail = {"demo_path": path, "use_actions": True, "use_vail": True, "network_settings": {"hidden_units": 16}}
    settings = small(
        reward_signals={"extrinsic": {}, "gail": gail},
        behavioral_cloning={"demo_path": path, "steps": 50_000, "strength": 0.5, "num_epoch": 1},
    )
    settings["hyperparameters"] = {"batch_size": 64, "buffer_size": 256}
    return settings


@pytest.mark.timeout(300)  # two learners and sixteen trainers, on a machine that may be busy
def test_every_kind_of_behavior_is_recorded_and_imitated(processes: Processes, tmp_path: Path) -> None:
    """Eight behaviors leave a file each; runs that imitate them make updates, and report what ML-Agents reports."""
    teacher = processes.learner(run_for_any_behavior(tmp_path / "teacher"), run="teacher")
    recorder = Gateway(processes, teacher.address, "--record", str(tmp_path / "seen.demo"), play=PLAY, name="recorder")
    for name in EVERYTHING:
        teacher.wait_for_version(name, 1, recorder.child)
    recorder.child.signal(signal.SIGTERM)
    assert recorder.child.wait() == 0, recorder.child.said()
    teacher.end()
    files = {}
    for path in tmp_path.glob("seen*.demo"):
        with DemonstrationFile(path) as file:
            files[file.brain.brain_name.partition("?")[0]] = path
            assert file.meta.number_episodes > 0
    assert set(files) == set(EVERYTHING)
    behaviors = {name: imitating(path) for name, path in files.items()}
    run_file = run_for_any_behavior(tmp_path / "pupil", default_settings=None, behaviors=behaviors)
    pupil = processes.learner(run_file, run="pupil")
    gateway = Gateway(processes, pupil.address, play=PLAY, name="gateway")
    for name in EVERYTHING:
        assert pupil.wait_for_version(name, 1, gateway.child).log_prob_error_max < MAX_ERROR, name
    gateway.child.signal(signal.SIGTERM)
    assert gateway.child.wait() == 0, gateway.child.said()
    assert not any(told["dropped"] for told in gateway.books())
    pupil.signal(signal.SIGTERM)
    assert pupil.wait() == 0, pupil.said()
    told = {event["behavior"] for event in pupil.events("demonstrations")}
    assert told == set(EVERYTHING)
