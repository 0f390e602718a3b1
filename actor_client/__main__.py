"""`python -m actor_client` is `rollcast-actor`."""

import sys

from actor_client.cli import main

if __name__ == "__main__":
    sys.exit(main())
