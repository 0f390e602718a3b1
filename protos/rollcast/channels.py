"""Options of every gRPC server and channel in Rollcast, with the reason for each."""

from typing import Any

from rollcast import limits


def server_options(max_message_bytes: int = limits.MAX_CHUNK_BYTES) -> list[tuple[str, Any]]:
    """Options for `grpc.aio.server`.

    Args:
        max_message_bytes: the largest payload that a message carries (a chunk); room for what surrounds it is added
            here. gRPC ends the whole stream on a larger message, without details, so the limit must lie above what
            our own check refuses with a reason.
    """
    return [
        # By default a second server binds the same port without an error, and the kernel shares connections out.
        ("grpc.so_reuseport", 0),
        *_message_limits(max_message_bytes),
        *_keepalive(),
        # The name under which a server allows frequent pings. The similar name with `recv` in it is ignored in
        # silence, and clients are cut off with "Too many pings".
        ("grpc.http2.min_ping_interval_without_data_ms", limits.MIN_PING_INTERVAL_SECONDS * 1000),
    ]


def channel_options(max_message_bytes: int = limits.MAX_CHUNK_BYTES) -> list[tuple[str, Any]]:
    """Options for `grpc.aio.insecure_channel` and its kin.

    Args:
        max_message_bytes: as for `server_options`.
    """
    return [
        *_message_limits(max_message_bytes),
        *_keepalive(),
        # A learner that restarts is found within a second or so, not after gRPC's two minutes.
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", round(limits.MAX_RECONNECT_BACKOFF_SECONDS * 1000)),
        # Despite its name the time-out of one attempt to connect (20 s by default): an address that swallows packets,
        # as that of a replaced container does, must not hold up the next attempt.
        ("grpc.min_reconnect_backoff_ms", 5000),
        # Channels with equal options otherwise share one connection, and a policy would stand in the way of acks.
        ("grpc.use_local_subchannel_pool", 1),
    ]


def _message_limits(max_message_bytes: int) -> list[tuple[str, Any]]:
    limit_bytes = max_message_bytes + limits.MESSAGE_HEADROOM_BYTES
    return [("grpc.max_receive_message_length", limit_bytes), ("grpc.max_send_message_length", limit_bytes)]


def _keepalive() -> list[tuple[str, Any]]:
    return [
        # Streams have no deadline: a peer that vanished is noticed by unanswered pings, on either side.
        ("grpc.keepalive_time_ms", limits.KEEPALIVE_SECONDS * 1000),
        ("grpc.keepalive_timeout_ms", limits.KEEPALIVE_TIMEOUT_SECONDS * 1000),
        # A ping that was sent has another time-out, a minute by default, and that one decides: with the line above
        # alone a connection that swallows everything was given up after 90 s, not 40 (gRPC 1.85).
        ("grpc.http2.ping_timeout_ms", limits.KEEPALIVE_TIMEOUT_SECONDS * 1000),
        # Between two streams of a session there is a moment without a call.
        ("grpc.keepalive_permit_without_calls", 1),
        # In a pause no data flows for hours; by default pings then cease after two.
        ("grpc.http2.max_pings_without_data", 0),
    ]
