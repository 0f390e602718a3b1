"""Tests what is checked of other people's packages and images: hashes of pins, known faults, digests, exact build tools."""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from deploy import audit, digests, hashes
from tests.documents import ROOT
from tests.servers import serving

PINS = hashes.pins((ROOT / "constraints.txt").read_text().splitlines())
KNOWN = hashes.HASHES.read_text()
DIGEST = "sha256:" + "5" * 64


def test_every_pin_has_the_hashes_of_its_version() -> None:
    """hashes.txt has each package of constraints.txt with the same version and a hash, except torch, and no other."""
    hashed = hashes.pins(KNOWN.splitlines())
    assert hashed == {name: version for name, version in PINS.items() if name not in hashes.UNHASHED}
    assert hashes.known(KNOWN).keys() == hashed.keys()
    assert PINS.keys() - hashed.keys() == {"torch"}


@pytest.mark.parametrize("name", ["tests/tools/fuzz/requirements.txt", "deploy/audit-requirements.txt"])
def test_tools_apart_from_the_project_are_hashed_too(name: str) -> None:
    """What `make fuzz` and `make audit` install has hashes."""
    text = (ROOT / name).read_text()
    assert hashes.known(text).keys() == hashes.pins(text.splitlines()).keys() != set()


def test_build_tools_are_exact_and_those_of_the_pins() -> None:
    """Building the project uses the same hatchling everywhere."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for requirement in map(Requirement, project["build-system"]["requires"]):
        (pin,) = requirement.specifier
        assert (pin.operator, pin.version) == ("==", PINS[hashes.canonical(requirement.name)])


def test_a_changed_wheel_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """A wheel with another content ends the check with 1; packages without a hash are named, and pass."""
    wheel = tmp_path / "numpy-2.4.6-cp311-cp311-linux_x86_64.whl"
    wheel.write_bytes(b"not the wheel of the index")
    own = tmp_path / "my_env-1.0-py3-none-any.whl"
    own.write_bytes(b"mine")
    assert hashes.check(tmp_path) == 1
    said = capsys.readouterr().err
    assert f"{wheel.name}: the SHA-256 is not in hashes.txt" in said
    assert f"without a hash, as hashes.txt does not list them: {own.name}" in said
    listed = tmp_path / "hashes.txt"
    listed.write_text(f"numpy==2.4.6 \\\n    --hash=sha256:{hashes.digest(wheel)}\n")
    monkeypatch.setattr(hashes, "HASHES", listed)
    assert hashes.check(tmp_path) == 0
    assert own.name in capsys.readouterr().err


@pytest.mark.slow
def test_pip_refuses_a_file_with_another_hash(tmp_path: Path) -> None:
    """What `make venv` runs ends at the first file whose hash is not listed, before anything is installed."""
    (tmp_path / "hashes.txt").write_text(f"iniconfig=={PINS['iniconfig']} --hash=sha256:{'0' * 64}\n")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--require-hashes",
        "--no-deps",
        "--target",
        str(tmp_path / "site"),
    ]
    done = subprocess.run([*command, "-r", "hashes.txt"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "HASH" in done.stderr or "No matching distribution" in done.stderr, done.stderr
    assert not (tmp_path / "site" / "iniconfig").exists()


CLEAN = {"name": "numpy", "version": "2.4.6", "vulns": []}
FAULTY = {"name": "idna", "version": "3.20", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3.21"]}]}
SKIPPED = {"name": "torch", "skip_reason": "Dependency not found on PyPI"}


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        ({"dependencies": [CLEAN]}, 0, "1 packages, 0 known faults"),
        ({"dependencies": [CLEAN, FAULTY]}, 1, "idna 3.20: PYSEC-1, fixed in 3.21"),
        ({"dependencies": [CLEAN, SKIPPED]}, 3, "has no answer (1 of 2 packages: torch)"),
        ({"dependencies": [FAULTY, SKIPPED]}, 1, "PYSEC-1"),
        (None, 3, "has no answer (requests.exceptions.ConnectionError: no route)"),
    ],
)
def test_an_audit_without_an_answer_is_no_good_news(
    answer: object, code: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Known faults end with 1, and a database without an answer for a package with 3, never with 0."""
    error = "Traceback\nrequests.exceptions.ConnectionError: no route\n" if answer is None else ""
    text = "" if answer is None else json.dumps(answer)
    done = subprocess.CompletedProcess([], int(answer is None), stdout=text, stderr=error)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    assert audit.audit(["pip-audit"]) == code
    said = capsys.readouterr()
    assert words in said.out + said.err
    assert "Traceback" not in said.err


class Registry(http.server.BaseHTTPRequestHandler):
    """A registry that gives digests to who brings the token that it hands out."""

    server: http.server.ThreadingHTTPServer

    images: Mapping[str, str] = {"/v2/prom/prometheus/manifests/v3.5.0": DIGEST}

    def do_HEAD(self) -> None:
        """Answers for a manifest."""
        if self.headers.get("Authorization") != "Bearer handed-out":
            realm = f"http://127.0.0.1:{self.server.server_port}/token"
            self.send_response(401)
            self.send_header("WWW-Authenticate", f'Bearer realm="{realm}",service="here",scope="repository:x:pull"')
        elif (digest := self.images.get(self.path)) is not None:
            assert "image.index" in self.headers["Accept"]
            self.send_response(200)
            self.send_header("Docker-Content-Digest", digest)
        else:
            self.send_response(404)
        self.end_headers()

    def do_GET(self) -> None:
        """Hands out a token."""
        assert self.path == "/token?service=here&scope=repository%3Ax%3Apull"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"token": "handed-out"}')

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def registry() -> Iterator[str]:
    """Serves a registry for a block; yields its address."""
    with serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)) as address:
        yield address


def test_digests_come_from_the_registry() -> None:
    """A digest is found with the registry's own token; an image that it does not have is refused by name."""
    with registry() as address:
        found = digests.Image.parse(f"{address}/prom/prometheus:v3.5.0")
        assert digests.resolve(found, scheme="http") == DIGEST
        with pytest.raises(digests.Unresolved, match="answers 404"):
            digests.resolve(digests.Image.parse(f"{address}/prom/prometheus:v9"), scheme="http")
    with pytest.raises(digests.Unresolved, match=r"prometheus:v3\.5\.0: .* cannot be reached"):
        digests.resolve(found, scheme="http")


def test_a_digest_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a SHA-256 counts as a digest."""
    monkeypatch.setattr(Registry, "images", {"/v2/prom/prometheus/manifests/v3.5.0": "latest\nEVIL=1"[:6]})
    with registry() as address, pytest.raises(digests.Unresolved, match="names no digest"):
        digests.resolve(digests.Image.parse(f"{address}/prom/prometheus:v3.5.0"), scheme="http")


def test_the_images_are_those_that_compose_names() -> None:
    """Names without a host belong to the default registry; each variable of docker-compose.yml has an image."""
    found = digests.images((ROOT / "docker-compose.yml").read_text())
    assert found.keys() == set(digests.VARIABLES)
    image = digests.Image.parse(found["PYTHON_IMAGE"])
    assert (image.registry, image.repository, image.tag) == (
        digests.DEFAULT_REGISTRY,
        "library/python",
        "3.11-slim-bookworm",
    )
    for text in (f"python@{DIGEST}", "python"):
        with pytest.raises(digests.Unresolved):
            digests.Image.parse(text)
