"""Checks of a learner against the numbered rules of the contract."""
