"""One run of a learner: its parts, and how they start, take turns and end."""
