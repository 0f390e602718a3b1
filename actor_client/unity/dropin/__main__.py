"""`python -m actor_client.unity.dropin` is `rollcast unity`."""

import sys

from actor_client.unity.dropin.cli import main

if __name__ == "__main__":
    sys.exit(main())
