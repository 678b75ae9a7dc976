"""`json_schema`: the answer is JSON that fits a schema."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from jobs.errors import PackageMissing, UsageError
from jobs.evaluation.rows import Score, ScoredRow, accepted, brief, missing
from jobs.evaluation.scorers.base import RowScorer
from jobs.evaluation.scorers.bounded import BoundedPattern, TooSlow
from jobs.extras import how_to_install

MAX_CHARACTERS = 1 << 20  # of an answer that is looked at
_FENCE = re.compile(r"```[\w+-]*[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)
_KEPT = 256  # schemas of targets that are kept compiled


@dataclass(frozen=True, kw_only=True)
class JsonSchema(RowScorer):
    """The answer is JSON (RFC 8259), and fits the schema.

    Attributes:
        schema: a JSON schema; None if the target of each row is one, or the text of one.
        fenced: the JSON may stand in a Markdown fence, with nothing around that.
    """

    name = "json_schema"
    summary = "the answer is JSON that fits a schema"
    schema: Mapping[str, Any] | bool | None = None
    fenced: bool = False

    @property
    def needs_target(self) -> bool:
        return self.schema is None

    def prepare(self) -> None:
        _jsonschema()
        if self.schema is not None:
            try:
                _validator(orjson.dumps(self.schema))
            except ValueError as error:
                raise UsageError(f"json_schema: {error}") from None

    def score_answer(self, row: ScoredRow) -> Score:
        if row.answer is None:
            return missing("no answer")
        try:
            schemas = [_schema(target) for target in self._schemas(row)]
            validators = [_validator(schema) for schema in schemas]
        except ValueError as error:
            return missing(str(error))
        text = row.answer.strip()
        if len(text) > MAX_CHARACTERS:
            return missing(f"the answer is over {MAX_CHARACTERS:,} characters")
        if self.fenced and (fence := _FENCE.fullmatch(text)):
            text = fence[1]
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            return Score(0.0, brief(f"no JSON: {error}"))
        return max((_fit(value, v) for v in validators), key=lambda score: score.value or 0.0)

    def _schemas(self, row: ScoredRow) -> list[Any]:
        return [self.schema] if self.schema is not None else accepted(row.target)


def _schema(value: Any) -> bytes:
    """The JSON of a schema, or of its text.

    Raises:
        ValueError: it is neither.
    """
    try:
        schema = orjson.loads(value) if isinstance(value, str) else value
        if isinstance(schema, Mapping | bool):
            return orjson.dumps(schema)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        pass
    raise ValueError("the target is no JSON schema")


def _fit(value: Any, validator: Any) -> Score:
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    try:
        error = best_match(validator.iter_errors(value))
    except TooSlow as slow:
        return missing(f"an expression of the schema: {slow}")
    except Unresolvable as unknown:
        return missing(f"the schema refers to {unknown.ref!r}, which is not in it")
    except RecursionError:
        return missing("the schema or the answer is nested too deep")
    # Older dialects let through what the library cannot work with; it is about this row alone.
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError) as unusable:
        return missing(f"the schema cannot be used: {type(unusable).__name__}: {unusable}")
    if error is None:
        return Score(1.0)
    return Score(0.0, brief(f"{error.json_path}: {error.message}"))


@functools.lru_cache(_KEPT)
def _validator(schema: bytes) -> Any:
    """What checks values. Nothing that a schema refers to is fetched.

    Raises:
        ValueError: it is no schema.
    """
    from referencing import Registry

    jsonschema = _jsonschema()
    value = orjson.loads(schema)
    if isinstance(value, dict) and not isinstance(value.get("$schema", ""), str):
        raise ValueError("no JSON schema: $.$schema is no text")
    kind = jsonschema.validators.validator_for(value, jsonschema.Draft202012Validator)
    try:
        kind.check_schema(value)
    except jsonschema.SchemaError as error:
        raise ValueError(f"no JSON schema: {error.json_path}: {error.message}"[:300]) from None
    except RecursionError:
        raise ValueError("no JSON schema: it is nested too deep") from None
    bounded = jsonschema.validators.extend(
        kind,
        {
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "additionalProperties": _additional_properties,
        },
    )
    return bounded(value, registry=Registry())


def _jsonschema() -> Any:
    try:
        import jsonschema.validators
    except ImportError:
        raise PackageMissing(
            f"json_schema needs the package jsonschema: {how_to_install('evals')}"
        ) from None
    return jsonschema


# The keywords with expressions, which the library searches for as long as it takes.


@functools.lru_cache(_KEPT)
def _compiled(expression: str) -> BoundedPattern:
    return BoundedPattern(expression)


def _pattern(validator: Any, expression: str, value: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if validator.is_type(value, "string") and _compiled(expression).search(value) is None:
        yield ValidationError(f"{brief(repr(value))} does not match {expression!r}")


def _pattern_properties(validator: Any, patterns: Any, value: Any, schema: Any) -> Iterator[Any]:
    if not validator.is_type(value, "object"):
        return
    for expression, inner in patterns.items():
        for name, item in value.items():
            if _compiled(expression).search(name):
                yield from validator.descend(item, inner, path=name, schema_path=expression)


def _additional_properties(validator: Any, allowed: Any, value: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if not validator.is_type(value, "object"):
        return
    patterns = [_compiled(expression) for expression in schema.get("patternProperties", ())]
    for name, item in value.items():
        if name in schema.get("properties", ()) or any(p.search(name) for p in patterns):
            continue
        if allowed is False:
            yield ValidationError(f"{brief(repr(name))} is no property that is allowed")
        elif allowed is not True:
            yield from validator.descend(item, allowed, path=name)
