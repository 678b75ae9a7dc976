"""Finds the rows that kill the engine, and blames no other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

# An engine is also killed from outside, by a kernel that is out of memory say, and whichever row
# is inside then is innocent. Such kills must hit one and the same row this often, each time that
# it runs alone, after they have hit every group that it was in; and between two of its tries all
# other suspects run. Each more would cost a row that does kill one more load of the model.
DEATHS_ALONE = 3
# A death after which all who were suspected of it were answered came from outside. Each such death
# makes one more necessary to blame a row, but no more than these.
MORE_DEATHS_ALONE = 7


@dataclass(slots=True)
class Deaths:
    """The deaths of engines that had a row in their batch, alone and beside others."""

    alone: int = 0
    beside: int = 0


class Group:
    """Suspects that run together, apart from all others.

    Attributes:
        rows: those of them that have no answer yet, in order.
        twin: the other half of the group that killed, while all that left this one are cleared.
        on_begin: called before the rows are run.
    """

    __slots__ = ("on_begin", "rows", "twin")

    def __init__(self, rows: Collection[str], on_begin: Callable[[], None] | None = None) -> None:
        self.rows = dict.fromkeys(rows)
        self.twin: Group | None = None
        self.on_begin = on_begin


class Suspects:
    """Says which rows may be in the engine, by the deaths that it is told of.

    A row is suspected when an engine died that had admitted it: it held a place in the batch. The
    suspects of a death run together, before all other rows. If the engine dies again, those that
    were admitted are halved, and so on until one row kills alone; it is tried again when all
    other suspects have run, and blamed after `DEATHS_ALONE` deaths alone. Whoever is answered is
    cleared. When a first half is cleared, the second is halved untried: it must hold the killer.

    Nobody waits for ever: each death halves a group or counts against a row that was alone. If k
    rows kill, in batches of n, and nothing else does, then no more engines die than
    k * (1 + ceil(log2 n) + `DEATHS_ALONE`). Where engines are killed from outside, too, which is
    seen from suspects that are all answered later, up to `MORE_DEATHS_ALONE` more deaths
    are needed to blame a row. Not thread-safe.
    """

    def __init__(self) -> None:
        self._groups: deque[Group] = deque()
        self._deaths: dict[str, Deaths] = {}
        self._from_outside = 0  # deaths that were no row's
        self._unexplained = 0  # deaths of this hunt, without those of the rows it has blamed

    def __len__(self) -> int:
        # Asked by threads that only watch: a copy is made in one go, whatever changes meanwhile.
        return sum(len(group.rows) for group in tuple(self._groups))

    @property
    def group(self) -> Group | None:
        """The rows that may be in the engine now; None while nobody is suspected."""
        return self._groups[0] if self._groups else None

    def engine_died(self, admitted: Collection[str], *, with_others: bool) -> Deaths | None:
        """Note a death.

        Args:
            admitted: the rows without an answer that held a place in the batch, at least one.
            with_others: whether rows were there, too, that nobody waits for any more.

        Returns:
            The deaths of the one row that was admitted, if it is to blame; it is forgotten.
        """
        self._unexplained += 1
        rows = dict.fromkeys(admitted)
        alone = len(rows) == 1 and not with_others
        for row in rows:
            deaths = self._deaths.setdefault(row, Deaths())
            deaths.alone += alone
            deaths.beside += not alone
        former = self._groups.popleft() if self._groups else None
        if former is not None and (waited := [r for r in former.rows if r not in rows]):
            self._groups.appendleft(Group(waited, former.on_begin))
        if not alone:
            self._put_first(rows, halve=former is not None)
            return None
        (row,) = rows
        if self._deaths[row].alone >= DEATHS_ALONE + min(self._from_outside, MORE_DEATHS_ALONE):
            deaths = self._deaths.pop(row)
            self._unexplained -= deaths.alone + deaths.beside
            self._end_hunt()
            return deaths
        self._groups.append(Group(rows))
        return None

    def set_apart(self, rows: Collection[str], on_begin: Callable[[], None]) -> None:
        """Run new rows as suspects, after those that are suspected already."""
        self._groups.append(Group(rows, on_begin))

    def answered(self, row: str) -> None:
        """A row got its answer, which clears it."""
        self._leave(row, cleared=True)

    def taken_back(self, row: str) -> None:
        """Nobody waits for a row any more, which says nothing about it."""
        self._unexplained = 0  # they may have been its deaths
        self._leave(row, cleared=False)

    def _put_first(self, rows: Collection[str], *, halve: bool) -> None:
        if not halve or len(rows) == 1:
            self._groups.appendleft(Group(rows))
            return
        ordered = list(rows)
        middle = (len(ordered) + 1) // 2
        first, second = Group(ordered[:middle]), Group(ordered[middle:])
        first.twin = second
        self._groups.extendleft((second, first))

    def _leave(self, row: str, *, cleared: bool) -> None:
        deaths = self._deaths.pop(row, None)
        if cleared and deaths is not None:
            self._from_outside += deaths.alone
            self._unexplained -= deaths.alone
        for group in self._groups:
            if row not in group.rows:
                continue
            del group.rows[row]
            if not cleared:
                group.twin = None
            if not group.rows:
                self._remove(group)
            return

    def _remove(self, group: Group) -> None:
        self._groups.remove(group)
        self._end_hunt()
        if self._groups and self._groups[0] is group.twin:
            self._put_first(self._groups.popleft().rows, halve=True)

    def _end_hunt(self) -> None:
        if not self._groups:
            self._from_outside += max(0, self._unexplained)
            self._unexplained = 0
