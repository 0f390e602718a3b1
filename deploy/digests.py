"""Resolves the images that docker-compose.yml names to digests, and prints lines for `.env`.

    python deploy/digests.py >>.env           needs the registry; afterwards compose takes exactly these images

A tag may be moved to another image, a digest cannot. Without a registry, names and tags stay as they are.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
COMPOSE: Final = ROOT / "docker-compose.yml"
VARIABLES: Final = ("PYTHON_IMAGE", "PROMETHEUS_IMAGE", "GRAFANA_IMAGE")
"""Variables of docker-compose.yml whose defaults are images of a registry."""
DEFAULT_REGISTRY: Final = "registry-1.docker.io"
TIMEOUT_SECONDS: Final = 20.0
MAX_ANSWER_BYTES: Final = 1 << 20
MANIFESTS: Final = (
    "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, "
    "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
)
"""Lists for all platforms before images of one, so that a digest is the same on every machine."""
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_CHALLENGE: Final = re.compile(r'(\w+)="([^"]*)"')


class Unresolved(Exception):  # noqa: N818 - it says what the image is
    """An image has no digest; the message says why."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image by name and tag.

    Attributes:
        text: As it is written.
        registry: Host of the registry, perhaps with a port.
        repository: Its name there.
        tag: Its tag.
    """

    text: str
    registry: str
    repository: str
    tag: str

    @classmethod
    def parse(cls, text: str) -> Image:
        """Returns the image that a text such as ``prom/prometheus:v3.5.0`` names.

        Raises:
            Unresolved: The text has a digest, or no tag.
        """
        if "@" in text:
            raise Unresolved(f"{text} already has a digest")
        head, slash, rest = text.partition("/")
        is_host = bool(slash) and ("." in head or ":" in head or head == "localhost")
        registry, name = (head, rest) if is_host else (DEFAULT_REGISTRY, text)
        repository, _, tag = name.rpartition(":")
        if not repository:
            raise Unresolved(f"{text} has no tag")
        if registry == DEFAULT_REGISTRY and "/" not in repository:
            repository = f"library/{repository}"
        return cls(text, registry, repository, tag)


def images(compose: str) -> dict[str, str]:
    """Returns the default image of each variable in the text of docker-compose.yml."""
    found = {name: re.search(rf"\$\{{{name}:-([^}}]+)\}}", compose) for name in VARIABLES}
    return {name: match[1] for name, match in found.items() if match is not None}


def resolve(image: Image, *, scheme: str = "https") -> str:
    """Returns the digest of an image from its registry.

    Raises:
        Unresolved: The registry cannot be reached, or does not have the image.
    """
    url = f"{scheme}://{image.registry}/v2/{image.repository}/manifests/{image.tag}"
    try:
        digest = _digest(url, None)
        if digest is None:
            raise Unresolved(f"{image.text}: the registry names no digest")
        return digest
    except urllib.error.HTTPError as error:
        raise Unresolved(f"{image.text}: {image.registry} answers {error.code} {error.reason}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise Unresolved(f"{image.text}: {image.registry} cannot be reached ({reason})") from None


def _digest(url: str, token: str | None) -> str | None:
    request = urllib.request.Request(url, method="HEAD", headers={"Accept": MANIFESTS})  # noqa: S310 - our own scheme
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310
            found = str(answer.headers.get("Docker-Content-Digest", ""))
            return found if _DIGEST.fullmatch(found) else None
    except urllib.error.HTTPError as error:
        challenge = dict(_CHALLENGE.findall(error.headers.get("WWW-Authenticate", "")))
        if error.code != 401 or token is not None or "realm" not in challenge:
            raise
        return _digest(url, _token(challenge))


def _token(challenge: dict[str, str]) -> str:
    """Returns a token for anonymous readers from where the registry says."""
    realm = challenge.pop("realm")
    if not realm.startswith(("https://", "http://127.0.0.1:")):
        raise ValueError(f"the registry sends readers to {realm[:80]}")
    query = urllib.parse.urlencode({key: value for key, value in challenge.items() if key in {"service", "scope"}})
    with urllib.request.urlopen(f"{realm}?{query}", timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310 - checked above
        document = json.loads(answer.read(MAX_ANSWER_BYTES))
    token = document.get("token") or document.get("access_token")
    if not isinstance(token, str):
        raise ValueError("the registry gives no token")  # noqa: TRY004 - a fault of the answer
    return token


def main() -> int:
    """Prints a line for each image; returns 1 if one has no digest."""
    code = 0
    for name, text in images(COMPOSE.read_text(encoding="utf-8")).items():
        try:
            sys.stdout.write(f"{name}={text}@{resolve(Image.parse(text))}\n")
        except Unresolved as error:
            sys.stderr.write(f"digests: {error}; {name} stays a tag, which may be moved\n")
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
