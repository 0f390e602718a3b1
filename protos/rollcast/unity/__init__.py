"""What Unity's messages hold, read as arrays: live from players, and from demonstration files."""
