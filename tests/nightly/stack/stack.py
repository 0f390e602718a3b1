"""Runs docker-compose.yml with its own project name, ports and images."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.nightly.stack import images
from tests.nightly.stack.machine import run, wait_until
from tests.ports import reserve_ports

PROJECT = f"{images.PREFIX}-test"
SERVICES = ("learner", "actor", "prometheus")  # Grafana's image cannot be had everywhere
START_SECONDS = 180.0
# No layer of a build may reach a network.
OFFLINE = "services: {learner: {build: {network: none}}, actor: {build: {network: none}}}\n"


class Stack:
    """The services of a clone's docker-compose.yml.

    Args:
        clone: The folder with docker-compose.yml.
        project: What its containers, networks and volumes are named after.
        environment: More of what docker-compose.yml reads.
    """

    def __init__(self, clone: Path, project: str = PROJECT, **environment: str) -> None:
        self.clone = clone
        self.offline = clone / "offline.yml"
        self.offline.write_text(OFFLINE)
        self.learner_port, self.http_port, self.prometheus_port = reserve_ports(), reserve_ports(), reserve_ports()
        self.alertmanager_port, self.grafana_port = reserve_ports(), reserve_ports()
        self.environment = {
            "COMPOSE_PROJECT_NAME": project,
            "DOCKER_BUILDKIT": "0",
            "PYTHON_IMAGE": images.BASE,
            "ROLLCAST_LEARNER_IMAGE": images.LEARNER,
            "ROLLCAST_ACTOR_IMAGE": images.ACTOR,
            "PROMETHEUS_IMAGE": images.PROMETHEUS,
            "ALERTMANAGER_IMAGE": images.ALERTMANAGER,
            "GRAFANA_IMAGE": images.GRAFANA,
            "ROLLCAST_PORT": str(self.learner_port),
            "ROLLCAST_HTTP_PORT": str(self.http_port),
            "PROMETHEUS_PORT": str(self.prometheus_port),
            "ALERTMANAGER_PORT": str(self.alertmanager_port),
            "GRAFANA_PORT": str(self.grafana_port),
            **environment,
        }

    def compose(self, *arguments: str | Path, timeout_seconds: float = 300.0) -> str:
        """Runs docker-compose and returns its standard output."""
        return run(
            ["docker-compose", *arguments],
            timeout_seconds=timeout_seconds,
            environment=self.environment,
            folder=self.clone,
        )

    def build(self) -> None:
        """Builds both images, without a network."""
        files = ("-f", "docker-compose.yml", "-f", self.offline)
        self.compose(*files, "build", "learner", "actor", timeout_seconds=1200)

    def up(self, *services: str, actors: int = 0) -> None:
        """Starts services, or changes how many actors there are."""
        scale = ("--scale", f"actor={actors}") if actors else ()
        self.compose("up", "-d", "--no-build", *scale, *services)

    def down(self) -> None:
        """Removes containers, networks and volumes."""
        self.compose("down", "--volumes", "--remove-orphans")

    def containers(self, service: str) -> list[dict[str, Any]]:
        """Returns what `docker inspect` says of each container of a service, stopped ones too."""
        names = self.compose("ps", "--all", "--quiet", service).split()
        found: list[dict[str, Any]] = json.loads(run(["docker", "inspect", *names])) if names else []
        return found

    def wait_healthy(self, service: str, number: int = 1) -> None:
        """Waits until a service has this many containers and all are healthy."""

        def states() -> bool:
            found = [container["State"]["Health"]["Status"] for container in self.containers(service)]
            return len(found) == number and all(state == "healthy" for state in found)

        wait_until(states, f"{number} healthy {service}\n{self.logs(service)}", seconds=START_SECONDS)

    def logs(self, service: str) -> str:
        """Returns the end of what a service printed."""
        return self.compose("logs", "--no-color", "--tail=40", service)

    def execute(self, service: str, *command: str) -> str:
        """Runs a command in the first container of a service."""
        return run(["docker", "exec", self.containers(service)[0]["Id"], *command])

    def crash(self, service: str) -> None:
        """Ends the first process of a service's first container as the kernel would, short of memory."""
        process = self.containers(service)[0]["State"]["Pid"]
        # From inside, the first process cannot be killed; `docker kill` would count as stopped by hand.
        outside = ["docker", "run", "--rm", "--pid=host", "--network=none", "--user=0", "--entrypoint=sh"]
        run([*outside, images.ACTOR, "-c", f"kill -KILL {process}"])

    def one_off(self, *command: str, source: Path | None = None, target: Path | None = None) -> None:
        """Runs a command in a new container with the learner's volume, with files as input and output."""
        entrypoint, *arguments = command
        words = ["docker-compose", "run", "--rm", "--no-deps", "-T", "--entrypoint", entrypoint, "learner", *arguments]
        with (source or Path(os.devnull)).open("rb") as stdin, (target or Path(os.devnull)).open("wb") as stdout:
            subprocess.run(
                words,
                stdin=stdin,
                stdout=stdout,
                check=True,
                timeout=60,
                cwd=self.clone,
                env={**os.environ, **self.environment},
            )

    def copy_run_folder(self, target: Path) -> Path:
        """Copies the run folder from the learner's volume and returns its path."""
        shutil.rmtree(target, ignore_errors=True)
        run(["docker", "cp", f"{self.containers('learner')[0]['Id']}:/results/rollcast", target])
        return target
