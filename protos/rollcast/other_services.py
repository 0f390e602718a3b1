"""Finds out which other service answers at an address that a user gave for a learner's."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
import time
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

_SECONDS: Final = 3.0
_MOST_BYTES: Final = 2**18
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""Start of a connection of HTTP/2, with empty settings."""
_SETTINGS: Final = 4
Service: TypeAlias = Literal["grpc", "trainers", "page"]
"""What may be expected at an address: a learner's address for actors, that for trainers, or its status page."""
OF_TRAINERS: Final = "this is the learner's address for trainers"
"""What that address answers to whoever is no trainer."""
GRPC: Final = "gRPC answers there: a learner's address for actors"
"""What answers at an address of gRPC."""


def found_at(connect: Callable[[], socket.socket], host: str, port: int, expected: Service = "grpc") -> str:
    """Returns in words what answers at an address, if it is another service; empty if it is as expected, or nothing answers.

    Args:
        connect: Makes a connection, with TLS if that is used.
        host: The address, for the header of a request.
        port: Its port.
        expected: Service that is expected.

    Raises:
        OSError: Nothing answers.
    """
    said = _answer(connect, _PREFACE, 64)
    if len(said) >= 9 and said[0] == 0 and said[3] == _SETTINGS:
        return "" if expected == "grpc" else GRPC
    if OF_TRAINERS.encode() in said:
        return (
            f"{OF_TRAINERS} (--trainer-address), and actors connect to its --address" if expected != "trainers" else ""
        )
    web = _http_words(connect, host, port) if said else ""
    if web:
        return web
    banner = said.split(b"\n", 1)[0].strip()
    if len(banner) > 3 and banner.isascii() and banner.decode().isprintable():
        return f"another service answers there, with {banner.decode()[:60]!r}; give the learner's address"
    return ""


def _http_words(connect: Callable[[], socket.socket], host: str, port: int) -> str:
    """Returns in words which server of HTTP answers; empty if none does."""

    def get(path: str) -> str:
        request = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n"
        with contextlib.suppress(OSError):
            return _answer(connect, request.encode(), _MOST_BYTES).decode("utf-8", "replace")
        return ""

    home = get("/")
    if not home.startswith("HTTP/1."):
        return ""
    head = home.partition("\r\n\r\n")[0].lower()
    if "<title>Rollcast</title>" in home:
        address = _learner_of(get("/api/status"))
        known = f"is {address}" if address else "is in its line learner_started, and in address.json of its run folder"
        return f"the learner's status page answers there; its address for actors {known}"
    place = re.search(r"^location: (\S+)", head, re.MULTILINE)
    if "grafana" in head or (place and place[1].startswith("/login")):
        name = "Grafana"
    elif place and place[1].startswith(("/query", "/graph")):
        name = "Prometheus"
    else:
        name = "a web server"
    return f"{name} answers there, over HTTP; give the address in the learner's line learner_started"


def _learner_of(text: str) -> str:
    """Returns the learner's address in its status; empty if it is not told, as without a token."""
    try:
        found = json.loads(text[text.index("{") : text.rindex("}") + 1])["address"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return found if isinstance(found, str) and re.fullmatch(r"[\w.:\[\]-]{1,100}", found) else ""


def _answer(connect: Callable[[], socket.socket], request: bytes, most: int) -> bytes:
    """Returns the first bytes of an answer.

    Raises:
        OSError: Nothing answers.
    """
    said, until = bytearray(), time.monotonic() + _SECONDS
    with connect() as connection, contextlib.suppress(OSError, ssl.SSLError):
        connection.sendall(request)
        while len(said) < most and (left := until - time.monotonic()) > 0:
            connection.settimeout(left)
            read = connection.recv(most - len(said))
            if not read:
                break
            said += read
            if most <= 64 and (len(said) >= 9):
                break
    return bytes(said)
