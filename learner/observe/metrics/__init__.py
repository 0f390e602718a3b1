"""What Prometheus reads from a learner: events counted where they happen, state read at each scrape.

`LearnerMetrics` holds the events, in parts that are handed to whoever causes them. `LearnerMetrics.watch` adds the
state: one `MetricsSnapshot` a scrape, so that numbers which belong together are of one moment. Nothing is shared between
two instances. The reference of all metrics is deploy/METRICS.md.
"""
