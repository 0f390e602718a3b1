"""The profile `unity` of docker-compose.yml: a learner, and a gateway beside the players that it starts from a build."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.stack.machine import wait_until
from tests.deploy.stack.scrapes import Scrape, Watcher, scrape
from tests.deploy.stack.stack import Stack
from tests.players.build import make_build

pytestmark = pytest.mark.timeout(1800)

PROJECT = "rollcast-stack-unity"
SERVICES = ("learner", "unity")
PLAYERS = 2
MIN_VERSIONS = 5
RUN = """
behaviors:
  CartPole:
    trainer_type: ppo
    hyperparameters: {batch_size: 256, buffer_size: 2048, learning_rate: 1e-3, beta: 0.0, lambd: 0.8, num_epoch: 10}
    network_settings: {hidden_units: 64}
    reward_signals: {extrinsic: {gamma: 0.98}}
    time_horizon: 64
    summary_freq: 5000
    max_steps: 1000000000
env_settings: {seed: 3}
"""


@pytest.fixture(scope="module")
def playing(built: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, Watcher]]:
    """The profile with two scripted players as Build.x86_64, once several policies came out."""
    folder = tmp_path_factory.mktemp("unity")
    folder.chmod(0o755)
    build = make_build(folder / "build", python="python")
    (folder / "run.yaml").write_text(RUN)
    stack = Stack(
        built.clone,
        PROJECT,
        ROLLCAST_UNITY_BUILD=str(build.parent),
        ROLLCAST_UNITY_NUM_ENVS=str(PLAYERS),
        ROLLCAST_RUN_FILE=str(folder / "run.yaml"),
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
    """The same after a stop, with what the players logged and the learner's last scrape."""
    stack, _ = playing
    for service in SERVICES:
        stack.wait_healthy(service)
    last = scrape(stack.http_port)
    said = {f"Player-{n}.log": stack.execute("unity", "cat", f"/players/Player-{n}.log") for n in range(PLAYERS)}
    stack.compose("stop")
    return stack, said, last


def test_players_of_a_build_train(playing: tuple[Stack, Watcher]) -> None:
    """Episodes arrive and policies come out; the ledger balances in every scrape."""
    _, watcher = playing
    assert watcher.last is not None
    assert watcher.last.total("policy_version") >= MIN_VERSIONS
    assert watcher.last.total("episodes_total") > 0
    assert watcher.unbalanced == []


def test_every_player_has_a_process_and_a_home(playing: tuple[Stack, Watcher]) -> None:
    """Both are started beside the gateway, with their home in memory on a read-only root."""
    stack, _ = playing
    script = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o 'mlagents-port 500[0-9]' | sort -u"
    ports = stack.execute("unity", "sh", "-c", script).split("\n")
    assert [line.split()[-1] for line in ports if line] == ["5005", "5006"]
    stack.execute("unity", "sh", "-c", 'test "$HOME" = /player-home && touch "$HOME/preferences"')
    container = stack.containers("unity")[0]
    assert container["HostConfig"]["ReadonlyRootfs"] is True
    assert "/player-home" in container["HostConfig"]["Tmpfs"]


def test_it_ends_in_good_order(stopped: tuple[Stack, dict[str, str], Scrape]) -> None:
    """Both containers end with code 0, and the run is kept."""
    stack, _, last = stopped
    for service in SERVICES:
        codes = [container["State"]["ExitCode"] for container in stack.containers(service)]
        assert codes == [0], stack.logs(service)
    assert last.imbalance() == 0


def test_players_leave_their_logs(stopped: tuple[Stack, dict[str, str], Scrape], tmp_path: Path) -> None:
    """Each has a log in the volume for them, as ML-Agents names it; the model is in the run folder."""
    stack, said, _ = stopped
    assert sorted(said) == [f"Player-{n}.log" for n in range(PLAYERS)]
    folder = stack.copy_run_folder(tmp_path / "rollcast")
    assert (folder / "CartPole.onnx").stat().st_size > 0
    assert (folder / "run_state.pt").stat().st_size > 0
