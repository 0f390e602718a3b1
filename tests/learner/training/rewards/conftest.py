"""Fixtures of the tests of reward signals."""

from tests.torch_threads import one_thread

__all__ = ["one_thread"]
