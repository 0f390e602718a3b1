"""How a connection speaks to whoever has started the command."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Manner:
    """What differs between commands.

    Attributes:
        advice: The next step by the learner's reason, where the usual one does not suit.
        quiet_seconds: So long a learner that never answered is no news.
    """

    advice: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    quiet_seconds: float = 0.0
