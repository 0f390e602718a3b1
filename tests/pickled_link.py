"""A transport that pickles messages between service and trainers, as between processes."""

from __future__ import annotations

import pickle
from typing import Any


def pickled(message: Any) -> Any:
    """Returns a copy that went through bytes, as between two processes: arrays out of band (pickle protocol 5), read-only.

    Raises:
        TypeError, AttributeError, pickle.PicklingError: the message holds something that cannot leave its process.
    """
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(data, buffers=[bytes(buffer.raw()) for buffer in buffers])  # noqa: S301 - made in the line above
