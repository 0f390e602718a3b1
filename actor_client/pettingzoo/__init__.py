"""Connects PettingZoo environments, in which several agents act, to a learner."""
