"""Runs `python -m tests.tools.bench`."""

import sys

from tests.tools.bench.cli import main

sys.exit(main())
