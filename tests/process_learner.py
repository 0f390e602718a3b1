"""Runs the learner's command line with trainers in a process of their own.

``ROLLCAST_TEST_LEARNER=tests.process_learner python -m pytest tests/e2e -m "slow or not slow"`` runs the end-to-end tests with
it.
"""

import os
import sys

from learner import cli

if __name__ == "__main__":
    os.environ["ROLLCAST_TRAINER_PROCESS"] = "true"
    sys.exit(cli.main(sys.argv[1:]))
