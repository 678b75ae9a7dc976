"""How many rows of a job have no answer, by error code."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, case

from jobs.records import ErrorTally
from jobs.store.rows import insert_unless_there
from jobs.tables import row_errors

_EXAMPLE = ("row_index", "line", "field", "message")


def add_errors(
    connection: Connection, job_id: str, version: int, source: str, errors: Sequence[ErrorTally]
) -> None:
    """Add to the errors of a version; the example of a code is the first row in the input.

    Args:
        source: `AT_SUBMIT` or `IN_WORKER`.
    """
    if not errors:
        return
    new = insert_unless_there(connection, row_errors)
    is_first = new.excluded.row_index < row_errors.c.row_index
    statement = new.on_conflict_do_update(
        index_elements=row_errors.primary_key.columns,
        set_={
            "rows": row_errors.c.rows + new.excluded.rows,
            **{
                name: case((is_first, new.excluded[name]), else_=row_errors.c[name])
                for name in _EXAMPLE
            },
        },
    )
    connection.execute(
        statement,
        [
            {
                "job_id": job_id,
                "version": version,
                "source": source,
                "code": tally.code,
                "rows": tally.rows,
                "row_index": tally.row_index,
                "line": tally.line,
                "field": tally.field,
                "message": tally.message,
            }
            # One order for all, so that two transactions never wait for each other.
            for tally in sorted(errors, key=lambda tally: tally.code)
        ],
    )
