"""`rollcast-unity`: a learner and its local players in one command, for those who know `mlagents-learn`."""
