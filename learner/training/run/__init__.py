"""The trainers' side of one run: its parts, and how they start, take turns and end."""
