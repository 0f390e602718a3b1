"""Exports the learner's metrics for Prometheus: events are counted as they happen, state is read at each scrape.

`LearnerMetrics` holds the service's counters, in parts that are passed to the code that counts. `LearnerMetrics.watch`
adds the state and the trainers' counts (`learner.shared.observe.meters`) from one `MetricsSnapshot` per scrape, so that
related numbers are of one moment. Two instances share nothing. The reference of all metrics is deploy/METRICS.md.
"""
