"""The flags of `rollcast act clients`."""

import argparse
from typing import Final

from actor_client.command_line import Command, add_common, add_opponent, add_recording

DESCRIPTION: Final = """\
Acts for clients: simulators in any language that hold no policy. Each sends what its agents observe, and gets their actions;
this gateway runs the policies and records the experience. protos/CLIENTS.md describes the messages.

  rollcast act clients --listen 127.0.0.1:50052
  rollcast act clients --listen 127.0.0.1:50052 --web 127.0.0.1:50053 --learner gpu.lan:50051 --certs mine
  rollcast act clients --listen 0.0.0.0:50052 --clients-auth clients.tokens --clients-tls-cert gate.pem --clients-tls-key gate.key
"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `rollcast act clients`; `actor_client.settings.clients` checks their values."""
    parser.add_argument(
        "--listen", metavar="HOST:PORT", help="address for clients with gRPC (default: 127.0.0.1:50052)"
    )
    parser.add_argument(
        "--web",
        metavar="HOST:PORT",
        help="address for clients with WebSocket or HTTP, and of a page that is a client (default: none)",
    )
    parser.add_argument(
        "--allow-origin",
        metavar="ORIGIN",
        action="append",
        help="let pages of this server be clients of --web, as https://play.example; may be repeated",
    )
    parser.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        help="a further host name by which clients reach --web; may be repeated",
    )
    parser.add_argument("--max-clients", metavar="N", help="most clients at once (default: 1024)")
    parser.add_argument(
        "--max-message-bytes", metavar="N", help="largest message of a client in bytes (default: 4194304)"
    )
    parser.add_argument(
        "--window-ms",
        metavar="MS",
        help="longest wait for the others, so that clients in step share a batch; 0 = none (default: 2)",
    )
    parser.add_argument(
        "--clients-auth",
        metavar="FILE",
        help="file with the hashes of clients' tokens, of the role client (default: no token needed)",
    )
    parser.add_argument("--clients-tls-cert", metavar="FILE", help="certificate of this gateway, to serve TLS")
    parser.add_argument("--clients-tls-key", metavar="FILE", help="private key of --clients-tls-cert")
    add_opponent(parser)
    add_recording(parser)
    add_common(parser)


COMMAND: Final = Command(
    "act for clients: simulators in any language that hold no policy",
    DESCRIPTION,
    add_flags,
    "actor_client.clients.app:run_clients",
    "clients",
)
