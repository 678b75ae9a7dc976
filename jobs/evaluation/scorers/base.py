"""What all scorers have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, Self, get_args, get_origin, get_type_hints

from jobs.errors import UsageError
from jobs.evaluation.fields import an_object, one_of, texts, wrong
from jobs.evaluation.rows import Score, ScoredRow, accepted, as_text, missing, without_thoughts
from jobs.kinds import JobKind

_WANTED: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    tuple: "a list of texts",
    Mapping: "an object",
    NoneType: "null",
}


@dataclass(frozen=True, kw_only=True)
class Scorer(ABC):
    """A way to score rows. The fields of a subclass are its options.

    Attributes:
        name: what a specification calls it.
        summary: one line for people.
        job_kind: kind of the jobs whose rows it can score.
        corpus: whether the value of many rows is more than the mean of their scores.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    job_kind: ClassVar[JobKind] = JobKind.GENERATE
    corpus: ClassVar[bool] = False

    @classmethod
    def options(cls) -> dict[str, Any]:
        """The type of each option."""
        hints = get_type_hints(cls)
        return {f.name: hints[f.name] for f in fields(cls) if f.init}

    @classmethod
    def of(cls, options: Mapping[str, Any], where: str) -> Self:
        """A scorer with these options.

        Raises:
            UsageError: there is no such option, or its value cannot be; named by `where`.
        """
        known = cls.options()
        an_object(options, where, known)
        for field in fields(cls):
            required = field.default is MISSING and field.default_factory is MISSING
            if field.init and required and field.name not in options:
                raise UsageError(f"{where} has no {field.name}, which {cls.name} needs")
        given = {
            name: _checked(value, known[name], f"{where}.{name}") for name, value in options.items()
        }
        try:
            return cls(**given)
        except ValueError as error:  # of __post_init__
            raise UsageError(f"{where}.{error}") from None

    @property
    def needs_target(self) -> bool:
        """Whether a row without a target is missing."""
        return True

    def prepare(self) -> None:  # noqa: B027 (most need nothing)
        """Load what it needs beyond its options.

        Raises:
            UsageError: a plug-in that the options name is not installed.
            PackageMissing: it needs a package that is not installed.
        """

    def close(self) -> None:  # noqa: B027 (most need nothing)
        """Let go of what scoring took; it can be used again."""

    def unscored(self, row: ScoredRow) -> Score | None:
        """Why a row is missing before anybody looks at its answer; None if it is not."""
        if row.error is not None:
            return missing(f"no answer: {row.error}")
        if self.needs_target and not accepted(row.target):
            return missing("no target")
        return None


class RowScorer(Scorer):
    """Scores each row by itself."""

    def score(self, row: ScoredRow) -> Score:
        """The score of a row; it is missing without an answer, or a target that is needed."""
        return self.unscored(row) or self.score_answer(without_thoughts(row))

    @abstractmethod
    def score_answer(self, row: ScoredRow) -> Score:
        """The score of a row that has what it needs."""


class TextScorer(RowScorer):
    """Compares the text of the answer with that of each accepted one; the best counts."""

    def score_answer(self, row: ScoredRow) -> Score:
        if row.answer is None:
            return missing("no answer")
        found = self.prepared(row.answer)
        return Score(
            max(self.compare(found, self.prepared(as_text(t))) for t in accepted(row.target))
        )

    def prepared(self, text: str) -> Any:
        """A text in the form in which it is compared."""
        return text

    @abstractmethod
    def compare(self, answer: Any, target: Any) -> float:
        """From 0 to 1."""


def _checked(value: Any, hint: Any, where: str) -> Any:
    """The value of an option, if it is of the option's type."""
    if get_origin(hint) is Literal:
        return one_of(value, where, get_args(hint))
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    for kind in kinds:
        plain = get_origin(kind) or kind
        if plain is Any or type(value) is plain:
            return value
        if plain is float and type(value) is int:
            return float(value)
        if plain is Mapping and isinstance(value, dict):
            return value
        if plain is tuple and isinstance(value, list | tuple):
            return texts(value, where)
    raise wrong(where, value, " or ".join(_WANTED[get_origin(kind) or kind] for kind in kinds))
