"""Reads the series of Prometheus from deploy/METRICS.md."""

import re
from typing import Final

from tests.deploy.promql import DEPLOY

OF_PROMETHEUS: Final = frozenset(("up",))
_ROW = re.compile(r"^\| `(\w+)` \| (counter|gauge|histogram|summary) \| ([\w, ]*)\|", re.MULTILINE)


def documented() -> frozenset[str]:
    """Returns the names of all series, those that Prometheus makes itself included."""
    found = set(OF_PROMETHEUS)
    for name, kind, _ in _ROW.findall((DEPLOY / "METRICS.md").read_text()):
        found |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"} if kind == "histogram" else {name}
    return frozenset(found)
