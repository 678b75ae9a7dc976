"""All scorers by their names."""

from __future__ import annotations

import difflib

from jobs.errors import UsageError
from jobs.evaluation.scorers.base import Scorer
from jobs.evaluation.scorers.choices import Choice, ChoiceLikelihood
from jobs.evaluation.scorers.judge import Judge
from jobs.evaluation.scorers.numbers import Numeric
from jobs.evaluation.scorers.overlap import F1, Rouge1, Rouge2, RougeL
from jobs.evaluation.scorers.patterns import Regex
from jobs.evaluation.scorers.plugins import Python
from jobs.evaluation.scorers.schemas import JsonSchema
from jobs.evaluation.scorers.texts import Exact, Normalized
from jobs.evaluation.scorers.translation import Bleu, ChrF

SCORERS: dict[str, type[Scorer]] = {
    kind.name: kind
    for kind in (
        Exact, Normalized, Regex, Numeric, Choice, ChoiceLikelihood, F1, Rouge1, Rouge2, RougeL,
        Bleu, ChrF, JsonSchema, Python, Judge,
    )
}  # fmt: skip


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
