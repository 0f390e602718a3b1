"""Numbers that both sides keep to, each with its reason.

What a run may choose (chunk sizes, ages) is answered by OpenSession; these are the defaults and the outer bounds.
"""

import re
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

PROTOCOL_REVISION: Final = 1
"""Revision of the behavior described in protos/README.md. Both sides send theirs; the smaller one is used."""
OLDEST_PROTOCOL_REVISION: Final = 1
"""A learner answers PROTOCOL_TOO_OLD to anything below."""

MAX_CHUNK_BYTES: Final = 4 * MIB
"""Encoded. gRPC's own default limit for a received message, and well above where throughput peaks (about 1 MiB)."""
TARGET_CHUNK_BYTES: Final = 256 * KIB
"""Encoded. Large enough that the cost of a message in Python no longer matters, small enough to be fresh."""
MAX_DECODED_CHUNK_BYTES: Final = 64 * MIB
"""All columns of one chunk after unpacking. Pictures of bytes shrink about 15 times, so this is 16 full chunks."""
MESSAGE_HEADROOM_BYTES: Final = 64 * KIB
"""What surrounds the largest payload in its gRPC message: the `oneof` around a chunk, an ack with many credits."""

FRAME_BYTES: Final = 1 * MIB
"""Largest `data` of a PolicyFrame. Server streaming in Python peaks at 1 MiB."""
MAX_POLICY_BYTES: Final = 1024 * MIB
"""Largest policy after unpacking. An ONNX file is one protobuf message, which cannot pass 2 GiB."""

MAX_RANK: Final = 8
"""Axes of a tensor, the row axis of a column included."""
MAX_EMPTY_EXTENT_BYTES: Final = 2**31
"""Extent of a tensor without elements when its empty axes count as one: what numpy can address everywhere."""
MAX_COLUMNS: Final = 256
"""Columns of one chunk: each costs a lookup and a check."""
MAX_OBSERVATIONS: Final = 64
"""Observations of a behavior. Each makes two columns, so that half of MAX_COLUMNS stays free."""
MAX_REASONS: Final = 64
"""Different reasons in one list of counts: each becomes a metric label."""
MAX_STEPS: Final = 2**53
"""Of any counter of steps: no actor takes so many, and a thousand of them still fit the wire's uint64."""
MAX_STAT_KEYS: Final = 1024
"""Different statistics keys in one chunk."""
MAX_STAT_KEY_LENGTH: Final = 256
"""Characters of a statistics key; each becomes a file or tag name of a tracker."""
MAX_OPPONENTS: Final = 256
"""Different opponents in one chunk."""
MAX_BEHAVIOR_NAME_LENGTH: Final = 128
"""Characters of a behavior name; it becomes a file name (most file systems allow 255 bytes with a suffix)."""
MAX_CONTINUOUS_ACTIONS: Final = 4096
"""Continuous axes of a behavior."""
MAX_BRANCHES: Final = 256
"""Discrete branches of a behavior."""
MAX_CATEGORIES: Final = 65536
"""Sum of the choices of all branches, and of the categories of an observation: each becomes a network unit."""
MAX_DESCRIPTION_LENGTH: Final = 128
"""Characters of the description of an action."""

NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Names of observations, and what follows the slash in a column name. Use with `fullmatch`."""
COLUMN_NAME_PATTERN: Final = re.compile(r"(?:[a-z_]{1,15}/)?[A-Za-z0-9_.-]{1,64}")
"""Names of columns: at most one prefix. Use with `fullmatch`."""
REASON_PATTERN: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
"""Words of the books. Use with `fullmatch`."""

SHA256_BYTES: Final = 32

KEEPALIVE_SECONDS: Final = 30
"""A silent connection is probed this often."""
KEEPALIVE_TIMEOUT_SECONDS: Final = 10
"""A connection whose probe has no answer for this long is closed."""
MIN_PING_INTERVAL_SECONDS: Final = 10
"""A server closes connections that probe more often; a third of KEEPALIVE_SECONDS leaves room for clock jitter."""
MAX_RECONNECT_BACKOFF_SECONDS: Final = 1.0
"""gRPC's default is 120 s, after which a learner that came back is found late."""


def behavior_name_fault(name: str) -> str | None:
    """Says what is wrong with a behavior name that came from outside, or None.

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
