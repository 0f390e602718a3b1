"""The link to the status page of a running learner, for those who may read its run folder."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from learner.exits import ExitCode, UserError
from learner.observe.address import find_running, page_url
from learner.web.operator_token import TOKEN_FILE, read_token

CONNECT_SECONDS: Final = 2.0


def page_link(run_id: str | None, results_dir: Path) -> str:
    """Returns the address of the page with the operator's token behind ``#``, which a browser sends to nobody.

    Where the token was given in a file of the user's, the link is without it: the page asks.

    Args:
        run_id: the run; None takes the only running one.
        results_dir: where run folders are.

    Raises:
        UserError: no learner runs there, it does not answer, serves no page, or keeps its token from this user.
    """
    folder, addresses = find_running(run_id, results_dir)
    if not addresses.http:
        raise UserError(
            ExitCode.UNREACHABLE, f"the learner of {folder} serves no page; start it with rollcast.http: true"
        )
    url = page_url(addresses.http)
    _require_answer(url)
    token = read_token(folder)
    if token is not None:
        return f"{url}#token={quote(token.reveal(), safe='')}"
    if (folder / TOKEN_FILE).exists():
        raise UserError(
            ExitCode.UNREACHABLE,
            f"{folder / TOKEN_FILE} is for the learner's user alone; the page without buttons is at {url}",
        )
    return url


def _require_answer(url: str) -> None:
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 0), CONNECT_SECONDS).close()
    except OSError:
        raise UserError(
            ExitCode.UNREACHABLE, f"no learner answers at {url}; if it was killed, start it again with --resume"
        ) from None
