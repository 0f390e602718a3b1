"""What this command says itself: a line at a time on standard error, for people, or JSON as in its children's logs."""

import json
import sys
from contextlib import suppress
from datetime import UTC, datetime


class Console:
    """Says lines.

    Attributes:
        as_json: One object a line. What is wrong with a command line or a run file is told before this is known.
    """

    def __init__(self) -> None:
        self.as_json = False

    def info(self, event: str, text: str) -> None:
        """Says what happens.

        Args:
            event: Its name in JSON.
            text: The same for people.
        """
        self._say(f"[INFO] {text}", {"text": text, "event": event, "level": "info"})

    def warning(self, event: str, text: str) -> None:
        """Says what may not be as meant; arguments as for `info`."""
        self._say(f"[WARNING] {text}", {"text": text, "event": event, "level": "warning"})

    def error(self, text: str, exit_code: int) -> None:
        """Says what ends the command, and with which code."""
        self._say(
            f"error: {text}", {"error": text, "exit_code": int(exit_code), "event": "run_ended", "level": "error"}
        )

    def _say(self, line: str, content: dict[str, object]) -> None:
        if self.as_json:
            line = json.dumps(content | {"timestamp": datetime.now(UTC).isoformat().replace("+00:00", "Z")})
        with suppress(OSError):  # nobody reads it any more; the code says it too
            sys.stderr.write(line + "\n")
            sys.stderr.flush()
