"""The learner: receives experience, trains, publishes policies."""

from typing import Final

import rollcast as _rollcast  # noqa: F401 - before gRPC and ONNX Runtime, for which it sets variables

DISTRIBUTION: Final = "rollcast"
"""Name of this distribution; `rollcast.console` rejects another package of the same name."""
