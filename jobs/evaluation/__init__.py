"""Evaluations: answers of a job are scored, summed up, compared with earlier ones, and judged."""
