"""How large a small input may become: compressed JSON lines, and the pages of Parquet."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.errors import InputError

MAX_UNPACKED_BYTES = 64 << 30
USUAL_RATIO = 10  # what is stored may always become so many times as large


@dataclass(frozen=True, slots=True)
class UnpackedLimit:
    """The bytes that one input may have once it is unpacked.

    Attributes:
        name: what messages call the input.
        most: bytes.
    """

    name: str
    most: int

    @classmethod
    def of(cls, name: str, stored: int | None, limit: int) -> UnpackedLimit:
        """The limit of an input of so many bytes; None where that is not known."""
        return cls(name, max(limit, USUAL_RATIO * (stored or 0)))

    def check(self, unpacked: int) -> None:
        """See that what was unpacked so far is within the limit.

        Raises:
            InputError: it is over it.
        """
        if unpacked > self.most:
            raise InputError(
                f"{self.name} unpacks to over {self.most:,} bytes, the limit for an input of its "
                "size; cut it into several files, or allow more by PAGEMILL_MAX_UNPACKED_BYTES"
            )
