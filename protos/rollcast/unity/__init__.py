"""Reads the content of Unity's messages as arrays, from players and from demonstration files."""
