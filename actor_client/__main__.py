"""`python -m actor_client` is `rollcast-actor`."""

import sys

from actor_client import cli
from actor_client.platform import limit_end


def main() -> int:
    """Runs a command as this process, which ends in any case; returns its exit code."""
    limit_end()
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
