"""`rollcast unity`: a learner and its local players in one command, for users of `mlagents-learn`."""
