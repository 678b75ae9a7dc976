"""What `import jobs` offers to Python programs and notebooks; see docs/python.md.

It does what the command line does, by the same code. Every call opens the database, asks, and
closes it: nothing is kept open, and threads may share a `Job`.
"""
