"""Implements ``certs``: makes the certificates and tokens of a learner and its clients."""

from __future__ import annotations

import argparse
import errno
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from rollcast.addresses import join_address
from rollcast.auth import (
    MAX_FILE_BYTES,
    JoinCode,
    Principal,
    Role,
    TokenRow,
    check_name,
    make_token,
    moment,
    parse_tokens,
    token_hash,
)
from rollcast.files import read_regular, replaceable
from rollcast.server_tls import POLL_SECONDS

from learner.cli.certs_flags import DEFAULT_PORT
from learner.service.identity.access import SETTLE_SECONDS, with_article
from learner.service.identity.authority import (
    AUTHORITY_KEY,
    CERTIFICATE_DAYS,
    Authority,
    all_hosts,
    hosts_of,
    principal_in,
    private_folder,
    save_server,
    write,
)
from learner.shared.exits import ExitCode, UserError
from learner.shared.runfolder.lock import locked_folder
from learner.shared.settings.addresses import AUTHORITY, SERVER_CERT, SERVER_KEY, TOKENS

FIRST_ACTOR: Final = "actors"
"""Principal of the token that `certs init` makes."""
_CLIENT_CERT: Final = "client.pem"
_CLIENT_KEY: Final = "client.key"
_MAX_TOKEN_BYTES: Final = 1024
_PORT_FILE: Final = "port"
"""Name of the file with the port of join codes."""
_MAX_PORT_BYTES: Final = 64
_HEAD: Final = b"""\
# Tokens of this learner's clients, one a line: PRINCIPAL ROLE sha256:HASH [max_sessions=N] [behaviors=A,B] [not_after=DATE]
# Roles: actor, viewer, operator, trainer, client. Remove a line to revoke its token; a running learner notices within seconds.
"""


def init(parsed: argparse.Namespace) -> int:
    """Makes an authority, the learner's certificate and a token for actors; prints a join code."""
    folder: Path = parsed.folder
    if (folder / AUTHORITY).exists():
        raise UserError(
            ExitCode.USAGE,
            f"{folder} already has an authority, which clients trust: renew certificates with rollcast certs renew "
            f"{folder}, or choose another folder",
        )
    made = [folder / name for name in (SERVER_KEY, SERVER_CERT, TOKENS, _PORT_FILE, AUTHORITY_KEY)]
    for path in made:
        if os.path.lexists(path):
            raise UserError(
                ExitCode.USAGE, f"{path} exists, and this command would replace it: choose another folder, or remove it"
            )
    hosts = all_hosts(parsed.host)
    private_folder(folder)
    authority = Authority.make(f"Rollcast authority of {hosts[0]}")
    token = make_token()
    row = _row(Principal(FIRST_ACTOR, Role.ACTOR), token, None)
    try:
        save_server(folder, authority, hosts)
        write(folder / TOKENS, _HEAD + f"{row.line()}\n".encode(), private=True)
        write(folder / _PORT_FILE, f"{parsed.port}\n".encode())
        authority.save(folder)
    except UserError:
        for path in made:  # so that the command can be repeated
            with suppress(OSError):
                path.unlink()
        raise
    _say(f"wrote {folder}: a certificate for {', '.join(hosts)}, valid for {CERTIFICATE_DAYS} days")
    _say(f"keep {folder / 'authority'} elsewhere: only `certs client` and `certs renew` need it")
    _say(f"1. here:              rollcast serve RUN.yaml --certs {folder} --address 0.0.0.0:{parsed.port}")
    _say("2. on other machines: rollcast join certs, then rollcast act gym --env ID --certs certs")
    _say("The join code of actors contains their token; treat it like a password:")
    _say(_join_code(folder, hosts[0], parsed.port, token, FIRST_ACTOR))
    return ExitCode.OK


def client(parsed: argparse.Namespace) -> int:
    """Makes the certificate of a client, in a folder of its own."""
    folder: Path = parsed.folder
    principal = Principal(_name(parsed.name), Role(parsed.role))
    target = folder / "clients" / principal.name
    authority = Authority.load(folder)
    _require_of_client(target, principal, _authority(folder))
    cert, key = authority.client(principal, parsed.days)
    private_folder(target)
    write(target / AUTHORITY, _authority(folder))
    write(target / _CLIENT_KEY, key, private=True)
    write(target / _CLIENT_CERT, cert)
    _say(f"wrote {target}: certificate of {principal.role} {principal.name}, valid for {parsed.days:g} days")
    _say(f"require client certificates with: rollcast serve RUN.yaml --tls-client-ca {folder / AUTHORITY}")
    return ExitCode.OK


def renew(parsed: argparse.Namespace) -> int:
    """Makes a new certificate of the learner, with the names of the old one and further ones."""
    folder: Path = parsed.folder
    hosts = all_hosts([*parsed.host, *hosts_of(folder)])
    save_server(folder, Authority.load(folder), hosts, parsed.days)
    _say(f"wrote {folder}: a certificate for {', '.join(hosts)}, valid for {parsed.days:g} days")
    _say("a running learner uses it within seconds; connections stay open")
    return ExitCode.OK


def token(parsed: argparse.Namespace) -> int:
    """Adds a token of a principal, and prints it, or writes it to a file."""
    folder: Path = parsed.folder
    limits = frozenset(parsed.behaviors.split(",")) if parsed.behaviors else None
    principal = Principal(_name(parsed.name), Role(parsed.role), parsed.max_sessions, limits)
    if parsed.join and principal.role is not Role.ACTOR:
        raise UserError(
            ExitCode.USAGE,
            f"--join is for actors, and --role is {principal.role}: give --output FILE, or neither to print the token",
        )
    made = make_token()
    row = _row(principal, made, parsed.not_after)
    said = made
    if parsed.join:
        said = _join_code(folder, hosts_of(folder)[0], parsed.port or _port(folder), made, principal.name)
    with locked_folder(folder):  # of two commands side by side, one would lose the line of the other
        content = _with_row(folder, row)
        if parsed.output is not None:  # before the line: a token that nobody has got must not be valid
            _require_own(parsed.output, folder, principal)
            write(parsed.output, made.encode() + b"\n", private=True)
            said = f"wrote the token of {principal.role} {principal.name} to {parsed.output}"
        write(folder / TOKENS, content, private=True)
    _say(said)
    sys.stderr.write(
        f"a running learner takes it within {POLL_SECONDS + SETTLE_SECONDS:.0f} s\n"
    )  # no part of the token
    return ExitCode.OK


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _row(principal: Principal, made: str, not_after: str | None) -> TokenRow:
    try:
        row = TokenRow(principal, token_hash(made), None if not_after is None else moment(not_after))
    except ValueError as error:
        raise UserError(ExitCode.USAGE, f"--not-after {not_after}: {error}") from None
    if not row.is_valid(time.time()):
        raise UserError(ExitCode.USAGE, f"--not-after {not_after} is in the past")
    return row


def _with_row(folder: Path, row: TokenRow) -> bytes:
    """Returns the content of the token file with a further line."""
    path = folder / TOKENS
    try:
        text = read_regular(path, MAX_FILE_BYTES).decode("utf-8-sig")
        added = f"{text}{'' if text.endswith(chr(10)) else chr(10)}{row.line()}\n"
        parse_tokens(added)
    except OSError as error:
        raise _missing(path, folder, error) from None
    except ValueError as error:
        raise UserError(ExitCode.USAGE, f"{path}: {error}") from None
    return added.encode()


def _require_own(output: Path, folder: Path, principal: Principal) -> None:
    """Refuses to replace a file that holds anything but a token of the same principal.

    Raises:
        UserError: It holds something else, or cannot be read.
    """
    try:
        text = read_regular(replaceable(output), _MAX_TOKEN_BYTES).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return
    except OSError as error:
        code = ExitCode.USAGE if error.errno == errno.EFBIG else ExitCode.NOT_SAVED
        raise UserError(code, f"--output {output} cannot be replaced ({error.strerror}): choose another file") from None
    try:
        content = read_regular(folder / TOKENS, MAX_FILE_BYTES)
        found = parse_tokens(content.decode("utf-8-sig")).find(text, 0.0)  # expired ones, too
    except (OSError, ValueError):
        found = None
    if not text or (found is not None and (found.name, found.role) == (principal.name, principal.role)):
        return
    holds = "no token of this folder" if found is None else f"the token of {with_article(found.role)}, {found.name}"
    raise UserError(
        ExitCode.USAGE,
        f"--output {output} exists and holds {holds}, which {principal.role} {principal.name} would replace: choose another file, "
        "or remove it",
    )


def _require_of_client(target: Path, principal: Principal, authority: bytes) -> None:
    """Refuses to replace anything but the certificate of the same principal and authority.

    Raises:
        UserError: The folder holds something else, or what it holds cannot be read.
    """
    held: dict[str, bytes] = {}
    for name in (_CLIENT_CERT, _CLIENT_KEY, AUTHORITY):
        try:
            held[name] = read_regular(replaceable(target / name), MAX_FILE_BYTES)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise UserError(
                ExitCode.USAGE,
                f"{target / name} cannot be read ({error.strerror}), and this command would replace it: remove it, or choose "
                "another NAME",
            ) from None
    pem = held.get(_CLIENT_CERT)
    found = None if pem is None else principal_in(pem)
    if held.get(AUTHORITY, authority) != authority:
        holds = f"the certificate of another authority, {AUTHORITY}"
    elif found is not None and found != principal:
        holds = f"the certificate of {with_article(found.role)}, {found.name}, and --role is {principal.role}"
    elif pem is not None and found is None:
        holds = f"no certificate of a client in {_CLIENT_CERT}"
    elif pem is None and _CLIENT_KEY in held:
        holds = f"{_CLIENT_KEY} without its certificate {_CLIENT_CERT}, so that its principal is unknown"
    else:
        return
    raise UserError(ExitCode.USAGE, f"{target} has {holds}: choose another NAME, or move that folder")


def _port(folder: Path) -> int:
    """Returns the port that `certs init` was given; the default one if its file was removed."""
    try:
        return int(read_regular(folder / _PORT_FILE, _MAX_PORT_BYTES))
    except (OSError, ValueError):
        return DEFAULT_PORT


def _missing(path: Path, folder: Path, error: OSError) -> UserError:
    return UserError(
        ExitCode.USAGE,
        f"{path} cannot be read: {error.strerror}; make it with rollcast certs init {folder}",
    )


def _join_code(folder: Path, host: str, port: int, made: str, name: str) -> str:
    address = join_address(host, port)
    return JoinCode(address, _authority(folder).decode("ascii"), made, name).encode()


def _authority(folder: Path) -> bytes:
    try:
        return read_regular(folder / AUTHORITY, MAX_FILE_BYTES)
    except OSError as error:
        raise _missing(folder / AUTHORITY, folder, error) from None


def _name(given: str) -> str:
    try:
        return check_name(given)
    except ValueError as error:
        raise UserError(ExitCode.USAGE, f"{given!r}: {error}") from None
