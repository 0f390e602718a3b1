"""Judges sizes of networks, rings and replay memories without torch."""
