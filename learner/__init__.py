"""The learner: receives experience, trains, publishes policies."""

from typing import Final

DISTRIBUTION: Final = "rollcast"
"""Name of this distribution; `rollcast.console` rejects another package of the same name."""
