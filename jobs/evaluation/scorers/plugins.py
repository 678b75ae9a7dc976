"""`python`: a function of an installed package, found by its entry point.

A package names its scorers in pyproject.toml:

    [project.entry-points."pagemill.scorers"]
    polite = "my_package.scoring:polite"

and each is called as `polite(row, **options)` with a `jobs.evaluation.rows.ScoredRow`. It gives a
number, None for a row that is missing, or a `jobs.evaluation.rows.Score` with a note.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Self

from jobs.errors import UsageError
from jobs.evaluation.fields import a_number, an_object
from jobs.evaluation.rows import Score, ScoredRow, brief, missing
from jobs.evaluation.scorers.apart import Apart
from jobs.evaluation.scorers.base import RowScorer
from jobs.leaving import ToldToLeave

GROUP = "pagemill.scorers"
LEAST_SECONDS, MOST_SECONDS = 0.01, 86_400.0  # that a row may be allowed


@dataclass(frozen=True, kw_only=True)
class Python(RowScorer):
    """A function of an installed package.

    Attributes:
        function: the name of its entry point.
        row_timeout: seconds that it may take for a row; the function is called in a process of its
            own, then, which ends with such a row.
        arguments: all other options; the function is called with them.
    """

    name = "python"
    summary = "a function of an installed package"
    function: str
    row_timeout: float | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def options(cls) -> dict[str, Any]:
        return {"function": str, "row_timeout": float | None}

    @classmethod
    def of(cls, options: Mapping[str, Any], where: str) -> Self:
        rest = dict(an_object(options, where))
        function = rest.pop("function", None)
        if not isinstance(function, str) or not function:
            raise UsageError(
                f"{where} has no function, which python needs: the name of an entry point of the "
                f"group {GROUP}"
            )
        timeout = rest.pop("row_timeout", None)
        if timeout is not None:
            at = f"{where}.row_timeout"
            timeout = float(a_number(timeout, at, LEAST_SECONDS, MOST_SECONDS))
        return cls(function=function, row_timeout=timeout, arguments=rest)

    @property
    def needs_target(self) -> bool:
        return False  # the function knows

    def prepare(self) -> None:
        _ = self.loaded

    @functools.cached_property
    def loaded(self) -> Callable[..., Any]:
        """The function itself.

        Raises:
            UsageError: it is not installed, or cannot be loaded.
        """
        found = list(metadata.entry_points(group=GROUP, name=self.function))
        if not found:
            names = sorted({point.name for point in metadata.entry_points(group=GROUP)})
            raise UsageError(
                f"no installed package has a scorer {self.function!r} (entry points of the group "
                f"{GROUP}); installed are: {', '.join(names) or 'none'}"
            )
        if len({point.value for point in found}) > 1:
            values = ", ".join(sorted(point.value for point in found))
            raise UsageError(f"several packages have a scorer {self.function!r}: {values}")
        try:
            function = found[0].load()
        except Exception as error:
            raise UsageError(
                f"the scorer {self.function!r} ({found[0].value}) cannot be loaded: "
                f"{type(error).__name__}: {error}"
            ) from error
        if not callable(function):
            raise UsageError(f"the scorer {self.function!r} ({found[0].value}) is no function")
        called: Callable[..., Any] = function
        return called

    def score(self, row: ScoredRow) -> Score:
        """As of other scorers, but the function is given the thoughts of a model, too."""
        return self.unscored(row) or self.score_answer(row)

    def score_answer(self, row: ScoredRow) -> Score:
        return self.called(row) if self.row_timeout is None else self._apart.score(row)

    def called(self, row: ScoredRow) -> Score:
        """What the function, called here, says of a row."""
        try:
            return score_of(self.loaded(row, **self.arguments))
        except ToldToLeave:
            raise
        # It is somebody's program: whatever it raises is about this row.
        except (Exception, SystemExit) as error:
            return missing(f"{self.function} failed: {type(error).__name__}: {error}")

    @functools.cached_property
    def _apart(self) -> Apart:
        assert self.row_timeout is not None
        return Apart(self.function, self.arguments, self.row_timeout)

    def close(self) -> None:
        if self.row_timeout is not None:
            self._apart.close()


def score_of(given: Any) -> Score:
    """What a function gave, if it is a score."""
    score = given if isinstance(given, Score) else Score(given)
    value = score.value
    if value is None:
        return Score(None, brief(score.note or "the function gave none"))
    number = float(value)
    if not math.isfinite(number):
        return missing(f"the function gave {number}")
    return Score(number, None if score.note is None else brief(str(score.note)))
