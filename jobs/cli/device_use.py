"""What a job took of devices, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.job_shape import tokens_per_hour

if TYPE_CHECKING:
    from jobs.records import Counts, DeviceTime

_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def device_use(counts: Counts, device: DeviceTime) -> tuple[str, str, str] | None:
    """`("GPU-seconds", "812.4", "3.1M tokens per GPU-hour")`; None where no device computed.

    Where processors computed, too, it is about devices.
    """
    pace = tokens_per_hour(counts, device)
    if pace is None:
        return None
    kind = "GPU" if device.all_of_gpus else "device"
    return f"{kind}-seconds", f"{device.seconds:,.1f}", f"{_short(pace)} tokens per {kind}-hour"


def device_sentence(counts: Counts, device: DeviceTime) -> str | None:
    """`812.4 GPU-seconds, 3.1M tokens per GPU-hour`."""
    used = device_use(counts, device)
    return None if used is None else f"{used[1]} {used[0]}, {used[2]}"


def _short(number: float) -> str:
    """`950`, `3.1k`, `31k`, `3.1M`."""
    for size, unit in _UNITS:
        if number >= 0.9995 * size:
            scaled = number / size
            return f"{scaled:.1f}{unit}" if scaled < 9.95 else f"{scaled:.0f}{unit}"
    return f"{number:.0f}"
