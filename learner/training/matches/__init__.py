"""Plays matches between policies: self-play, evaluation and tournaments."""
