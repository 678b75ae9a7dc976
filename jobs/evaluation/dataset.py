"""The rows of an evaluation: several files that are one input of its job, and what they hold.

The order of the rows is that of the files' names, then that of the rows in them. Their hash is
over what the rows hold: it is the same however they are compressed, named or cut into files, and
as JSON lines or Parquet.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from jobs.errors import InputChanged, InputError
from jobs.evaluation.carried import data_of_block
from jobs.evaluation.inputs import Inputs, find
from jobs.evaluation.keys import row_content
from jobs.evaluation.spec import EvaluationSpec
from jobs.job_options import check_options, check_sampling
from jobs.prompts import PromptRules
from jobs.reading.blocks import Block
from jobs.reading.opening import open_input
from jobs.rows import Row

if TYPE_CHECKING:
    from jobs.cli.deployment import Deployment
    from jobs.submission import Submission

_SHOWN_COLUMNS = 40


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """What the input files of an evaluation hold.

    Attributes:
        hash: of all rows in their order, hex digits.
        rows: how many there are, refused ones too.
        columns: names of the columns that are no prompt, in alphabetical order.
        refused: how many rows cannot be answered.
        targets: how many have a right answer.
        files: names of the files.
    """

    hash: str
    rows: int
    columns: tuple[str, ...]
    refused: int
    targets: int
    files: tuple[str, ...]


def submission_of(deployment: Deployment, spec: EvaluationSpec, inputs: Inputs) -> Submission:
    """The job that answers the rows, without a name and an idempotency key of its own.

    Raises:
        UsageError: an option is nothing that can be read.
    """
    from jobs.api.options import submission_from

    given = {**spec.submit, "kind": spec.job_kind.value}
    submission = submission_from(deployment, inputs.source.name, spec.model, given)
    return replace(submission, input=inputs.source, seed=spec.seed)


def describe(deployment: Deployment, spec: EvaluationSpec) -> DatasetInfo:
    """Read the rows of a specification, and see that they are what its scorers need.

    Raises:
        InputError: a file is missing or cannot be read, no file fits a pattern, there are no
            rows, or no row has the target or a slice's column.
        InputChanged: a file was written while it, or another one of them, was read.
        UsageError: the options of the job cannot work.
    """
    inputs = find(spec.inputs, deployment.settings.max_unpacked_bytes)
    stamp = inputs.stamp()
    found = describe_inputs(deployment, spec, inputs)
    if inputs.stamp() != stamp:
        raise InputChanged(
            f"{inputs.source.name} was written while it was read; try again once nobody writes "
            "to it, or give a copy of it"
        )
    return found


def describe_inputs(deployment: Deployment, spec: EvaluationSpec, inputs: Inputs) -> DatasetInfo:
    """`describe`, of files that were found before."""
    submission = submission_of(deployment, spec, inputs)
    check_sampling(submission.sampling)
    # What the job says to all rows is no part of them.
    rules = replace(check_options(submission), system=None)
    digest = hashlib.sha256()
    counts = {"rows": 0, "refused": 0, "targets": 0}
    columns: set[str] = set()
    most = deployment.settings.max_unpacked_bytes
    with open_input(submission.input, rules, submission.input_format, max_unpacked=most) as reader:
        for row, data in _rows(reader.blocks(), submission.limit):
            content = row_content(
                custom_id=row.custom_id,
                prompt=None if rules.template else row.prompt,
                messages=None if rules.template else row.messages,
                continuations=row.continuations,
                more=(row.params, row.chat, row.error and row.error.code),
                data=data,
            )
            digest.update(b"%d:" % len(content))
            digest.update(content)
            counts["rows"] += 1
            counts["refused"] += row.error is not None
            counts["targets"] += data.get(spec.target or "") is not None
            columns.update(data)
    if not counts["rows"]:
        raise InputError(f"{inputs.source.name} has no rows")
    if counts["refused"] == counts["rows"]:
        raise _no_row(inputs, submission.input_format, rules, most, counts["rows"])
    _check(spec, inputs, counts, columns)
    return DatasetInfo(
        hash=digest.hexdigest(), columns=tuple(sorted(columns)), files=inputs.names, **counts
    )


def _rows(blocks: Iterator[Block], limit: int | None) -> Iterator[tuple[Row, Mapping[str, Any]]]:
    left = limit
    for block in blocks:
        for row, data in zip(block.rows, data_of_block(block), strict=True):
            if left == 0:
                return
            yield row, data
            left = None if left is None else left - 1


def _no_row(
    inputs: Inputs, form: str | None, rules: PromptRules, most: int, rows: int
) -> InputError:
    """The error of an input without a row that can be answered, with the first reasons.

    Its files are read once more, one by one, as their lines are told and not those of the whole.
    """
    from jobs.submission import SHOWN_ERRORS, reasons

    hint, listed, left = "", "", min(SHOWN_ERRORS, rows)
    for file in inputs.files:
        with open_input(file, rules, form, max_unpacked=most) as reader:
            errors = (row.error for block in reader.blocks() for row in block.rows)
            found = list(islice((error for error in errors if error is not None), left))
            where = reader.unit if len(inputs.files) == 1 else f"{file.name}, {reader.unit}"
            listed += reasons(found, where)
            hint = hint or reader.hint()
        left -= len(found)
        if not left:
            break
    return InputError(f"no row of {inputs.source.name} can be answered.{hint}{listed}")


def _check(
    spec: EvaluationSpec, inputs: Inputs, counts: Mapping[str, int], columns: set[str]
) -> None:
    name = inputs.source.name
    has = ", ".join(sorted(columns)[:_SHOWN_COLUMNS]) or "none beside the prompt"
    needs = any(scorer.built().needs_target for scorer in spec.scorers)
    if needs and not counts["targets"]:
        raise InputError(
            f"no row of {name} has a column {spec.target!r}, which has the right answers; name it "
            f"with --target. It has: {has}"
        )
    for column in spec.slices:
        if column not in columns:
            near = difflib.get_close_matches(column, columns, n=1)
            hint = f"did you mean {near[0]}? It" if near else "it"
            raise InputError(
                f"no row of {name} has a column {column!r} to slice by; {hint} has: {has}"
            )
