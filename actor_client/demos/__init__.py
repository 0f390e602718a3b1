"""Records the episodes of actors as demonstrations, and acts without a learner for such recordings."""
