"""Demonstrations: recording what actors do, and acting without a learner for the sake of a recording."""
