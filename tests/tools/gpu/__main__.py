"""Runs `python -m tests.tools.gpu`."""

import sys

from tests.tools.gpu.cli import main

sys.exit(main())
