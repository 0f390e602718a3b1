"""A tiny distribution, installed as by pip: modules next to a dist-info folder with entry points."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path


def install(site: Path, name: str, module: str, entry_points: Mapping[str, Mapping[str, str]]) -> Path:
    """Writes a distribution of one module into a folder for packages, and returns the folder.

    Args:
        site: The folder; put it on ``sys.path`` or ``PYTHONPATH``.
        name: Of the distribution and its module.
        module: The module's text.
        entry_points: By group and name.
    """
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (site / f"{name}.py").write_text(textwrap.dedent(module), encoding="utf-8")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "RECORD").write_text(f"{name}.py,,\n{info.name}/METADATA,,\n{info.name}/entry_points.txt,,\n")
    sections = (
        "\n".join([f"[{group}]", *(f"{k} = {v}" for k, v in points.items())]) for group, points in entry_points.items()
    )
    (info / "entry_points.txt").write_text("\n\n".join(sections) + "\n")
    return site
