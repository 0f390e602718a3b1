"""Tests deploy/kubernetes: its overlays are valid, locked down, and their Pods train, pass their probes and end in good order."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from learner.shared.exits import ExitCode
from learner.shared.settings.service import ServiceSettings
from tests.documents import commands, section
from tests.e2e.runs import small
from tests.nightly.stack.machine import ROOT, CommandError, run, succeeds, wait_until
from tests.nightly.stack.pods import Pod, of_kind, rendered
from tests.nightly.stack.stack import Stack
from tests.tools.players.build import make_build

pytestmark = pytest.mark.timeout(1800)

FOLDERS = ("base", "overlays/tls", "overlays/unity")
NETWORK = "rollcast-pods-test"
USER = 10001
VERSION = "1.31"
"""Of the API whose schemas are checked."""
STOPPED = 143
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Installs what validates objects, with the schemas, into a folder of its own."""
    folder = tmp_path_factory.mktemp("schemas")
    wanted = ["--require-hashes", "--no-deps", "-r", str(ROOT / "tests/nightly/stack/requirements.txt")]
    run([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), *wanted], timeout_seconds=300)
    return folder


def test_a_misspelled_key_is_found(schemas: Path, tmp_path: Path) -> None:
    """The validation refuses an object with a key that the API does not know."""
    objects = rendered("base")
    of_kind(objects, "Job")["spec"]["backofLimit"] = 3
    with pytest.raises(CommandError, match="backofLimit"):
        validate(objects, schemas, tmp_path)


def validate(objects: list[dict[str, Any]], schemas: Path, folder: Path) -> None:
    """Checks objects against the schemas of the API strictly.

    Raises:
        CommandError: One does not fit; the message says which.
    """
    path = folder / "objects.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    command = [sys.executable, "-m", "kubernetes_validate", "--strict", "--kubernetes-version", VERSION, str(path)]
    run(command, environment={"PYTHONPATH": str(schemas)})


@pytest.mark.parametrize("name", FOLDERS)
def test_what_is_rendered_is_valid(name: str, schemas: Path, tmp_path: Path) -> None:
    """Each object follows its schema strictly, so that no misspelled key is ignored, and the names fit together."""
    objects = rendered(name)
    validate(objects, schemas, tmp_path)
    assert {each["kind"] for each in objects} >= {"ConfigMap", "Deployment", "Job", "NetworkPolicy", "Service"}
    service = of_kind(objects, "Service")["spec"]
    labels = of_kind(objects, "Job")["spec"]["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()
    claims = {each["metadata"]["name"] for each in objects if each["kind"] == "PersistentVolumeClaim"}
    for kind in ("Job", "Deployment"):
        for volume in of_kind(objects, kind)["spec"]["template"]["spec"]["volumes"]:
            if "persistentVolumeClaim" in volume:
                assert volume["persistentVolumeClaim"]["claimName"] in claims
            if "configMap" in volume:
                assert volume["configMap"]["name"] == of_kind(objects, "ConfigMap")["metadata"]["name"]


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("kind", ["Job", "Deployment"])
def test_every_pod_is_locked_down(name: str, kind: str) -> None:
    """No Pod is root, has capabilities, a writable root or a token of the API; memory is limited and the grace exceeds a drain."""
    pod = of_kind(rendered(name), kind)["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == USER
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["terminationGracePeriodSeconds"] >= 2 * ServiceSettings().drain_seconds
    (container,) = pod["containers"]
    rights = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert container["securityContext"] == rights
    assert container["resources"]["limits"]["memory"]
    assert {"startupProbe", "livenessProbe"} <= container.keys()


def test_codes_that_another_start_repeats_fail_the_job() -> None:
    """The Job gives up after errors of configuration, and goes on after those of devices, memory, and a signal."""
    rule, _ = of_kind(rendered("base"), "Job")["spec"]["podFailurePolicy"]["rules"]
    final = {int(code) for code in ExitCode if 10 <= code < 20}
    assert set(rule["onExitCodes"]["values"]) == final


@contextmanager
def pods(
    built: Stack, folder: Path, name: str, folders: dict[str, Path], run_file: str = ""
) -> Iterator[tuple[Pod, Pod]]:
    """Runs the learner's Pod and one of an actor."""
    del built  # its images
    objects = rendered(name)
    if run_file:
        of_kind(objects, "ConfigMap")["data"]["run.yaml"] = run_file
    results = folder / "results"
    results.mkdir()
    for path in (folder, *folder.parents):
        if path.stat().st_uid == os.getuid() and path != Path("/tmp"):  # noqa: S108 - pytest's own folders below it
            path.chmod(0o755)
    os.chown(results, USER, USER)
    succeeds(["docker", "network", "rm", NETWORK])
    run(["docker", "network", "create", NETWORK])
    with ExitStack() as stack:
        stack.callback(run, ["docker", "network", "rm", NETWORK])
        started = []
        for pod_name, kind in (("rollcast-pods-learner", "Job"), ("rollcast-pods-actor", "Deployment")):
            succeeds(["docker", "rm", "--force", pod_name])
            pod = Pod(pod_name, objects, kind, network=NETWORK, folders={"results": results, **folders}, scratch=folder)
            stack.callback(pod.remove)
            started.append(pod)
        yield started[0], started[1]


def status(learner: Pod) -> dict[str, Any]:
    """Returns what the command of deploy/CLUSTERS.md prints, as JSON; empty while the learner does not answer."""
    (words,) = (words for words in commands(section("deploy/CLUSTERS.md", "Kubernetes")) if "exec" in words)
    command = words[words.index("--") + 1 :]
    try:
        found: dict[str, Any] = json.loads(learner.execute(*command, "--json"))
    except CommandError:  # it starts
        return {}
    return found


def check(learner: Pod, actor: Pod, ca: Path | None = None) -> None:
    """Waits until they train, looks at all probes, and ends both."""

    def said() -> str:
        return f"{learner.said()}\n{actor.said()}"

    def trains() -> bool:
        rows = status(learner).get("behaviors", [])
        return bool(rows) and int(rows[0]["version"]) >= 3

    wait_until(trains, f"they train\n{said()}", seconds=180)
    for pod in (learner, actor):
        for probe in PROBES:
            assert pod.passes(probe, ca), f"{probe} of {pod.name}\n{said()}"
    (seen,) = status(learner)["actors"]
    assert seen["actor_name"].startswith(actor.name)
    assert actor.stop() == 0, actor.said()
    assert learner.stop() == STOPPED, learner.said()


def test_the_pods_train(built: Stack, tmp_path: Path) -> None:
    """The base trains in plain text."""
    with pods(built, tmp_path, "base", {}) as (learner, actor):
        check(learner, actor)


def test_the_pods_train_with_tls(built: Stack, tmp_path: Path) -> None:
    """The overlay trains with secrets made by the commands in its head."""
    secrets = tmp_path / "secrets"
    learner_command = {"LEARNER": f"{sys.executable} -m learner"}
    run(["sh", "deploy/compose/secrets.sh", "learner", secrets], environment=learner_command, folder=ROOT)
    folders = {"learner-secrets": secrets / "learner", "actor-secrets": secrets / "actor"}
    secrets.chmod(0o755)
    with pods(built, tmp_path, "overlays/tls", folders) as (learner, actor):
        check(learner, actor, secrets / "learner" / "ca.pem")


def test_the_pods_train_players_of_a_build(built: Stack, tmp_path: Path) -> None:
    """The overlay trains what players of a build play."""
    build = make_build(tmp_path / "build", "--task", "duel", "--agents", "4", python="python")
    run_file = yaml.safe_dump({"behaviors": {"Duel": small()}})
    with pods(built, tmp_path, "overlays/unity", {"unity-build": build.parent}, run_file) as (learner, actor):
        check(learner, actor)
