"""Rollcast's contract: everything that actors and learners share, and nothing else."""
