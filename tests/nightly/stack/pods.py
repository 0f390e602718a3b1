"""Runs the Pods of deploy/kubernetes in containers: command, environment, user, rights, volumes and probes as rendered."""

from __future__ import annotations

import json
import ssl
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.nightly.stack import images
from tests.nightly.stack.machine import ROOT, run, succeeds

_IMAGES = {"rollcast-learner:latest": images.LEARNER, "rollcast-actor:latest": images.ACTOR}


def rendered(name: str) -> list[dict[str, Any]]:
    """Returns the objects of a folder of deploy/kubernetes."""
    return list(yaml.safe_load_all(run(["kubectl", "kustomize", ROOT / "deploy" / "kubernetes" / name])))


def of_kind(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """Returns the only object of a kind."""
    (found,) = (each for each in objects if each["kind"] == kind)
    return found


class Pod:
    """A container that does what a Pod would do.

    Args:
        name: Its name, and that of its container; on its network it has the name of the Pod's container, as by a Service.
        objects: All rendered objects.
        kind: Of the object with the template of the Pod: ``Job`` or ``Deployment``.
        network: The container engine's network.
        folders: What is mounted for claims and secrets, by their names.
        scratch: A folder for files of config maps.
    """

    def __init__(
        self,
        name: str,
        objects: list[dict[str, Any]],
        kind: str,
        *,
        network: str,
        folders: Mapping[str, Path],
        scratch: Path,
    ) -> None:
        self.name = name
        self.spec: dict[str, Any] = of_kind(objects, kind)["spec"]["template"]["spec"]
        (self.container,) = self.spec["containers"]
        rights, own = self.spec["securityContext"], self.container["securityContext"]
        words = ["docker", "run", "--detach", f"--name={name}", f"--network={network}"]
        words += [f"--network-alias={self.container['name']}", f"--user={rights['runAsUser']}:{rights['runAsGroup']}"]
        words += [f"--cap-drop={each}" for each in own["capabilities"]["drop"]]
        words += ["--read-only"] if own["readOnlyRootFilesystem"] else []
        words += [] if own["allowPrivilegeEscalation"] else ["--security-opt=no-new-privileges:true"]
        for entry in self.container["env"]:
            words.append(f"--env={entry['name']}={entry.get('value', name)}")
        volumes = {volume["name"]: volume for volume in self.spec["volumes"]}
        for mount in self.container["volumeMounts"]:
            words.append(self._mounted(volumes[mount["name"]], mount, objects, folders, scratch))
        run([*words, _IMAGES[self.container["image"]], *self.container["args"]])

    def _mounted(
        self,
        volume: dict[str, Any],
        mount: dict[str, Any],
        objects: list[dict[str, Any]],
        folders: Mapping[str, Path],
        scratch: Path,
    ) -> str:
        """Returns the option of the engine for a volume."""
        if "emptyDir" in volume:
            return f"--tmpfs={mount['mountPath']}:mode=1777,exec"
        if "configMap" in volume:
            source = scratch / volume["configMap"]["name"]
            source.mkdir(exist_ok=True)
            for name, content in of_kind(objects, "ConfigMap")["data"].items():
                (source / name).write_text(content)
        elif "secret" in volume:
            source = folders[volume["secret"]["secretName"]]
        else:
            source = folders[volume["persistentVolumeClaim"]["claimName"]]
        return f"--volume={source}:{mount['mountPath']}{':ro' if mount.get('readOnly') else ''}"

    def execute(self, *command: str) -> str:
        """Runs a command in the container and returns its standard output."""
        return run(["docker", "exec", self.name, *command])

    def passes(self, probe: str, ca: Path | None = None) -> bool:
        """Returns whether a probe succeeds, as the kubelet would find.

        Args:
            probe: ``startupProbe``, ``livenessProbe`` or ``readinessProbe``; one that the Pod lacks succeeds.
            ca: Authority of the certificate, to check the scheme; the kubelet itself checks no certificate.
        """
        what: dict[str, Any] = self.container.get(probe, {})
        if "exec" in what:
            return succeeds(["docker", "exec", self.name, *what["exec"]["command"]])
        if "httpGet" not in what:
            return True
        (found,) = json.loads(run(["docker", "inspect", self.name]))
        (network,) = found["NetworkSettings"]["Networks"].values()
        ports = {port["name"]: port["containerPort"] for port in self.container["ports"]}
        get = what["httpGet"]
        scheme = get.get("scheme", "HTTP").lower()
        context = ssl.create_default_context(cafile=None if ca is None else str(ca)) if scheme == "https" else None
        if context is not None:
            context.check_hostname = False
        url = f"{scheme}://{network['IPAddress']}:{ports[get['port']]}{get['path']}"
        try:
            with urllib.request.urlopen(url, timeout=5, context=context) as answer:  # noqa: S310 - as rendered
                return 200 <= int(answer.status) < 400
        except OSError:
            return False

    def stop(self) -> int:
        """Asks it to end, as the kubelet does, and returns its exit code."""
        grace = self.spec["terminationGracePeriodSeconds"]
        run(["docker", "stop", f"--time={grace}", self.name], timeout_seconds=grace + 30)
        return int(run(["docker", "inspect", "--format={{.State.ExitCode}}", self.name]))

    def said(self) -> str:
        """Returns what it printed."""
        return run(["sh", "-c", f"docker logs --tail=40 {self.name} 2>&1"])

    def remove(self) -> None:
        """Removes the container."""
        run(["docker", "rm", "--force", self.name])
