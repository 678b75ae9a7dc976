"""How long devices computed something."""

from __future__ import annotations

from dataclasses import dataclass

# Sums of the same numbers in another order differ a little.
_NEARLY_ALL = 0.999


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """Time of devices that was taken by work; it adds up.

    Attributes:
        seconds: of GPUs and of processors; a worker has one device.
        gpu_seconds: those of them that were of GPUs.
    """

    seconds: float = 0.0
    gpu_seconds: float = 0.0

    def __add__(self, other: DeviceTime) -> DeviceTime:
        return DeviceTime(self.seconds + other.seconds, self.gpu_seconds + other.gpu_seconds)

    @property
    def all_of_gpus(self) -> bool:
        """Whether there is some, and no processor's."""
        return 0 < self.seconds * _NEARLY_ALL <= self.gpu_seconds


NO_TIME = DeviceTime()
