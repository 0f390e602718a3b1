"""Builds the images of the stack without a registry."""

import shutil
import sys
import zlib
from pathlib import Path

from tests.nightly.stack.machine import CommandError, run, succeeds

SUITE = "bookworm"  # its Python is 3.11, as that of the images
NEXT_SUITE = "trixie"
OFFICIAL_BASE = "python:3.11-slim-bookworm"
# Checkouts that are tested beside one another share the engine, and must not take one another's images and services.
PREFIX = f"rollcast-stack-{zlib.crc32(bytes(Path(__file__))):08x}"
BASE = f"{PREFIX}/python:3.11"
PROMETHEUS = f"{PREFIX}/prometheus:local"
LEARNER = f"{PREFIX}/learner:local"
ACTOR = f"{PREFIX}/actor:local"
ALERTMANAGER = f"{PREFIX}/alertmanager:local"
GRAFANA = f"{PREFIX}/grafana:local"

_NOT_NEEDED = ("var/cache/apt/*", "var/lib/apt/lists/*", "usr/share/doc/*", "usr/share/man/*", "usr/share/locale/*")
# The paths and the user of the official image.
_PROMETHEUS_FILE = f"""
FROM {BASE}
COPY prometheus promtool /bin/
RUN mkdir -p /prometheus /etc/prometheus && chown 65534:65534 /prometheus
USER 65534
VOLUME /prometheus
WORKDIR /prometheus
ENTRYPOINT ["/bin/prometheus"]
"""
_ALERTMANAGER_FILE = f"""
FROM {BASE}
COPY bin/prometheus-alertmanager /bin/alertmanager
COPY bin/amtool /bin/amtool
COPY share/prometheus/alertmanager /usr/share/prometheus/alertmanager
RUN mkdir -p /alertmanager /etc/alertmanager && chown 65534:65534 /alertmanager
USER 65534
ENTRYPOINT ["/bin/alertmanager"]
"""
# Grafana's image cannot be had: what takes its place has its user, its folder and its start, and answers the health check.
_GRAFANA_FILE = f"""
FROM {BASE}
RUN mkdir -p /var/lib/grafana /srv/api && chown 472:0 /var/lib/grafana && touch /srv/api/health
RUN printf '#!/bin/sh\\nexec python3 -m http.server --directory /srv 3000\\n' >/run.sh && chmod 755 /run.sh
RUN printf '#!/bin/sh\\nexec python3 -c "import urllib.request as u; u.urlopen(\\"http://127.0.0.1:3000/api/health\\")"\\n' >/bin/wget
RUN chmod 755 /bin/wget
ENV GF_PATHS_DATA=/var/lib/grafana
USER 472
ENTRYPOINT ["/run.sh"]
"""


def make_base(folder: Path) -> None:
    """Makes the base image: the official one if it can be had, else a small Debian with its own Python."""
    if succeeds(["docker", "pull", "--quiet", OFFICIAL_BASE], timeout_seconds=300):
        run(["docker", "tag", OFFICIAL_BASE, BASE])
        return
    root = folder / "base"
    run(
        ["debootstrap", "--variant=minbase", "--include=ca-certificates,python3,python3-venv", SUITE, root, _mirror()],
        timeout_seconds=600,
    )
    archive = folder / "base.tar"
    run(["tar", "-C", root, *(f"--exclude=./{name}" for name in _NOT_NEEDED), "-cf", archive, "."], timeout_seconds=120)
    run(["docker", "import", archive, BASE], timeout_seconds=120)
    archive.unlink()
    shutil.rmtree(root)


def make_prometheus(folder: Path) -> None:
    """Puts Debian's Prometheus into an image with the paths of the official one."""
    folder.mkdir()
    for name in ("prometheus", "promtool"):
        shutil.copy2(Path(shutil.which(name) or name).resolve(), folder / name)
    (folder / "Dockerfile").write_text(_PROMETHEUS_FILE)
    run(["docker", "build", "--tag", PROMETHEUS, folder], timeout_seconds=300, environment={"DOCKER_BUILDKIT": "0"})


def make_alertmanager(folder: Path) -> None:
    """Puts Debian's Alertmanager into an image with the paths of the official one."""
    (fetch_alertmanager(folder).parent / "Dockerfile").write_text(_ALERTMANAGER_FILE)
    run(
        ["docker", "build", "--tag", ALERTMANAGER, folder / "usr"],
        timeout_seconds=300,
        environment={"DOCKER_BUILDKIT": "0"},
    )


def make_grafana(folder: Path) -> None:
    """Makes an image that takes the place of Grafana's."""
    folder.mkdir()
    (folder / "Dockerfile").write_text(_GRAFANA_FILE)
    run(["docker", "build", "--tag", GRAFANA, folder], timeout_seconds=300, environment={"DOCKER_BUILDKIT": "0"})


def fetch_alertmanager(folder: Path) -> Path:
    """Unpacks Debian's Alertmanager into a folder, and returns where its programs are.

    That of the release after `SUITE`, since the one of `SUITE` is older than the image's and knows no `url_file`.
    """
    lists, packages = folder / "lists", folder / "packages"
    for part in (lists / "partial", packages / "archives" / "partial"):
        part.mkdir(parents=True)
    key = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (folder / "sources.list").write_text(f"deb [signed-by={key}] {_mirror()} {NEXT_SUITE} main\n")
    options = {
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": lists,
        "Dir::Cache": packages,
        "APT::Sandbox::User": "root",
    }
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    for command in (("update", "-qq"), ("download", "-qq", "prometheus-alertmanager")):
        run(["apt-get", *words, *command], timeout_seconds=300, folder=folder)
    (package,) = folder.glob("prometheus-alertmanager_*.deb")
    run(["dpkg-deb", "-x", package, folder])
    return folder / "usr" / "bin"


def fetch_wheels(clone: Path) -> None:
    """Fills the folder of wheels of a clone, as deploy/docker/README.md says."""
    script = clone / "deploy" / "docker" / "wheels.sh"
    run([script], timeout_seconds=900, environment={"PYTHON": sys.executable}, folder=clone)


def remove_all() -> None:
    """Removes the images that were made here."""
    for image in (LEARNER, ACTOR, PROMETHEUS, ALERTMANAGER, GRAFANA, BASE):
        succeeds(["docker", "image", "rm", image])
    # The stages that built them; not those that another checkout builds on now.
    succeeds(["docker", "image", "prune", "--force", "--filter", "until=1h"])


def _mirror() -> str:
    """Returns the address that this machine takes Debian's packages from."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", f"Codename: {SUITE}", "Component: main"]
    addresses = run([*command, "Created-By: Packages"]).split()
    if not addresses:
        raise CommandError(f"apt knows no source of {SUITE}; apt-get update reads the sources")
    return addresses[0]
