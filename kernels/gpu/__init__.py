"""The Triton kernels, one operation a file.

A file has the kernel, its launch function, which is the operation, and a fake that tells shapes
and dtypes alone. The reference that it must agree with is the torch code in `kernels/` that calls
it where the device is a GPU. Only `kernels.gpu.library` may be imported where triton is missing.
"""
