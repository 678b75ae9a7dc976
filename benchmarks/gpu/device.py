"""The one place that speaks to CUDA's events, graphs and profiler, and its stand-in.

A dry run, on a machine without a GPU, has the stand-in: processor tensors, one repetition of
everything, and times that mean nothing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

Function = Callable[[], object]

# Seconds that one measurement may take, and repetitions at most.
MEASURE_SECONDS, MOST_REPETITIONS = 0.4, 50
# A graph holds so many calls that it runs at least so long: then what starting it takes is small.
_GRAPH_SECONDS, _MOST_CALLS = 0.5e-3, 20


@dataclass(frozen=True)
class Times:
    """Seconds of one call of a function, over repetitions.

    Attributes:
        median: half of the repetitions took less.
        low, high: a tenth took less, and more.
        how: `graph` (of the device, without the host) or `events` (starts from the host included).
    """

    median: float
    low: float
    high: float
    repetitions: int
    how: str

    @classmethod
    def of(cls, seconds: list[float], how: str) -> Times:
        ordered = sorted(seconds)
        tenth = len(ordered) // 10
        return cls(
            statistics.median(ordered), ordered[tenth], ordered[-1 - tenth], len(ordered), how
        )

    def figures(self) -> dict[str, Any]:
        return {
            "us": round(self.median * 1e6, 2), "low_us": round(self.low * 1e6, 2),
            "high_us": round(self.high * 1e6, 2), "repetitions": self.repetitions,
            "timed": self.how,
        }  # fmt: skip


class Device(Protocol):
    """A GPU, or its stand-in.

    Attributes:
        dry: figures mean nothing, and shapes are to be tiny.
        torch_device: where tensors go.
    """

    dry: bool
    torch_device: torch.device

    def synchronize(self) -> None: ...

    def times(
        self, function: Function, *, nbytes: float, graph: bool = True, cold: bool = True
    ) -> Times:
        """Time a function.

        Args:
            nbytes: that it reads and writes; where they would fit into the L2 cache, this is
                emptied before each call.
            graph: whether its calls may be captured in a CUDA graph.
            cold: false leaves the cache alone.
        """
        ...

    def free_bytes(self) -> int: ...

    def busy(self, function: Function) -> float | None:
        """Share of the time that the device computes; None where the profiler sees nothing."""
        ...


class Cuda:
    """The first CUDA device."""

    dry = False

    def __init__(self) -> None:
        self.torch_device = torch.device("cuda", 0)
        torch.cuda.set_device(self.torch_device)
        properties = torch.cuda.get_device_properties(self.torch_device)
        self.l2_bytes = int(getattr(properties, "L2_cache_size", 0)) or 64 << 20
        self._other: torch.Tensor | None = None

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.torch_device)

    def free_bytes(self) -> int:
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(self.torch_device)[0]

    def times(
        self, function: Function, *, nbytes: float, graph: bool = True, cold: bool = True
    ) -> Times:
        function()  # compiles
        self.synchronize()
        began = time.perf_counter()
        function()
        self.synchronize()
        estimate = time.perf_counter() - began
        fits = cold and nbytes < 2 * self.l2_bytes
        calls = 1 if fits else max(1, min(_MOST_CALLS, int(_GRAPH_SECONDS / estimate)))
        how, run = "events", function
        if graph:
            try:
                run, how = self._captured(function, calls), "graph"
            except RuntimeError as error:  # it asks the device for something
                how = f"events, as it cannot be captured: {str(error).splitlines()[0][:80]}"
        if run is function:
            calls = 1
        count = max(5, min(MOST_REPETITIONS, int(MEASURE_SECONDS / (estimate * calls + 1e-4))))
        marks = [
            [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call]
            for _ in range(count + 2)
        ]
        for begin, end in marks:
            if fits:
                self._empty_cache_of_device()
            begin.record()
            run()
            end.record()
        self.synchronize()
        # The first ones wake the device.
        seconds = [begin.elapsed_time(end) / 1e3 / calls for begin, end in marks[2:]]
        return Times.of(seconds, how)

    def _captured(self, function: Function, calls: int) -> Function:
        """Replays some calls of a function."""
        stream = torch.cuda.Stream(self.torch_device)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            function()  # allocates what a library keeps for the stream
        torch.cuda.current_stream().wait_stream(stream)
        self.synchronize()
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured, stream=stream):
            for _ in range(calls):
                function()
        captured.replay()
        self.synchronize()
        return captured.replay

    def _empty_cache_of_device(self) -> None:
        """Fill the L2 cache with something else; read, so that nothing is left to write back."""
        if self._other is None:
            size = max(256 << 20, 4 * self.l2_bytes)
            self._other = torch.zeros(size // 4, device=self.torch_device)
        self._other.sum()

    def busy(self, function: Function) -> float | None:
        from torch.profiler import ProfilerActivity, profile

        self.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            function()
            self.synchronize()
        return busy_share(
            (event.time_range.start, event.time_range.end)
            for event in profiler.events()
            if event.device_type == torch.autograd.DeviceType.CUDA
            and not getattr(event, "is_user_annotation", False)
        )


class Stub:
    """A processor in place of a GPU."""

    dry = True

    def __init__(self) -> None:
        self.torch_device = torch.device("cpu")

    def synchronize(self) -> None:
        pass

    def free_bytes(self) -> int:
        return 1 << 30

    def times(
        self, function: Function, *, nbytes: float, graph: bool = True, cold: bool = True
    ) -> Times:
        began = time.perf_counter()
        function()
        return Times.of([time.perf_counter() - began], "dry")

    def busy(self, function: Function) -> float | None:
        function()
        return busy_share([(0.0, 1.0)])


def busy_share(intervals: Iterable[tuple[float, float]]) -> float | None:
    """How much of the time from the first beginning to the last end is covered; None for none."""
    ordered = sorted(intervals)
    if not ordered:
        return None
    covered, end = 0.0, ordered[0][0]
    for begin, stop in ordered:
        covered += max(0.0, stop - max(begin, end))
        end = max(end, stop)
    return covered / max(end - ordered[0][0], 1e-12)


def open_device(dry: bool) -> Device:
    """The GPU, or for a dry run its stand-in."""
    return Stub() if dry else Cuda()
