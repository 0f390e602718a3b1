"""`python -m rollcast` is `rollcast`."""

import sys

from rollcast.console import main

if __name__ == "__main__":
    sys.exit(main())
