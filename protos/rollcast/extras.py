"""Says how optional parts are added to this installation, wherever it came from."""

import json
from typing import Any, Final
from urllib.parse import unquote, urlsplit

_NAME: Final = "rollcast"


def install(extras: str) -> str:
    """Returns the command that installs extras, such as ``pip install '/src/rollcast[learner]'``.

    Rollcast is not to be had by its name alone: the command names the folder, file or repository that it was installed from (PEP
    610), or, if that is unknown, a clone.

    Args:
        extras: Names of extras, separated by commas.
    """
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 - only after an error

    try:
        origin = json.loads(distribution(_NAME).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    return f"pip install {_requirement(origin, extras)}"


def _requirement(origin: dict[str, Any], extras: str) -> str:
    url = origin.get("url")
    if not isinstance(url, str) or not url:
        return f"'.[{extras}]' in a clone of Rollcast"
    version_control = origin.get("vcs_info")
    if isinstance(version_control, dict):
        revision = version_control.get("requested_revision") or version_control.get("commit_id")
        return f"'{_NAME}[{extras}] @ {version_control.get('vcs')}+{url}{f'@{revision}' if revision else ''}'"
    parts = urlsplit(url)
    if parts.scheme != "file":
        return f"'{_NAME}[{extras}] @ {url}'"
    directory = origin.get("dir_info")
    is_editable = isinstance(directory, dict) and directory.get("editable") is True
    return f"{'-e ' if is_editable else ''}'{unquote(parts.path)}[{extras}]'"
