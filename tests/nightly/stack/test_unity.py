"""Tests the profile `unity` of docker-compose.yml."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.duel import rival
from tests.nightly.stack import images
from tests.nightly.stack.boards import queries, wait_for_series
from tests.nightly.stack.machine import wait_until
from tests.nightly.stack.prometheus import Prometheus
from tests.nightly.stack.scrapes import Scrape, Watcher, scrape
from tests.nightly.stack.stack import Stack
from tests.tools.players.build import make_build

pytestmark = pytest.mark.timeout(1800)

PROJECT = f"{images.PREFIX}-unity"
SERVICES = ("learner", "unity", "prometheus")
PLAYERS = 2
MIN_VERSIONS = 5
RUN = """
behaviors:
  Duel:
    trainer_type: ppo
    hyperparameters: {batch_size: 256, buffer_size: 2048}
    network_settings: {hidden_units: 64}
    time_horizon: 64
    summary_freq: 5000
    self_play:
      {save_steps: 2048, team_change: 8192, swap_steps: 1024, window: 5, frozen_opponents: {rival: /files/rival.onnx}}
    max_steps: 1000000000
env_settings: {seed: 3}
"""


@pytest.fixture(scope="module")
def playing(built: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, Watcher]]:
    """Runs the profile with two scripted players until several policies are published."""
    folder = tmp_path_factory.mktemp("unity")
    folder.chmod(0o755)
    build = make_build(folder / "build", "--task", "duel", "--agents", "4", python="python")
    (folder / "run.yaml").write_text(RUN)
    (folder / "files").mkdir()
    rival(folder / "files")
    stack = Stack(
        built.clone,
        PROJECT,
        ROLLCAST_UNITY_BUILD=str(build.parent),
        ROLLCAST_UNITY_NUM_ENVS=str(PLAYERS),
        ROLLCAST_RUN_FILE=str(folder / "run.yaml"),
        ROLLCAST_FILES=str(folder / "files"),
    )
    stack.down()  # what a test that was killed may have left
    try:
        with Watcher(stack.http_port) as watcher:
            stack.compose("--profile", "unity", "up", "-d", "--no-build", *SERVICES)
            wait_until(
                lambda: watcher.last is not None and watcher.last.total("policy_version") >= MIN_VERSIONS,
                "policies from what players did",
                seconds=240,
            )
            yield stack, watcher
    finally:
        stack.down()


@pytest.fixture(scope="module")
def stopped(playing: tuple[Stack, Watcher]) -> tuple[Stack, dict[str, str], Scrape]:
    """Stops the stack and returns the players' logs and the last scrape."""
    stack, _ = playing
    for service in SERVICES:
        stack.wait_healthy(service)
    last = scrape(stack.http_port)
    said = {f"Player-{n}.log": stack.execute("unity", "cat", f"/players/Player-{n}.log") for n in range(PLAYERS)}
    stack.compose("stop")
    return stack, said, last


def test_players_of_a_build_train(playing: tuple[Stack, Watcher]) -> None:
    """Episodes arrive, policies are published, and the books balance in every scrape."""
    _, watcher = playing
    assert watcher.last is not None
    assert watcher.last.total("policy_version") >= MIN_VERSIONS
    assert watcher.last.total("episodes_total") > 0
    assert watcher.unbalanced == []


def test_the_panels_of_self_play_give_series(playing: tuple[Stack, Watcher]) -> None:
    """No panel of the row about self-play is empty in a run with self-play."""
    stack, _ = playing
    asked = queries(stack.clone / "deploy" / "grafana" / "dashboards")
    wait_for_series([query for query in asked if query.row == "Self-play"], Prometheus(stack.prometheus_port))


def test_every_player_has_a_process_and_a_home(playing: tuple[Stack, Watcher]) -> None:
    """Each player runs in the gateway's container, with its home in memory on a read-only root."""
    stack, _ = playing
    script = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o 'mlagents-port 500[0-9]' | sort -u"
    ports = stack.execute("unity", "sh", "-c", script).split("\n")
    assert [line.split()[-1] for line in ports if line] == ["5005", "5006"]
    stack.execute("unity", "sh", "-c", 'test "$HOME" = /player-home && touch "$HOME/preferences"')
    container = stack.containers("unity")[0]
    assert container["HostConfig"]["ReadonlyRootfs"] is True
    assert "/player-home" in container["HostConfig"]["Tmpfs"]


def test_it_ends_in_good_order(stopped: tuple[Stack, dict[str, str], Scrape]) -> None:
    """All containers end with code 0, and the run is kept."""
    stack, _, last = stopped
    for service in SERVICES:
        codes = [container["State"]["ExitCode"] for container in stack.containers(service)]
        assert codes == [0], stack.logs(service)
    assert last.imbalance() == 0


def test_players_leave_their_logs(stopped: tuple[Stack, dict[str, str], Scrape], tmp_path: Path) -> None:
    """Each player has a log in its volume, and the model is in the run folder."""
    stack, said, _ = stopped
    assert sorted(said) == [f"Player-{n}.log" for n in range(PLAYERS)]
    folder = stack.copy_run_folder(tmp_path / "rollcast")
    assert (folder / "Duel.onnx").stat().st_size > 0
    assert (folder / "run_state.pt").stat().st_size > 0
