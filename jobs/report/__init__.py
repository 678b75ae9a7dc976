"""A report of a series of evaluations: one page of HTML that needs nothing else."""
