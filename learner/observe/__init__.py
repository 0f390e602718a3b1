"""What can be seen of a run: statistics, the live panel, log lines, the summary.

The lowest layer but the settings: it takes plain values and knows nothing of queues, trainers or torch.
"""
