"""The process-wide settings of a learner: logs and torch."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
import torch


@contextmanager
def process_as_before() -> Iterator[None]:
    """Restores the settings when the block ends."""
    root, threads, tf32 = logging.getLogger(), torch.get_num_threads(), torch.backends.cudnn.allow_tf32
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        structlog.reset_defaults()
        logging.captureWarnings(capture=False)
        root.handlers[:], root.level = handlers, level
        torch.set_num_threads(threads)
        torch.backends.cudnn.allow_tf32 = tf32
        torch.use_deterministic_algorithms(mode=False)
