"""`python -m actor_client` is `rollcast act`."""

import sys
from collections.abc import Sequence

from actor_client import cli
from actor_client.platform import limit_end


def main(arguments: Sequence[str] | None = None, prog: str = cli.PROG) -> int:
    """Runs a command as this process, which ends in any case; returns its exit code.

    Args:
        arguments: The command line; None for that of the process.
        prog: The name by which the user called the program.
    """
    limit_end()
    return cli.main(arguments, prog)


if __name__ == "__main__":
    sys.exit(main())
