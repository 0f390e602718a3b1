"""Reports on a run: statistics, the live panel, log lines, the summary.

The lowest layer above the settings: it receives plain values and depends on no queue, no trainer and no torch.
"""
