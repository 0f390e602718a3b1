"""For all tests of trainers."""

from tests.torch_threads import one_thread

__all__ = ["one_thread"]
