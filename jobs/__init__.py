"""Submission, input and output files, job state, and the command line of pagemill.

Importing this package loads no torch.
"""

__version__ = "0.1.0"
