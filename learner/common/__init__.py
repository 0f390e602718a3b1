"""Helpers that every part of the learner may use."""
