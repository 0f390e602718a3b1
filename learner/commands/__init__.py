"""The commands of rollcast-learner, and the runs that train, act or evaluate: each connects a front and its trainers."""
