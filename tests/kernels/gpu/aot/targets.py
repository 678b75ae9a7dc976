"""The chips that kernels are compiled for."""

from __future__ import annotations

from dataclasses import dataclass

from triton.backends.compiler import GPUTarget


@dataclass(frozen=True)
class Target:
    """A chip.

    Attributes:
        shared: bytes of shared memory (LDS) that one program may have at most: CUDA C++
            Programming Guide, "Technical Specifications per Compute Capability"; AMD CDNA3 ISA.
        multiprocessors: of the product that launch functions are told they run on.
    """

    name: str
    shared: int
    multiprocessors: int

    @property
    def is_cuda(self) -> bool:
        return self.name.startswith("sm_")

    @property
    def capability(self) -> tuple[int, int]:
        """As `torch.cuda.get_device_capability` has it; on ROCm the same function says 9.4."""
        if not self.is_cuda:
            return int(self.name[3]), int(self.name[4])
        number = int(self.name.removeprefix("sm_"))
        return number // 10, number % 10

    @property
    def triton(self) -> GPUTarget:
        if not self.is_cuda:
            return GPUTarget("hip", self.name, 64)
        return GPUTarget("cuda", int(self.name.removeprefix("sm_")), 32)


TARGETS = {
    target.name: target
    for target in (
        Target("sm_80", 163 << 10, 108),  # A100
        Target("sm_89", 99 << 10, 142),  # L40S
        Target("sm_90", 227 << 10, 132),  # H100, H200
        Target("sm_100", 227 << 10, 148),  # B200
        Target("sm_120", 99 << 10, 188),  # RTX PRO 6000
        Target("gfx942", 64 << 10, 304),  # MI300X
    )
}
