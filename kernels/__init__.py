"""One operation a file: its torch reference (the specification) and its kernels.

Nothing heavy is imported here: Hugging Face publishes another package of this name, and
transformers may import this one where it looks for that.
"""

DISTRIBUTION = "pagemill"  # how start-up tells this package from the other of its name
