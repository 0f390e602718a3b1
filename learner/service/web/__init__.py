"""The learner's HTTP port: metrics, health, and the status page with its operators' buttons."""
