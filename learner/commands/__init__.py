"""The commands of rollcast-learner beside `serve`."""
