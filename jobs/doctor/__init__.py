"""What `pagemill doctor` looks at: everything that a deployment needs, and what to do about it.

Each check looks at one thing outside of this process, for as long as its time limit and no longer.
"""
