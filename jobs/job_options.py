"""What holds for all rows of a job, checked before its input is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from jobs.errors import RowError, UsageError
from jobs.keys import Kind, meaning
from jobs.kind_rules import check_job_of_kind
from jobs.parameters import CHECKS, MAX_INTEGER, MAX_SEED, check_parameter
from jobs.planner import check_chunk_rows
from jobs.prompts import PromptRules
from jobs.structured import GRAMMAR, NAMES, check_grammar
from jobs.tables import MAX_KEY
from jobs.template import PromptTemplate
from jobs.tools import check_template_kwargs

if TYPE_CHECKING:
    from jobs.submission import Submission

MAX_ROW_TIMEOUT = 366 * 24 * 3600
_RESERVED_COLUMNS = frozenset({Kind.CUSTOM_ID, Kind.PARAMETER})


def check_options(submission: Submission) -> PromptRules:
    """Check all options but `sampling`, and tell where prompts come from.

    Raises:
        UsageError: options that cannot work.
    """
    if not submission.model:
        raise UsageError("no model is named")
    limit = submission.limit
    if limit is not None and not 1 <= limit <= MAX_INTEGER:
        raise UsageError(f"limit is {limit}; it must be from 1 to 2**63 - 1")
    if submission.seed is not None and not 0 <= submission.seed <= MAX_SEED:
        raise UsageError(f"seed is {submission.seed}; it must be from 0 to 2**63 - 1")
    if submission.deadline_at is not None and submission.deadline_at.tzinfo is None:
        raise UsageError("the deadline has no time zone")
    timeout = submission.row_timeout
    if timeout is not None and not 0 < timeout <= MAX_ROW_TIMEOUT:
        raise UsageError(
            f"row_timeout is {timeout:g}; it must be over 0 and at most {MAX_ROW_TIMEOUT:,} seconds"
        )
    check_chunk_rows(submission.chunk_rows)
    if not -(2**31) <= submission.priority < 2**31:
        raise UsageError(f"priority is {submission.priority}; it must have at most 32 bits")
    check_job_of_kind(submission)
    _check_key(submission.idempotency_key)
    _check_texts(submission)
    _check_template_kwargs(submission.chat_template_kwargs)
    return _prompt_rules(submission)


def check_sampling(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """The sampling parameters that a job gives to all its rows; None means not set.

    Raises:
        UsageError: an unknown parameter, or a value that no row could have either.
    """
    checked = {}
    grammar = {}
    for name, value in sampling.items():
        if name in NAMES:
            if value is not None:
                grammar[name] = value
            continue
        if name not in CHECKS:
            near = meaning(name).name
            known = ", ".join((*CHECKS, *NAMES))
            hint = f"did you mean {near}?" if near in (*CHECKS, *NAMES) else f"known: {known}"
            raise UsageError(f"{name!r} is no sampling parameter; {hint}")
        if value is None:
            continue
        try:
            checked[name] = check_parameter(name, value)
        except RowError as error:
            raise UsageError(str(error)) from None
    if grammar:
        try:
            checked[GRAMMAR] = check_grammar(grammar)
        except RowError as error:
            raise UsageError(str(error)) from None
    return checked


def _check_key(key: str | None) -> None:
    if key is not None and not (1 <= len(key) <= MAX_KEY and key.isprintable()):
        raise UsageError(
            f"--idempotency-key must be 1 to {MAX_KEY} printable characters; this one has "
            f"{len(key)}, or some that cannot be printed"
        )


def _check_texts(submission: Submission) -> None:
    for option in ("system", "template"):
        text = getattr(submission, option)
        if text is not None and not text.strip():
            raise UsageError(f"--{option} is empty; leave it out")
    texts = [
        ("--system", submission.system),
        ("--template", submission.template),
        ("--name", submission.name),
        ("--model", submission.model),
        *(("--stop", text) for text in _texts_of(submission, "stop")),
        *(("--bad-words", text) for text in _texts_of(submission, "bad_words")),
        *(("--served-model-name", name) for name in submission.served_model_names),
    ]
    for option, text in texts:
        if isinstance(text, str) and not _is_unicode(text):
            raise UsageError(f"{option} is not UTF-8")


def _texts_of(submission: Submission, name: str) -> Sequence[Any]:
    value = submission.sampling.get(name) or ()
    return [value] if isinstance(value, str) else value


def _is_unicode(text: str) -> bool:
    """Arguments that were no UTF-8 come from the operating system with lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _check_template_kwargs(kwargs: Mapping[str, Any]) -> None:
    try:
        check_template_kwargs(dict(kwargs), "--chat-template-kwargs")
        orjson.dumps(dict(kwargs))
    except RowError as error:
        raise UsageError(str(error)) from None
    except TypeError as error:
        raise UsageError(f"--chat-template-kwargs cannot be written as JSON: {error}") from None


def _prompt_rules(submission: Submission) -> PromptRules:
    column, template = submission.prompt_column, submission.template
    if column is not None and template is not None:
        raise UsageError("--prompt-column and --template both make the prompt; use one of them")
    if column is not None and meaning(column).kind in _RESERVED_COLUMNS:
        raise UsageError(f"--prompt-column is {column}, which has a meaning of its own")
    return PromptRules(
        submission.system,
        column,
        None if template is None else PromptTemplate(template),
        (submission.model, *submission.served_model_names),
        submission.kind,
    )
