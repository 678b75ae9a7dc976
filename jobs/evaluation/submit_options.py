"""Options of `jobs.submit` inside a specification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_type_hints

from jobs.api.options import SubmitArguments, check_names
from jobs.errors import UsageError
from jobs.evaluation.fields import an_object

# What an evaluation decides itself.
_OURS = {"seed": "the evaluation's own seed is used", "idempotency_key": "each job has its own"}


def submit_options(value: Any, where: str) -> Mapping[str, Any]:
    """Options of `jobs.submit`, whose values are looked at where the job is submitted.

    Raises:
        UsageError: there is no such option, or the evaluation decides about it.
    """
    given = an_object(value, where)
    for name, why in _OURS.items():
        if name in given:
            raise UsageError(f"{where}.{name} cannot be given: {why}")
    try:
        check_names(given, get_type_hints(SubmitArguments))
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None
    return given
