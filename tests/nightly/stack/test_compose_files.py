"""Tests the compose files, their images and containers."""

import json

import pytest
import yaml

from tests.nightly.stack import images
from tests.nightly.stack.conftest import Training
from tests.nightly.stack.machine import run, succeeds
from tests.nightly.stack.stack import Stack

pytestmark = pytest.mark.timeout(1800)

MAX_ACTOR_BYTES = 400_000_000


@pytest.mark.parametrize("overlays", [(), ("deploy/compose/gpu.yml",), ("deploy/compose/tls.yml",)])
def test_the_compose_files_are_accepted(built: Stack, overlays: tuple[str, ...]) -> None:
    """docker-compose 1.29 accepts the files, alone and with each overlay, and finds all services."""
    files = [word for name in ("docker-compose.yml", *overlays) for word in ("-f", name)]
    found = yaml.safe_load(built.compose(*files, "config"))
    assert set(found["services"]) == {"learner", "actor", "unity", "prometheus", "alertmanager", "grafana"}


def test_every_service_is_locked_down(built: Stack) -> None:
    """All services have a numeric user, a read-only root, no capabilities, limits and a health check."""
    for name, service in yaml.safe_load(built.compose("config"))["services"].items():
        user = service["user"].split(":")[0]
        assert user.isdecimal(), name
        assert int(user) > 0, name
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["healthcheck"]["test"], name
        assert service["stop_grace_period"], name
        assert "container_name" not in service, name  # it would forbid --scale
        assert service["mem_limit"], name
        assert service["pids_limit"] > 0, name
        assert service["ulimits"]["nofile"]["hard"] > 0, name
        assert service["restart"] in {"on-failure", "unless-stopped"}, name
        for port in service.get("ports", ()):
            assert str(port).startswith("127.0.0.1:"), name


def test_the_actor_image_is_small_and_has_no_torch(built: Stack) -> None:
    """The actor's image is smaller than 400 MB and has neither torch nor the learner."""
    size = json.loads(run(["docker", "image", "inspect", images.ACTOR]))[0]["Size"]
    assert size < MAX_ACTOR_BYTES
    look = "import importlib.util as u; print([n for n in ('torch', 'learner', 'actor_client', 'rollcast') if u.find_spec(n)])"
    found = run(
        ["docker", "run", "--rm", "--read-only", "--network=none", "--entrypoint=python", images.ACTOR, "-c", look]
    )
    assert found.strip() == "['actor_client', 'rollcast']"


@pytest.mark.parametrize("image", [images.LEARNER, images.ACTOR])
def test_an_image_runs_as_a_numeric_user_on_a_read_only_root(built: Stack, image: str) -> None:
    """An image runs by itself as a numeric user on a read-only root, without pip."""
    config = json.loads(run(["docker", "image", "inspect", image]))[0]["Config"]
    assert config["User"] == "10001:10001"
    assert config["StopSignal"] == "SIGTERM"
    version = run(["docker", "run", "--rm", "--read-only", "--cap-drop=ALL", "--network=none", image, "--version"])
    assert version.startswith("rollcast ")
    has_pip = ["docker", "run", "--rm", "--network=none", "--entrypoint=python", image, "-c", "import pip"]
    assert not succeeds(has_pip)


@pytest.mark.parametrize("words", ["gym", "unity", "pettingzoo", "godot", "boards", "healthcheck"])
def test_an_actor_is_run_with_its_command(built: Stack, words: str) -> None:
    """`docker compose run actor gym ...` needs no other words, and its help names the one program."""
    said = built.compose("run", "--rm", "--no-deps", "-T", "actor", words, "--help")
    assert said.startswith(f"usage: rollcast act {words} ")


@pytest.mark.parametrize("service", ["learner", "actor", "prometheus"])
def test_a_container_has_no_rights(training: Training, service: str) -> None:
    """The first process of a container has no root and no capabilities, by Docker and the kernel."""
    for container in training.stack.containers(service):
        assert container["HostConfig"]["ReadonlyRootfs"] is True
        assert container["HostConfig"]["CapDrop"] == ["ALL"]
    status = training.stack.execute(service, "cat", "/proc/1/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert "0" not in fields["Uid"].split()
    assert int(fields["CapEff"], 16) == 0
    assert int(fields["CapPrm"], 16) == 0
    assert fields["NoNewPrivs"] == "1"
