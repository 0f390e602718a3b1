"""Puts the two sides of a learner together: serving, evaluation, tournaments, processes, ranks and restarts."""
