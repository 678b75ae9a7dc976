"""Which row of a table on the device belongs to what."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
_FEWEST = 8


class SlotCache(Generic[Key]):
    """Slots of a table whose content can be made again: what was unused longest gives way.

    So nobody has to say when a sequence ends, is preempted or comes back.

    Attributes:
        size: number of slots; grows to a power of two when more keys are placed at once. Then all
            content is lost: no old table has to be kept beside the new one.
    """

    def __init__(self) -> None:
        self.size = 0
        self._slots: dict[Key, int] = {}  # the one unused longest first
        self._free: list[int] = []

    def place(self, keys: Iterable[Key]) -> tuple[list[int], dict[Key, int]]:
        """Give each key a slot.

        Returns:
            The slot of each of the keys, in their order; and those slots that have to be filled.
        """
        asked = list(keys)
        wanted = dict.fromkeys(asked)
        self.reserve(len(wanted))
        new: list[Key] = []
        for key in wanted:
            slot = self._slots.pop(key, None)
            if slot is None:
                new.append(key)
            else:
                self._slots[key] = slot
        # All that are wanted stand at the end now, so none of them is evicted.
        for key in new:
            slot = self._free.pop() if self._free else self._slots.pop(next(iter(self._slots)))
            self._slots[key] = slot
        return [self._slots[key] for key in asked], {key: self._slots[key] for key in new}

    def reserve(self, count: int) -> None:
        """Have so many slots at least, for keys that are placed one after the other."""
        if count > self.size:
            self.clear()
            self.size = max(_FEWEST, 1 << (count - 1).bit_length())
            self._free = list(reversed(range(self.size)))

    def clear(self) -> None:
        """Forget everything, the size too."""
        self.size = 0
        self._slots.clear()
        self._free.clear()
