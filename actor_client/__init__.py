"""The actor: steps environments with a local policy and streams experience to a learner."""

from typing import Final

import rollcast as _rollcast  # noqa: F401 - before gRPC and ONNX Runtime, for which it sets variables

DISTRIBUTION: Final = "rollcast"
"""The distribution of this package; `rollcast.console` refuses another package of the same name."""
