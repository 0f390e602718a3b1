"""`python -m learner` is `rollcast` without the commands of the actor."""

import sys

from learner.cli.cli import main

if __name__ == "__main__":
    sys.exit(main())
