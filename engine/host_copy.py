"""Tensors on their way from the device to the host."""

from __future__ import annotations

import functools

import torch


class HostCopy:
    """A copy of a tensor in host memory, begun now and there when the device has got so far.

    On a GPU nothing but `wait` waits, and only for the work that was queued before the copy: the
    device may be given the next step meanwhile, and computes it while the copy is made on a
    stream of its own. On a CPU it is the tensor itself.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        self._copied: torch.cuda.Event | None = None
        self._host = tensor
        if tensor.is_cuda:
            # Page-locked, or the copy would not be asynchronous.
            self._host = torch.empty_like(tensor, device="cpu", pin_memory=True)
            stream = _side_stream(tensor.device)
            stream.wait_stream(torch.cuda.current_stream(tensor.device))
            with torch.cuda.stream(stream):
                self._host.copy_(tensor, non_blocking=True)
            tensor.record_stream(stream)  # its memory is not given away before
            self._copied = stream.record_event()

    def wait(self) -> torch.Tensor:
        """The copy, whole; to ask again gives the same."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._host


@functools.cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """The stream of a device that only copies to the host."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
