"""Builds of game engines: finds their executables, and starts, checks and ends their processes."""
