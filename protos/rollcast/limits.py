"""Limits that both sides keep, each with its reason.

The answer to OpenSession has the values that a run may choose (chunk sizes, ages); here are the defaults and the outer
bounds.
"""

import re
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

PROTOCOL_REVISION: Final = 1
"""Revision of the behavior described in protos/README.md. Both sides send theirs; the smaller one is used."""
OLDEST_PROTOCOL_REVISION: Final = 1
"""A learner answers PROTOCOL_TOO_OLD to any lower revision."""

MAX_CHUNK_BYTES: Final = 4 * MIB
"""Most encoded bytes of a chunk: gRPC's default message limit, well above the best throughput (about 1 MiB)."""
TARGET_CHUNK_BYTES: Final = 256 * KIB
"""Encoded bytes at which a chunk is sent: Python's cost per message is small, and the steps are still fresh."""
MAX_DECODED_CHUNK_BYTES: Final = 64 * MIB
"""Bytes of all columns of a chunk after unpacking. Byte pictures shrink about 15 times, so this is 16 full chunks."""
MESSAGE_HEADROOM_BYTES: Final = 64 * KIB
"""Bytes around the largest payload in its gRPC message: the `oneof` around a chunk, an ack with many credits."""
MAX_REQUEST_BYTES: Final = 64 * KIB
"""Bytes of a request that is neither a chunk nor a declaration; a report on 64 behaviors has about 10 KiB."""
MAX_DECLARATION_BYTES: Final = 1 * MIB
"""Bytes of a DeclareBehavior request; the longest descriptions of 4,352 actions have half of that."""
UNCOUNTED_BYTES: Final = 16 * KIB
"""Size up to which the fields of a chunk are not counted before parsing, because even the most cost little."""
MAX_CHUNK_FIELDS: Final = 2048
"""Fields of a chunk's own: the most columns, keys, opponents and reasons, and its numbers."""

FRAME_BYTES: Final = 1 * MIB
"""Largest `data` of a PolicyFrame. Server streaming in Python peaks at 1 MiB."""
INLINE_BYTES: Final = MIB // 16
"""Largest policy, in encoded bytes, that an actor takes in one message with its header."""
MAX_POLICY_BYTES: Final = 1024 * MIB
"""Largest policy after unpacking. An ONNX file is one protobuf message, which cannot pass 2 GiB."""

MAX_RANK: Final = 8
"""Axes of a tensor, the row axis of a column included."""
MAX_EMPTY_EXTENT_BYTES: Final = 2**31
"""Largest size of a tensor without elements, with its empty axes counted as 1; numpy can address it on every system."""
MAX_COLUMNS: Final = 256
"""Columns of one chunk; each costs a lookup and a check."""
MAX_OBSERVATIONS: Final = 64
"""Observations of a behavior. Each makes two columns, so that half of MAX_COLUMNS stays free."""
MAX_REASONS: Final = 64
"""Different reasons in one list of counts; each becomes a metric label."""
MAX_REPORTS: Final = 1024
"""Behaviors in one report of an actor, and policies in a list of those it holds."""
MAX_STEPS: Final = 2**53
"""Largest counter of steps: no actor takes so many, and the sum of a thousand counters fits the wire's uint64."""
MAX_STAT_KEYS: Final = 1024
"""Different statistics keys in one chunk."""
MAX_STAT_KEY_LENGTH: Final = 256
"""Characters of a statistics key; each becomes a file or tag name of a tracker."""
MAX_OPPONENTS: Final = 256
"""Different opponents in one chunk."""
MAX_RECORD_MOVES: Final = 2048
"""Moves of a game record; a random game of chess has up to 500."""
MAX_RECORD_CHARACTERS: Final = 16384
"""Characters of all moves of a game record with their line feeds; the longest games have about 4,000."""
MAX_BEHAVIOR_NAME_LENGTH: Final = 128
"""Characters of a behavior name; it becomes a file name (most file systems allow 255 bytes with a suffix)."""
MAX_CONTINUOUS_ACTIONS: Final = 4096
"""Continuous axes of a behavior."""
MAX_BRANCHES: Final = 256
"""Discrete branches of a behavior."""
MAX_CATEGORIES: Final = 65536
"""Sum of the choices of all branches, and of the categories of an observation; each becomes a network unit."""
MAX_DESCRIPTION_LENGTH: Final = 128
"""Characters of the description of an action, and of a key on the way to an observation."""
MAX_PATH: Final = 16
"""Dicts and Tuples around an observation in its environment."""
MAX_MODEL_CARD_BYTES: Final = MIB
"""What an exported model says about itself, in its metadata; with 4,096 axes it takes 300 kB."""

NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Names of observations, and the part after the slash in a column name. Use with `fullmatch`."""
COLUMN_NAME_PATTERN: Final = re.compile(r"(?:[a-z_]{1,15}/)?[A-Za-z0-9_.-]{1,64}")
"""Names of columns, with at most one prefix. Use with `fullmatch`."""
REASON_PATTERN: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
"""Names of the reasons in the books. Use with `fullmatch`."""
SCRIPT_PATTERN: Final = re.compile(r"(?=.{3,128}$)[A-Za-z0-9_.]+:[A-Za-z0-9_.]+")
"""Names of scripted opponents, `module:callable`; they become labels of metrics. Use with `fullmatch`."""

GAME_PATTERN: Final = re.compile(r"[A-Za-z0-9_]{1,64}(?:\([ -~]{0,64}\))?")
"""Names of games. Use with `fullmatch`."""
MOVE_PATTERN: Final = re.compile(r"[!-~](?:[ -~]{0,30}[!-~])?")
"""Moves of a game record. Use with `fullmatch`."""

SHA256_BYTES: Final = 32

KEEPALIVE_SECONDS: Final = 30
"""Interval of the probes of a silent connection."""
KEEPALIVE_TIMEOUT_SECONDS: Final = 10
"""Time without an answer to a probe after which a connection is closed."""
MIN_PING_INTERVAL_SECONDS: Final = 10
"""Shortest interval of probes that a server accepts; less than KEEPALIVE_SECONDS to allow clock jitter."""
MAX_STREAMS: Final = 16
"""Calls and streams at once in a connection; an actor has two connections with an upload, a subscription and a call."""
MAX_OPERATOR_CONNECTIONS: Final = 64
"""Connections to a server that only operators use."""
HANDSHAKE_SECONDS: Final = 5
"""Time for a new connection to complete its handshake."""
IDLE_CONNECTION_SECONDS: Final = 60
"""Time without a call after which a server closes a connection; an actor has an open stream in each."""
MAX_RECONNECT_BACKOFF_SECONDS: Final = 1.0
"""Longest wait between attempts to connect; with gRPC's default of 120 s a restarted learner is found late."""


def behavior_name_fault(name: str) -> str | None:
    """Returns the fault of a behavior name that came from outside, or None.

    A name becomes part of a file name and of `Name?team=n`, so it must not hold a separator, a control character, or
    begin with a dot (which would name a hidden file or the folder above).
    """
    if not 1 <= len(name) <= MAX_BEHAVIOR_NAME_LENGTH:
        return f"has {len(name)} characters; 1 to {MAX_BEHAVIOR_NAME_LENGTH} are allowed"
    if any(character in "?/\\" for character in name):
        return "contains '?', '/' or '\\', which separate parts of a path or of a behavior id"
    if not name.isprintable() or name != name.strip() or name.startswith("."):
        return "begins with a dot, begins or ends with a space, or contains a control character"
    return None
