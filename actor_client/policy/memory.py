"""What recurrent policies remember of agents: how large it is, how often it is recorded, and when it is forgotten.

An agent remembers nothing when its episode begins: its memory is zeros. Another version of the policy goes on with
what the last one remembered; the first one of another generation begins with zeros, for its network may be another.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]


class MemoryForm(NamedTuple):
    """What a policy's header says of its memory.

    Attributes:
        size: Numbers of one agent's memory; 0 = none.
        stride: It is recorded at every so many rows of a segment, from its first one on; 0 = never.
    """

    size: int = 0
    stride: int = 0

    @property
    def row_bytes(self) -> int:
        """Bytes of memory for one row of a segment, rounded up, beside those for the segment itself."""
        return -(-self.segment_bytes // self.stride) if self.stride else 0

    @property
    def segment_bytes(self) -> int:
        """Bytes of one memory: a segment has at most one more than it has whole strides."""
        return self.size * np.dtype(np.float32).itemsize


NO_MEMORY: Final = MemoryForm()


def began(memory: FloatArray, ended: Sequence[int], ignored: NDArray[np.bool_] | None) -> FloatArray:
    """Forgets, in place, what is of episodes that are over.

    Args:
        memory: After a step, [E, size].
        ended: Environments whose episodes ended with it.
        ignored: Environments that were only reset by it, bool [E]; None = none.
    """
    if ended:
        memory[list(ended)] = 0.0
    if ignored is not None:
        memory[ignored] = 0.0
    return memory
