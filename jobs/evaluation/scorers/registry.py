"""All scorers by their names."""

from __future__ import annotations

import difflib

from jobs.errors import UsageError
from jobs.evaluation.scorers.base import Scorer
from jobs.evaluation.scorers.texts import Exact, Normalized

SCORERS: dict[str, type[Scorer]] = {kind.name: kind for kind in (Exact, Normalized)}


def scorer_kind(name: object, where: str) -> type[Scorer]:
    """The scorer of a name.

    Raises:
        UsageError: there is none.
    """
    if isinstance(name, str) and name in SCORERS:
        return SCORERS[name]
    near = difflib.get_close_matches(str(name), SCORERS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(SCORERS)}"
    raise UsageError(f"{where} is {name!r}, which is no scorer; {hint}")
