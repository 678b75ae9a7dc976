"""What an evaluation is to do, as its owner wrote it: the JSON that is frozen with each run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from jobs.errors import UsageError
from jobs.evaluation import fields as read
from jobs.evaluation.rules import NAME, Bound, GateSpec
from jobs.evaluation.scorers.base import Scorer
from jobs.evaluation.scorers.registry import scorer_kind
from jobs.evaluation.submit_options import submit_options
from jobs.kinds import JobKind
from jobs.notifications.urls import MAX_URLS, refusal
from jobs.parameters import MAX_SEED
from jobs.storable import storable

VERSION = 1
MAX_SCORERS = 32
MAX_COLUMN = 255  # characters of the name of one to slice by, as SQL keeps it


class Dataset(StrEnum):
    """What becomes of an evaluation whose input files have changed."""

    FROZEN = "frozen"  # it fails
    FOLLOW = "follow"  # it takes them as they are


@dataclass(frozen=True, slots=True)
class ScorerSpec:
    """A scorer with its options, under a name of its own.

    Attributes:
        options: as JSON has them.
    """

    name: str
    scorer: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if re.fullmatch(NAME, self.name) is None:
            raise UsageError(
                f"the scorer name {self.name!r} must be letters, digits, dots, dashes and "
                "underscores, at most 64 of them, and begin with a letter or a digit"
            )

    def make(self, where: str = "options") -> Scorer:
        """The scorer itself, ready to score.

        Raises:
            UsageError: it has no such options, or a plug-in that it names is not installed.
            PackageMissing: it needs a package that is not installed.
        """
        scorer = self.built(where)
        scorer.prepare()
        return scorer

    def built(self, where: str = "options") -> Scorer:
        """The scorer, whatever it needs installed or not."""
        return scorer_kind(self.scorer, "scorer").of(self.options, where)

    @classmethod
    def from_json(cls, value: Any, where: str) -> ScorerSpec:
        given = read.an_object(value, where, ("name", "scorer", "options"))
        kind = scorer_kind(given.get("scorer"), f"{where}.scorer")
        options = read.an_object(given.get("options", {}), f"{where}.options")
        kind.of(options, f"{where}.options")
        name = read.a_text(given.get("name", kind.name), f"{where}.name")
        return cls(name, kind.name, dict(options))

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "scorer": self.scorer, "options": dict(self.options)}


@dataclass(frozen=True, slots=True)
class EvaluationSpec:
    """An evaluation.

    Attributes:
        inputs: paths, folders, patterns or URIs of the rows, as `pagemill submit` takes them.
        target: column with the right answers; None where no scorer needs one.
        submit: options of `jobs.submit` for the job that answers.
        slices: columns for each of whose values the scores are summed up, too.
        gate: None where nothing is asked of the scores.
        notify: URLs that are told of the end.
        seed: of the answering job, and of all that is drawn for the statistics.
    """

    inputs: tuple[str, ...]
    model: str
    scorers: tuple[ScorerSpec, ...]
    target: str | None = "target"
    submit: Mapping[str, Any] = field(default_factory=dict)
    slices: tuple[str, ...] = ()
    gate: GateSpec | None = None
    dataset: Dataset = Dataset.FROZEN
    notify: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        """Parts that do not fit together are refused however the specification was made."""
        if not self.scorers:
            raise UsageError("scorers is empty; it must have one or more")
        names = [scorer.name for scorer in self.scorers]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f'two scorers have the name {name!r}; give one another with "as="')
        for rule in self.gate.rules if self.gate else ():
            if rule.scorer not in names:
                raise UsageError(
                    f"the rule {rule.text!r} is about {rule.scorer!r}, which is no scorer of this "
                    f"evaluation; it has {', '.join(names)}"
                )
            part = rule.slice if isinstance(rule, Bound) else None
            if part is not None and part[0] not in self.slices:
                raise UsageError(
                    f"the rule {rule.text!r} is about the slice {part[0]!r}, which is none of "
                    f"slices ({', '.join(self.slices) or 'there are none'})"
                )
        needing = [s.name for s in self.scorers if s.built().needs_target]
        if self.target is None and needing:
            raise UsageError(f"target is null, but {needing[0]} needs one: name its column")
        kind = self.submit.get("kind")
        if self.job_kind != (kind or self.job_kind):
            raise UsageError(
                f'submit.kind is {kind!r}, but the scorers read rows of a job of kind "'
                f'{self.job_kind}"; leave it out'
            )

    @property
    def job_kind(self) -> JobKind:
        """The kind of job whose rows the scorers read.

        Raises:
            UsageError: they read those of different kinds.
        """
        kinds = {s.name: scorer_kind(s.scorer, "scorer").job_kind for s in self.scorers}
        for name, kind in kinds.items():
            if kind is not kinds[self.scorers[0].name]:
                raise UsageError(
                    f"{self.scorers[0].name} and {name} read rows of jobs of different kinds "
                    f"({kinds[self.scorers[0].name]}, {kind}); make two evaluations of them"
                )
        return kinds[self.scorers[0].name]

    def models(self) -> list[str]:
        """The models that it needs: the one that answers, and those that judge."""
        judges = (scorer.options.get("model") for scorer in self.scorers)
        return list(dict.fromkeys([self.model, *(name for name in judges if name)]))

    def make_scorers(self) -> dict[str, Scorer]:
        """Its scorers by their names, ready to score.

        Raises:
            UsageError: a plug-in that one of them names is not installed.
            PackageMissing: a package that one of them needs is not installed.
        """
        return {s.name: s.make(f"options of {s.name}") for s in self.scorers}

    @classmethod
    def from_json(cls, value: Any, where: str = "") -> EvaluationSpec:
        """A specification. What is installed here does not matter: see `make_scorers`.

        Args:
            where: what its field names begin with, in errors.

        Raises:
            UsageError: it is none; the message names the field.
        """
        given = read.an_object(value, where or "the specification", _KEYS)
        at = f"{where}." if where else ""
        for name in ("inputs", "model", "scorers"):
            if name not in given:
                raise UsageError(f"{where or 'the specification'} has no {name}")
        read.one_of(given.get("version", VERSION), f"{at}version", [VERSION])
        target = given.get("target", "target")
        inputs = given["inputs"]
        inputs = [inputs] if isinstance(inputs, str) else inputs
        gate = given.get("gate")
        return cls(
            inputs=read.texts(_some(inputs, f"{at}inputs"), f"{at}inputs"),
            model=read.a_text(given["model"], f"{at}model"),
            scorers=_scorers(given["scorers"], f"{at}scorers"),
            target=None if target is None else read.a_text(target, f"{at}target"),
            submit=dict(submit_options(given.get("submit", {}), f"{at}submit")),
            slices=_slices(given.get("slices", []), f"{at}slices"),
            gate=None if gate is None else GateSpec.from_json(gate, f"{at}gate"),
            dataset=read.member_of(Dataset, given.get("dataset", "frozen"), f"{at}dataset"),
            notify=_urls(given.get("notify", []), f"{at}notify"),
            seed=read.a_whole_number(given.get("seed", 0), f"{at}seed", 0, MAX_SEED),
        )

    def to_json(self) -> dict[str, Any]:
        """What `from_json` makes the same specification of."""
        return {
            "version": VERSION,
            "inputs": list(self.inputs),
            "model": self.model,
            "target": self.target,
            "scorers": [scorer.to_json() for scorer in self.scorers],
            "submit": dict(self.submit),
            "slices": list(self.slices),
            "gate": None if self.gate is None else self.gate.to_json(),
            "dataset": str(self.dataset),
            "notify": list(self.notify),
            "seed": self.seed,
        }


_KEYS = (
    *("version", "inputs", "model", "target", "scorers", "submit", "slices", "gate", "dataset"),
    *("notify", "seed"),
)


def _some(value: Any, where: str) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise read.wrong(where, value, "a list of one or more")
    return value


def _scorers(value: Any, where: str) -> tuple[ScorerSpec, ...]:
    items = _some(value, where)
    if len(items) > MAX_SCORERS:
        raise UsageError(f"{where} has {len(items)} scorers; it must have at most {MAX_SCORERS}")
    return tuple(ScorerSpec.from_json(item, f"{where}[{i}]") for i, item in enumerate(items))


def _slices(value: Any, where: str) -> tuple[str, ...]:
    columns = read.texts(value, where)
    for i, column in enumerate(columns):
        if len(storable(column)) > MAX_COLUMN:
            raise UsageError(
                f"{where}[{i}] has {len(column)} characters; a column to slice by has {MAX_COLUMN} "
                "at most"
            )
    return columns


def _urls(value: Any, where: str) -> tuple[str, ...]:
    urls = read.texts(value, where)
    for i, url in enumerate(urls):
        reason = refusal(url, ())
        if reason is not None:
            raise UsageError(
                f"{where}[{i}] must be a URL such as https://example.com/hook: {reason}"
            )
    if len(urls) > MAX_URLS:
        raise UsageError(f"{where} has {len(urls)} URLs; {MAX_URLS} at most can be told")
    return urls
