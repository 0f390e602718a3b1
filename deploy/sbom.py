"""Prints a software bill of materials of what is installed, in CycloneDX 1.6: the project and all that its extras need.

    make sbom > sbom.json
    make sbom SBOM='learner certs'        # extras; the default is what the two images have

Versions, licenses and dependencies are those of the packages in this environment, which `constraints.txt` pins.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections import deque
from datetime import UTC, datetime
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = "rollcast"
IMAGES = ("learner", "certs", "gpu", "actor", "gym", "unity")
"""Extras of the images in docker-compose.yml."""


def needed(extras: tuple[str, ...]) -> dict[str, tuple[Distribution, set[str]]]:
    """Returns the project and its installed dependencies, by name, each with the names of its own dependencies."""
    found: dict[str, tuple[Distribution, set[str]]] = {}
    asked: dict[str, set[str]] = {}
    waiting = deque([(PROJECT, frozenset(extras))])
    while waiting:
        name, wanted = waiting.popleft()
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue  # of another system, or optional
        new = wanted | {""} if name not in asked else wanted - asked[name]
        if name in asked and not new:
            continue
        asked.setdefault(name, set()).update(new)
        _, dependencies = found.setdefault(name, (package, set()))
        for text in package.requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in new):
                dependency = canonicalize_name(requirement.name)
                dependencies.add(dependency)
                waiting.append((dependency, frozenset(requirement.extras)))
    return found


def component(package: Distribution, kind: str) -> dict[str, object]:
    """Returns a package as a component."""
    name, reference = canonicalize_name(package.metadata["Name"]), purl(package)
    license_ = package.metadata.get("License-Expression") or (package.metadata.get("License") or "").partition("\n")[0]
    licenses = [{"license": {"name": license_}}] if license_ else []
    return {"type": kind, "bom-ref": reference, "name": name, "version": package.version, "purl": reference} | (
        {"licenses": licenses} if licenses else {}
    )


def purl(package: Distribution) -> str:
    """Returns the URL that identifies a package, such as ``pkg:pypi/numpy@2.4.6``."""
    return f"pkg:pypi/{canonicalize_name(package.metadata['Name'])}@{package.version.replace('+', '%2B')}"


def bill(extras: tuple[str, ...]) -> dict[str, object]:
    """Returns the bill as a JSON document."""
    found = needed(extras)
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid4()}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            "component": component(found[PROJECT][0], "application"),
        },
        "components": [component(found[name][0], "library") for name in sorted(found) if name != PROJECT],
        "dependencies": [
            {"ref": purl(package), "dependsOn": [purl(found[name][0]) for name in sorted(names & found.keys())]}
            for _, (package, names) in sorted(found.items())
        ],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(bill(tuple(sys.argv[1:]) or IMAGES), indent=2) + "\n")
