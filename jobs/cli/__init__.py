"""The command line: one command, or one family of commands, a file.

Commands import what they need when they run, so that `pagemill --help` is quick.
"""
