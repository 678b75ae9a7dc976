"""`--scorer` as it is written on a command line.

    NAME                                 exact
    NAME:key=value,key=value             numeric:tolerance=0.01,as=price
    a JSON object                        {"scorer": "regex", "pattern": "(\\\\d+), (\\\\d+)"}
    @FILE                                @scorers.json, with one such object or a list of them

A value may be JSON. Any other ends before the next comma. Of an option whose value is text or
JSON that is long, `@FILE` is what the file holds: `json_schema:schema=@answer.schema.json`. `as`
gives the scorer a name. An object may have its options beside `scorer` and `as`, or in `options`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from jobs.errors import UsageError
from jobs.evaluation.fields import an_object
from jobs.evaluation.scorers.base import Scorer
from jobs.evaluation.scorers.registry import scorer_kind
from jobs.evaluation.spec import ScorerSpec

MAX_FILE_BYTES = 4 << 20
_JSON = json.JSONDecoder()


def parse_scorers(
    given: Sequence[str | Mapping[str, Any]], where: str = "--scorer"
) -> tuple[ScorerSpec, ...]:
    """The scorers of all `--scorer`s together; one that is no text is what its JSON would be.

    Raises:
        UsageError: one is none, or a file that it names cannot be read.
    """
    return tuple(scorer for one in given for scorer in _parsed(one, where))


def with_files(value: Any) -> Any:
    """A scorer of a specification that somebody wrote, with what stands in the files it names.

    A value that is nothing to be read stays as it is, for `ScorerSpec.from_json` to refuse.
    """
    if isinstance(value, Mapping) and isinstance(options := value.get("options"), Mapping):
        kind = scorer_kind(value.get("scorer"), "scorer")
        read = {name: _from_file(kind, name, option) for name, option in options.items()}
        return {**value, "options": read}
    return value


def _parsed(given: str | Mapping[str, Any], where: str) -> Iterator[ScorerSpec]:
    if not isinstance(given, str):
        yield _of_object(given, where)
        return
    text = given.strip()
    if text.startswith("@"):
        value = _json(_read(text[1:], where), f"{where} {text}")
        for item in value if isinstance(value, list) else [value]:
            yield _of_object(item, f"{where} {text}")
    elif text.startswith("{"):
        yield _of_object(_json(text, where), where)
    else:
        name, _, options = text.partition(":")
        kind = scorer_kind(name.strip(), where)
        yield _made(kind, dict(_pairs(kind, options, f"{where} {text!r}")), where)


def _of_object(value: Any, where: str) -> ScorerSpec:
    given = dict(an_object(value, where))
    if isinstance(given.get("options"), Mapping):
        options = dict(given.pop("options"))
        if "name" in given:
            options["as"] = given.pop("name")
        given = {**options, **given}
    kind = scorer_kind(given.pop("scorer", None), f"{where}: scorer")
    return _made(kind, given, where)


def _made(kind: type[Scorer], options: dict[str, Any], where: str) -> ScorerSpec:
    name = options.pop("as", kind.name)
    options = {option: _from_file(kind, option, value) for option, value in options.items()}
    value = {"name": name, "scorer": kind.name, "options": options}
    return ScorerSpec.from_json(value, where)


def _pairs(kind: type[Scorer], text: str, where: str) -> Iterator[tuple[str, Any]]:
    seen = set()
    while text:
        key, equals, text = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise UsageError(
                f"{where}: {key!r} is no option; write key=value, and a value with a comma as JSON"
            )
        if key in seen:
            raise UsageError(f"{where} gives {key} twice")
        seen.add(key)
        value, text = _value(_is_text(kind, key), text)
        yield key, value


def _is_text(kind: type[Scorer], option: str) -> bool:
    hint = kind.options().get(option)
    return option == "as" or hint is str or str in get_args(hint)


def _value(text_wanted: bool, text: str) -> tuple[Any, str]:
    """A value, and what comes after its comma."""
    text = text.lstrip()
    # A text may look like a number, but a JSON text is one in quotes.
    if not text_wanted or text.startswith('"'):
        try:
            value, end = _JSON.raw_decode(text)
        except (ValueError, RecursionError):
            pass
        else:
            rest = text[end:].lstrip()
            if not rest or rest.startswith(","):
                return value, rest[1:]
    value, _, rest = text.partition(",")
    return value.strip(), rest


def _from_file(kind: type[Scorer], option: str, value: Any) -> Any:
    if not (isinstance(value, str) and value.startswith("@") and len(value) > 1):
        return value
    where = f"{kind.name}.{option}"
    text = _read(value[1:], where)
    return text if _is_text(kind, option) else _json(text, f"{where} {value}")


def _read(path: str, where: str) -> str:
    try:
        with Path(path).expanduser().open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        text = data.decode()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"{where}: {path} cannot be read: {reason}") from None
    if len(data) > MAX_FILE_BYTES:
        raise UsageError(f"{where}: {path} is over {MAX_FILE_BYTES >> 20} MiB")
    return text


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is not JSON: {error}") from None
