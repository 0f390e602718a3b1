"""Options of every gRPC server and channel in Rollcast, with the reason for each."""

from typing import Any

from rollcast import limits


def server_options(
    max_message_bytes: int = limits.MAX_CHUNK_BYTES,
    *,
    max_connections: int = limits.MAX_OPERATOR_CONNECTIONS,
    max_streams: int = limits.MAX_STREAMS,
) -> list[tuple[str, Any]]:
    """Returns the options for `grpc.aio.server`.

    Args:
        max_message_bytes: The largest payload of a message (a chunk); room for the surrounding bytes is added here.
            gRPC ends the whole stream on a larger message, without details, so the limit must be above that of
            Rollcast's own check, which gives a reason.
        max_connections: Most connections at once; gRPC closes more without a reason.
        max_streams: Most calls and streams at once in a connection; further ones wait at the client.
    """
    return [
        # By default a second server binds the same port without an error, and the kernel distributes connections
        # between them.
        ("grpc.so_reuseport", 0),
        *_message_limits(max_message_bytes),
        *_keepalive(),
        # The name under which a server allows frequent pings. The similar name with `recv` is ignored silently, and
        # clients are disconnected with "Too many pings".
        ("grpc.http2.min_ping_interval_without_data_ms", limits.MIN_PING_INTERVAL_SECONDS * 1000),
        ("grpc.max_allowed_incoming_connections", max_connections),
        ("grpc.max_concurrent_streams", max_streams),
        # By default a client may take two minutes to say what it wants, and holds a descriptor meanwhile.
        ("grpc.server_handshake_timeout_ms", limits.HANDSHAKE_SECONDS * 1000),
        # Without this a connection without a call stays open for ever.
        ("grpc.max_connection_idle_ms", limits.IDLE_CONNECTION_SECONDS * 1000),
    ]


def channel_options(max_message_bytes: int = limits.MAX_CHUNK_BYTES) -> list[tuple[str, Any]]:
    """Returns the options for `grpc.aio.insecure_channel` and related functions.

    Args:
        max_message_bytes: As for `server_options`.
    """
    return [
        *_message_limits(max_message_bytes),
        *_keepalive(),
        # A restarted learner is found within about a second, not after gRPC's two minutes.
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", round(limits.MAX_RECONNECT_BACKOFF_SECONDS * 1000)),
        # Despite its name, the time-out of one attempt to connect (20 s by default): an address that drops packets,
        # such as that of a replaced container, must not delay the next attempt.
        ("grpc.min_reconnect_backoff_ms", 5000),
        # Channels with equal options otherwise share one connection, and a policy would delay acks.
        ("grpc.use_local_subchannel_pool", 1),
    ]


def _message_limits(max_message_bytes: int) -> list[tuple[str, Any]]:
    limit_bytes = max_message_bytes + limits.MESSAGE_HEADROOM_BYTES
    return [("grpc.max_receive_message_length", limit_bytes), ("grpc.max_send_message_length", limit_bytes)]


def _keepalive() -> list[tuple[str, Any]]:
    return [
        # Streams have no deadline: both sides notice a vanished peer by unanswered pings.
        ("grpc.keepalive_time_ms", limits.KEEPALIVE_SECONDS * 1000),
        ("grpc.keepalive_timeout_ms", limits.KEEPALIVE_TIMEOUT_SECONDS * 1000),
        # Pings have another time-out, a minute by default, which takes precedence: without this line a connection that
        # drops everything was closed after 90 s, not 40 (gRPC 1.85).
        ("grpc.http2.ping_timeout_ms", limits.KEEPALIVE_TIMEOUT_SECONDS * 1000),
        # Between two streams of a session there may be no call for a moment.
        ("grpc.keepalive_permit_without_calls", 1),
        # In a pause no data flows for hours; by default pings stop after two.
        ("grpc.http2.max_pings_without_data", 0),
    ]
