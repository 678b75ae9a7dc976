"""The row of an id, or of the only id that starts so: nobody types 24 characters."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import Connection, Row, Table, func, select

from jobs.errors import EvaluationNotFound, JobNotFound
from jobs.evaluation_tables import evaluations
from jobs.sqltypes import SafeText
from jobs.tables import jobs

LONGEST_ID = 64
SHOWN_MATCHES = 10
_JOB, _EVALUATION = "job_", "eval_"  # how ids begin
_ID = re.compile(f"({_JOB}|{_EVALUATION})[0-9a-z]+")
_SHOWN_BY = {
    _JOB: ("jobs", "pagemill status"),
    _EVALUATION: ("evaluations", "pagemill eval show"),
}
_RANDOM = 4  # characters behind its prefix that the start of an id must have


def job_row(connection: Connection, given: str) -> Row[Any]:
    """The row of a job.

    Raises:
        JobNotFound: there is none, or there are several.
    """
    return _row(connection, jobs, given, ("job", _JOB, "pagemill list"), JobNotFound)


def evaluation_row(connection: Connection, given: str) -> Row[Any]:
    """The row of an evaluation.

    Raises:
        EvaluationNotFound: there is none, or there are several.
    """
    names = ("evaluation", _EVALUATION, "pagemill eval list")
    return _row(connection, evaluations, given, names, EvaluationNotFound)


def _row(
    connection: Connection,
    table: Table,
    given: str,
    names: tuple[str, str, str],
    not_found: type[JobNotFound] | type[EvaluationNotFound],
) -> Row[Any]:
    """The row of a table.

    Args:
        names: what its rows are, how their ids begin, and the command that lists them.
    """
    noun, prefix, command = names
    if len(given) > LONGEST_ID:
        raise not_found(
            f"no id has over {LONGEST_ID} characters, and this one, which begins with "
            f"{given[:LONGEST_ID]!r}, has {len(given):,}; `{command}` shows the ids"
        )
    exact = connection.execute(select(table).where(table.c.id == given)).one_or_none()
    if exact is not None:
        return exact
    if (other := _ID.fullmatch(given)) and other[1] != prefix:
        others, show = _SHOWN_BY[other[1]]
        raise not_found(
            f"{given} is no id of {noun}s, and begins as those of {others} do; `{show} {given}` "
            f"shows that, and `{command}` shows the {noun}s there are"
        )
    shortest = len(prefix) + _RANDOM
    if len(given) < shortest:
        raise not_found(
            f"there is no {noun} {given!r}; the start of an id is enough from {shortest} "
            f"characters on, and `{command}` shows the ids"
        )
    # Not LIKE: it would take `_`, which is in every id, for any character.
    starts = func.substr(table.c.id, 1, len(given), type_=SafeText) == given
    found = connection.execute(
        select(table).where(starts).order_by(table.c.id).limit(SHOWN_MATCHES + 1)
    ).all()
    if len(found) == 1:
        return found[0]
    if not found:
        raise not_found(f"there is no {noun} {given!r}; `{command}` shows those there are")
    matches = ", ".join(row.id for row in found[:SHOWN_MATCHES])
    more = ", …" if len(found) > SHOWN_MATCHES else ""
    raise not_found(f"{given!r} is the start of several ids ({matches}{more}); give more of it")
