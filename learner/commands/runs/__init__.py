"""What `rollcast-learner runs` and `compare` read from run folders, whoever wrote them."""
