"""Which sampling parameters go together with beam search.

The rules are those of the engine, which `jobs` does not import: they stand here a second time, so
that a row is refused when it is submitted, and a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.errors import RowError
from jobs.parameters import MAX_BEAMS

# What means nothing where nothing is searched, and its value that changes nothing there.
_OF_SEARCHES = {"early_stopping": False, "length_penalty": 1}
# What a search obeys, too; and the seed, which every row has, and no search needs.
_OF_BOTH = frozenset({"ignore_eos", "max_tokens", "n", "seed", "stop_token_ids"})
_NAMES = frozenset({"num_beams", "use_beam_search", *_OF_SEARCHES})
# Values that ask nothing of a search. Of other parameters there are none.
_AT_REST: dict[str, Any] = {
    "bad_words": [],
    "bad_words_ids": [],
    "frequency_penalty": 0,
    "grammar": None,
    "include_stop_str_in_output": False,
    "logit_bias": {},
    "min_p": 0,
    "min_tokens": 0,
    "presence_penalty": 0,
    "repetition_penalty": 1,
    "stop": [],
    "temperature": 0,
    "top_k": 0,
    "top_p": 1,
}


def search_width(params: Mapping[str, Any]) -> int:
    """By how many beams a row is searched: `num_beams`, or else `n`; 1 where it is sampled.

    Args:
        params: of the row and of its job, in the form that the engine takes.

    Raises:
        RowError: `invalid_parameter`, `use_beam_search` and `num_beams` contradict each other.
    """
    wanted = params.get("use_beam_search")
    width: int = params.get("num_beams", params.get("n", 1) if wanted else 1)
    if wanted is None or wanted == (width > 1):
        return width
    if wanted:
        message = f"use_beam_search is true, but num_beams is {width}; it must be over 1"
    else:
        message = f"use_beam_search is false, but num_beams is {width}; leave one of them out"
    raise RowError("invalid_parameter", message, "use_beam_search")


def check_beams(own: Mapping[str, Any], of_job: Mapping[str, Any], prefix: str = "") -> None:
    """Refuse a search that cannot be, or that has parameters which mean nothing to one.

    Args:
        own: the row's parameters, in the form that the engine takes; they win.
        of_job: those of its job, in the same form.
        prefix: `body.` for a row in the body of a batch line.

    Raises:
        RowError: `invalid_parameter`, with the row's field or the job's parameter.
    """
    if _NAMES.isdisjoint(own) and _NAMES.isdisjoint(of_job):
        return
    try:
        _check({**of_job, **own})
    except RowError as error:
        if error.field not in own:
            raise
        raise RowError(error.code, str(error), f"{prefix}{error.field}") from None


def _check(params: Mapping[str, Any]) -> None:
    width = search_width(params)
    if width > MAX_BEAMS:  # only where it is `n`
        raise _refusal("n", f"n is {width}; a search has from 2 to {MAX_BEAMS} beams")
    if width == 1:
        for name, neutral in _OF_SEARCHES.items():
            if params.get(name, neutral) != neutral:
                raise _refusal(name, f"{name} is for beam search; set num_beams over 1")
        return
    answers = params.get("n", 1)
    if answers > width:
        raise _refusal(
            "n",
            f"n is {answers}, but num_beams is {width}; a beam search gives at most as many "
            "answers as it has beams",
        )
    for name, value in params.items():
        if name in _NAMES or name in _OF_BOTH:
            continue
        if name not in _AT_REST or value != _AT_REST[name]:
            name = value["field"] if name == "grammar" else name
            raise _refusal(
                name,
                f"{name} does not go with beam search (num_beams is {width}); leave one out",
            )


def _refusal(field: str, message: str) -> RowError:
    return RowError("invalid_parameter", message, field)
