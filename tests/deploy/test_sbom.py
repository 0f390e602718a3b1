"""Tests the bill of materials."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from packaging.utils import canonicalize_name

from tests.architecture.tree import ROOT


def bill(*extras: str) -> dict[str, Any]:
    """Returns the document that the script prints."""
    done = subprocess.run(
        [sys.executable, "deploy/sbom.py", *extras], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_the_bill_has_what_the_images_need() -> None:
    """Each component has the version that constraints.txt pins, and tools of the developers are not among them."""
    document = bill()
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert document["metadata"]["component"]["name"] == "rollcast"
    lines = (line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    pinned = {canonicalize_name(name): version for name, version in lines}
    versions = {each["name"]: each["version"].partition("+")[0] for each in document["components"]}
    assert {"torch", "grpcio", "cryptography", "gymnasium", "onnxruntime"} <= versions.keys()
    assert not {"pytest", "mypy", "ruff", "hypothesis"} & versions.keys()
    versions.pop("setuptools", None)  # of the environment itself
    assert {name: version for name, version in versions.items() if pinned.get(name) != version} == {}


@pytest.mark.slow
def test_every_reference_of_the_bill_exists() -> None:
    """References are unique and closed; the bill of an actor has no torch."""
    document = bill("actor", "gym")
    references = [each["bom-ref"] for each in document["components"]]
    references.append(document["metadata"]["component"]["bom-ref"])
    assert len(references) == len(set(references))
    assert {each["ref"] for each in document["dependencies"]} == set(references)
    assert {name for each in document["dependencies"] for name in each["dependsOn"]} <= set(references)
    assert not [each for each in references if each.startswith("pkg:pypi/torch@")]
