"""Looks the pinned packages up in a database of known faults, with pip-audit: `make audit`.

    python deploy/audit.py                    every package of constraints.txt; exit code 1 if one has a known fault
    python deploy/audit.py --service osv      another database (pypi, osv); all arguments are passed to pip-audit

pip-audit gets an environment of its own, .venv-audit, because it needs other versions than the project. Without a
network, or at an index without that database, there is no answer: the exit code is then 3, never 0.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
VENV: Final = ROOT / ".venv-audit"
REQUIREMENTS: Final = Path("deploy", "audit-requirements.txt")
UNREACHABLE: Final = 3
FAULTS_FOUND: Final = 1


def program(name: str) -> Path:
    """Returns the path of a program of the environment."""
    folder = sysconfig.get_path("scripts", "venv", vars={"base": str(VENV)})
    return Path(folder, name + (sysconfig.get_config_var("EXE") or ""))


def install() -> int:
    """Makes the environment, unless it has what is asked; returns pip's exit code."""
    installed = VENV / ".installed"
    if installed.exists() and installed.stat().st_mtime >= (ROOT / REQUIREMENTS).stat().st_mtime:
        return 0
    subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)  # noqa: S603
    options = ["--quiet", "--require-hashes", "--no-deps", "-r", str(REQUIREMENTS)]
    code = subprocess.call([str(program("python")), "-m", "pip", "install", *options], cwd=ROOT)  # noqa: S603
    if not code:
        installed.touch()
    return code


def audit(command: list[str]) -> int:
    """Runs pip-audit on all pins and prints the known faults.

    Args:
        command: The program and further arguments.

    Returns:
        0 if no package has a known fault; `FAULTS_FOUND`; `UNREACHABLE` if the database has no answer for a package.
    """
    pins = ["--requirement", "constraints.txt", "--no-deps", "--disable-pip"]
    options = ["--progress-spinner", "off", "--format", "json"]
    done = subprocess.run([*command, *pins, *options], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    try:
        found = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        last = next((line.strip() for line in reversed(done.stderr.splitlines()) if line.strip()), "no message")
        return _unknown(last[:200])
    faulty = [(each, fault) for each in found for fault in each.get("vulns", ())]
    for package, fault in faulty:
        fixed = ", ".join(fault.get("fix_versions", ())) or "no version yet"
        sys.stdout.write(f"{package['name']} {package['version']}: {fault['id']}, fixed in {fixed}\n")
    skipped = [each["name"] for each in found if "skip_reason" in each]
    if skipped:
        return (
            FAULTS_FOUND if faulty else _unknown(f"{len(skipped)} of {len(found)} packages: {', '.join(skipped[:5])}")
        )
    sys.stdout.write(f"{len(found)} packages, {len(faulty)} known faults\n")
    return FAULTS_FOUND if faulty else 0


def _unknown(why: str) -> int:
    sys.stderr.write(
        f"audit: the database has no answer ({why}), so nothing is known about the packages: run this where the network allows "
        "it, or choose another database with --service osv\n"
    )
    return UNREACHABLE


def main() -> int:
    """Audits the pins."""
    code = install()
    if code:
        sys.stderr.write("audit: pip-audit cannot be installed; it needs the package index once\n")
        return UNREACHABLE
    return audit([str(program("pip-audit")), "--vulnerability-service", *_service(sys.argv[1:])])


def _service(arguments: list[str]) -> list[str]:
    """Returns the arguments with the database first: pypi, unless ``--service`` names another."""
    if "--service" not in arguments:
        return ["pypi", *arguments]
    at = arguments.index("--service")
    return [*arguments[at + 1 : at + 2], *arguments[:at], *arguments[at + 2 :]]


if __name__ == "__main__":
    os.environ.setdefault("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    sys.exit(main())
