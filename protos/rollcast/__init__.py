"""Rollcast's contract: what actors and learners share, and nothing else."""
