"""Tournaments: who plays, which games are played next, what is kept of them, and the ratings."""
