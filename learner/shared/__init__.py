"""Holds what both sides of a learner use: settings, the run folder, numbers and logs, files."""
