"""For all tests of the GPU suite."""

from tests.torch_threads import one_thread

__all__ = ["one_thread"]
