"""The actor: steps environments with a local policy and streams experience to a learner."""

from typing import Final

DISTRIBUTION: Final = "rollcast"
"""The distribution of this package; `rollcast.console` refuses another package of the same name."""
