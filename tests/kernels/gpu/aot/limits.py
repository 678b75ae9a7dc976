"""What must hold of every compiled kernel, whatever the table says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.kernels.gpu.aot.case import Case
from tests.kernels.gpu.aot.row import Row
from tests.kernels.gpu.aot.targets import TARGETS


def complaints(rows: Iterable[Row], cases: Mapping[str, Case]) -> list[str]:
    """One sentence for each thing that is not as it has to be."""
    rows = list(rows)
    found = [sentence for row in rows for sentence in _of_row(row)]
    for name in dict.fromkeys(row.case for row in rows):
        mine = [row for row in rows if row.case == name]
        found += _of_case(cases[name], [row for row in mine if row.target == "sm_90"])
    return found


def _of_row(row: Row) -> list[str]:
    where = f"{row.case}: {row.kernel} for {row.target}, triton {row.triton}"
    if row.failure:
        return [f"{where} does not compile: {row.failure}"]
    found = []
    spilled = {name: row.figures.get(name, 0) for name in ("stack", "spills", "local")}
    if any(spilled.values()):
        found.append(f"{where} spills registers to memory: {spilled}")
    most = TARGETS[row.target].shared
    if row.figures["shared"] > most:
        found.append(f"{where} needs {row.figures['shared']} bytes of shared memory, over {most}")
    return found


def _of_case(case: Case, on_hopper: list[Row]) -> list[str]:
    """What a case expects of its instructions on sm_90, in one kernel at least."""
    if not on_hopper or any(row.failure for row in on_hopper):
        return []
    found = []
    for wanted, figure, name in (
        (case.wgmma, "wgmma", "wgmma"),
        (case.async_copies, "async", "asynchronous copies"),
    ):
        if wanted and not any(row.figures.get(figure, 0) for row in on_hopper):
            found.append(f"{case.name}: no kernel has {name} on sm_90")
    return found
