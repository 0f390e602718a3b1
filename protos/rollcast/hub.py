"""Fetches runs that others have shared on the Hugging Face hub. What they hold is a stranger's: names and sizes are checked.

`HF_ENDPOINT` names another hub, and `HF_TOKEN` the account, as for every program of huggingface_hub.
"""

import errno
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from rollcast.limits import MAX_POLICY_BYTES, MIB
from rollcast.text import in_one_line, printable

SCHEME: Final = "hf://"
"""Beginning of a source that is a repository of the hub, as in ``hf://user/name``."""
CARD: Final = "README.md"
CURVE: Final = "curve.svg"
SETTINGS: Final = "configuration.yaml"
_NAME: Final = r"[^\x00-\x1f\x7f/\\:*?\"<>|. ][^\x00-\x1f\x7f/\\:*?\"<>|]{0,199}"
_LARGEST: Final = (
    (re.compile(rf"{_NAME}\.onnx|{_NAME}/best\.onnx"), MAX_POLICY_BYTES),
    (re.compile(rf"README\.md|curve\.svg|summary\.json|configuration\.yaml|{_NAME}/stats\.csv"), 64 * MIB),
    (re.compile(rf"{_NAME}/(?:checkpoint|best)\.pt"), 4096 * MIB),
)
"""Files of a shared run, and the most bytes of each."""
MODELS: Final = _LARGEST[0][0]
MAX_FILES: Final = 256
T = TypeVar("T")
_REPOSITORY: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_PIECE_BYTES: Final = 1 << 20
_SECONDS: Final = 60.0
"""Longest silence of the hub."""


class HubError(Exception):
    """Raised if a run cannot be shared or fetched.

    Args:
        message: One line.
        status: Status of the hub's answer: 404 for what does not exist, 401 or 403 for what is not allowed; 0 without an answer,
            and 422 for what is not a shared run.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


def open_hub(repository: str) -> Any:
    """Returns huggingface_hub's client, after a check of the repository's name.

    Raises:
        HubError: The name is not ``user/name``.
        ModuleNotFoundError: huggingface_hub is not installed.
    """
    if not _REPOSITORY.fullmatch(repository) or ".." in repository or "--" in repository:
        raise HubError(f"{printable(repository)!r} is not a repository of the hub: write USER/NAME", 422)
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # read at its import
    from huggingface_hub import HfApi  # noqa: PLC0415 - an extra, and half a second to import
    from huggingface_hub.utils import disable_progress_bars  # noqa: PLC0415 - see above

    disable_progress_bars()
    return HfApi(os.environ.get("HF_ENDPOINT"), library_name="rollcast")


def asked(repository: str, ask: Callable[[], T]) -> T:
    """Returns what a call of the client returns.

    Raises:
        HubError: It failed, for whatever reason; that of the hub, if it gave one.
    """
    try:
        return ask()
    except HubError:
        raise
    except Exception as error:  # the client's have no common base: of HTTP, of the system, ValueError, RuntimeError
        response = getattr(error, "response", None)
        status = getattr(response, "status_code", 0)
        said = getattr(error, "server_message", None) or in_one_line(error)
        hint = "; log in with hf auth login, or set HF_TOKEN" if status in {401, 403} else ""
        raise HubError(f"the hub, of {repository}: {printable(' '.join(str(said).split()))}{hint}", status) from error


def pull(repository: str, folder: Path, wanted: re.Pattern[str] | None = None) -> list[str]:
    """Fetches the files of a shared run into a new folder, all or none, and returns their names.

    Files of other names than those of a shared run are left in the repository.

    Args:
        repository: ``user/name``.
        folder: The folder, which must not exist yet.
        wanted: Matches the names of the files to fetch; None for all.

    Raises:
        HubError: The repository does not exist or holds no run, a file is too large, or the hub does not answer.
        OSError: The files cannot be written.
        ModuleNotFoundError: huggingface_hub is not installed.
    """
    api = open_hub(repository)
    from huggingface_hub import hf_hub_url  # noqa: PLC0415 - see open_hub

    if folder.exists():
        raise FileExistsError(errno.EEXIST, "it exists: name another folder, or remove it", str(folder))
    info = asked(repository, lambda: api.model_info(repository, files_metadata=True, timeout=_SECONDS))
    limits: dict[str, int] = {}
    for each in info.siblings or ():
        name = each.rfilename
        for known, most in _LARGEST:
            if name.isprintable() and known.fullmatch(name) and (wanted is None or wanted.fullmatch(name)):
                limits[name] = most
                _check_size(name, each.size or 0, most)
    has_model = any(MODELS.fullmatch(name) for name in limits)
    if len(limits) > MAX_FILES or not has_model:
        how = f"{len(limits)} files, the limit is {MAX_FILES}" if has_model else "no exported model"
        raise HubError(f"{repository} is not a run that rollcast push shared: it has {how}", 422)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".tmp-", dir=folder.parent) as place:
        made = Path(place, folder.name)
        made.mkdir()
        for name, most in sorted(limits.items()):
            path = made / name
            path.parent.mkdir(exist_ok=True)
            url = hf_hub_url(repository, name, revision=info.sha, endpoint=api.endpoint)
            asked(repository, lambda: _fetch(url, name, path, most))  # noqa: B023 - called at once
        made.rename(folder)
    return sorted(limits)


def _check_size(name: str, size_bytes: int, most: int) -> None:
    if size_bytes > most:
        raise HubError(f"{printable(name)} has {size_bytes} bytes; the limit is {most}", 422)


def _fetch(url: str, name: str, path: Path, most: int) -> None:
    """Writes a file of a revision as it comes, so that one that is larger than the hub said fills no disk."""
    from huggingface_hub import get_session  # noqa: PLC0415 - see open_hub
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status  # noqa: PLC0415 - see open_hub

    with (
        get_session().stream("GET", url, headers=build_hf_headers(library_name="rollcast"), timeout=_SECONDS) as answer,
        path.open("xb") as file,
    ):
        hf_raise_for_status(answer)
        size_bytes = 0
        for piece in answer.iter_bytes(_PIECE_BYTES):
            size_bytes += len(piece)
            _check_size(name, size_bytes, most)
            file.write(piece)
