"""Fixtures of tests that train in this process."""

from tests.torch_threads import one_thread

__all__ = ["one_thread"]
