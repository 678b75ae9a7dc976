"""The worker: drains chunk tasks into one long-lived engine process."""
