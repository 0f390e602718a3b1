"""The commands of the learner, and the runs that train, act or evaluate: each connects a front and its trainers."""
