"""Two streams of a GPU: the one that computes, and one that copies to and from the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

Work = Callable[[], object]
# The end of some work on a stream.
Event = Any


class CopyStreams(Protocol):
    """What is queued on one stream is done in order; between streams events alone order it."""

    def compute(self, work: Work, *after: Event) -> Event:
        """Queue work on the stream that computes.

        Args:
            work: called at once; queues what it does on the device.
            after: what has to be done before, of either stream.

        Returns:
            When it is done.
        """

    def copy(self, work: Work, *after: Event) -> Event:
        """The same, on the stream that copies."""


class DeviceStreams:
    """`CopyStreams` of a GPU. Nothing here waits on the host."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._copying = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def compute(self, work: Work, *after: Event) -> Event:
        return self._queue(torch.cuda.current_stream(self._device), work, after)

    def copy(self, work: Work, *after: Event) -> Event:
        return self._queue(self._copying, work, after)

    def _queue(self, stream: torch.cuda.Stream, work: Work, after: tuple[Event, ...]) -> Event:
        for event in after:
            stream.wait_event(event)
        with torch.cuda.stream(stream):
            work()
        return stream.record_event()
