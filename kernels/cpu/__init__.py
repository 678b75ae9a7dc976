"""Kernels in C++ for processors: the sources, how they are built, and how they are found.

Nothing heavy is imported here; see `kernels.cpu.library`.
"""
