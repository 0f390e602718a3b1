"""Optimizers: Adam over flat vectors, soft targets, and the reduction over several learners."""
