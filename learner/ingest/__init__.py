"""Stops 5 and 6 of a step's way: check what actors send, account for it, queue it for the trainers. No torch here."""
