"""The HTTP proxy of a connection, by the variables and rules of curl; never for this machine and private networks.

gRPC's own rules send connections to loopback through a proxy, too, and know neither ``HTTPS_PROXY`` nor ``all_proxy``. So each
channel is told whether there is a proxy, and which.
"""

import base64
import ipaddress
import os
import socket
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from rollcast.addresses import ip_of

_DEFAULT_PORT: Final = 1080  # as for curl
_PRIVATE: Final = tuple(
    ipaddress.ip_network(each)
    for each in (
        *(
            "0.0.0.0/32",
            "127.0.0.0/8",
            "10.0.0.0/8",
            "172.16.0.0/12",
            "192.168.0.0/16",
            "169.254.0.0/16",
            "100.64.0.0/10",
        ),
        *("::/128", "::1/128", "fc00::/7", "fe80::/10"),
    )
)
_PRIVATE_DOMAINS: Final = frozenset(
    {"localhost", "local", "internal", "intranet", "lan", "home", "private", "corp", "arpa"}
)
"""Last parts of names that no public name has; a name of one part is private, too."""
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy.

    Attributes:
        variable: The variable that names it.
        host: Its host.
        port: Its port.
        login: ``USER:PASSWORD@`` as in the variable, or empty.
        problem: Why it cannot be used, so that the connection is direct; empty if it is used.
    """

    variable: str
    host: str
    port: int
    login: str = ""
    problem: str = ""

    def __str__(self) -> str:
        """Returns words for messages, without the login."""
        return f"the proxy {self.host}:{self.port} of {self.variable}"

    def connect(self, host: str, port: int, seconds: float) -> socket.socket:
        """Returns a connection through the proxy.

        Raises:
            OSError: The proxy does not answer, or refuses.
        """
        import http.client  # noqa: PLC0415 - few connections go through a proxy

        tunnel = http.client.HTTPConnection(self.host, self.port, timeout=seconds)
        login = unquote(self.login.removesuffix("@")).encode()
        tunnel.set_tunnel(
            host, port, {"Proxy-Authorization": f"Basic {base64.b64encode(login).decode()}"} if login else {}
        )
        tunnel.connect()
        found: socket.socket = tunnel.sock
        return found


def proxy_of(host: str, *, tls: bool, variables: Mapping[str, str] = os.environ) -> Proxy | None:
    """Returns the proxy of connections to a host; None for a direct connection.

    Args:
        host: Name or address.
        tls: Whether the connection uses TLS, as with ``https`` for curl; otherwise as with ``http``.
        variables: The environment.
    """
    schemes = (
        ("https_proxy", "HTTPS_PROXY") if tls else ("http_proxy",)
    )  # HTTP_PROXY can be set by strangers of a CGI program
    names = ("grpc_proxy", *schemes, "all_proxy", "ALL_PROXY")
    name = next((name for name in names if name in variables), "")
    url = variables.get(name, "").strip()
    if not url or _is_spared(host, variables) or _is_private(host):
        return None
    return _parsed(name, url)


def proxy_options(address: str, *, tls: bool) -> list[tuple[str, Any]]:
    """Returns the options that tell a channel its proxy.

    Args:
        address: HOST:PORT.
        tls: Whether it uses TLS.
    """
    proxy = proxy_of(host_of(address), tls=tls)
    if proxy is None or proxy.problem:
        return [("grpc.enable_http_proxy", 0)]
    shown = f"[{proxy.host}]" if ":" in proxy.host else proxy.host
    return [("grpc.http_proxy", f"http://{proxy.login}{shown}:{proxy.port}")]


def host_of(address: str) -> str:
    """Returns the host of HOST:PORT, without brackets."""
    return address.rpartition(":")[0].strip("[]")


def proxy_words(address: str, *, tls: bool) -> str:
    """Returns what to know about the proxy when a connection fails, in one line; empty without a proxy.

    Args:
        address: HOST:PORT.
        tls: Whether the connection uses TLS.
    """
    proxy = proxy_of(host_of(address), tls=tls)
    if proxy is None:
        return ""
    if proxy.problem:
        return f"{proxy} cannot be used ({proxy.problem}), and the connection is direct"
    return f"the connection goes through {proxy}: check it, or connect directly with no_proxy={host_of(address)}"


def spare_loopback(variables: MutableMapping[str, str]) -> None:
    """Lets started programs connect to this machine without a proxy, such as Unity players, whose gRPC has its own rules."""
    for name in {"no_proxy", "NO_PROXY", "no_grpc_proxy"} & {"no_proxy", "NO_PROXY", *variables}:
        there = [entry for entry in (variables.get(name, ""), "localhost,127.0.0.1,::1") if entry]
        variables[name] = ",".join(there)


def _parsed(name: str, url: str) -> Proxy:
    whole = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(whole)
        host, port = parts.hostname or "", parts.port or _DEFAULT_PORT
    except ValueError:
        return Proxy(name, "?", 0, problem="its address is not valid")
    login = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    problem = "" if host else "its address has no host"
    if parts.scheme != "http":
        problem = f"gRPC has no {parts.scheme} proxies, only http"
    return Proxy(name, host, port, login, problem)


def _is_spared(host: str, variables: Mapping[str, str]) -> bool:
    names = ("no_grpc_proxy", "no_proxy", "NO_PROXY")
    listed = next((variables[name] for name in names if variables.get(name)), "")
    return any(_matches(host, entry) for entry in listed.replace(",", " ").split())


def _matches(host: str, entry: str) -> bool:
    """Returns whether an entry of ``no_proxy`` is for a host: a domain and its subdomains, an address, a network, or all."""
    if entry == "*":
        return True
    address = ip_of(host)
    if address is None:
        return f".{host.lower().rstrip('.')}".endswith(f".{entry.lower().strip('.')}")
    try:
        return address in ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        return False


def _is_private(host: str) -> bool:
    """Returns whether a host is this machine or of a private network, by its name or by all of its addresses."""
    address = ip_of(host)
    if address is not None:
        return _is_private_address(address)
    name = host.lower().rstrip(".")
    if "." not in name or name.rpartition(".")[2] in _PRIVATE_DOMAINS:
        return True
    try:
        found = {ip_of(str(each[4][0])) for each in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):  # perhaps only the proxy knows the name
        return False
    return all(each is not None and _is_private_address(each) for each in found)


def _is_private_address(address: _Address) -> bool:
    return any(address in network for network in _PRIVATE)
