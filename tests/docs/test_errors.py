"""docs/errors.md has every error code that there is in the code, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.error_codes import evaluation_codes, exit_codes, job_codes, row_codes
from tests.support.markdown_pages import Block, blocks
from tests.support.named_tests import page
from tests.support.submissions import prepare_lines

pytestmark = pytest.mark.quick

PAGE = page("errors.md")
SECTIONS = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", PAGE, re.MULTILINE))
REFUSED = [block for block in blocks("docs/errors.md") if block.words]


def entries(*sections: str) -> dict[str, str]:
    """The text of each code below the headings."""
    text = "".join(SECTIONS[section] for section in sections)
    found = re.findall(r"^### `(\w+)`\n((?:(?!### ).*\n)*)", text, re.MULTILINE)
    assert len(found) == len({code for code, _ in found})
    return dict(found)


OF_ROWS = entries("Rows that submit refused", "Rows that a worker could not answer")
OF_JOBS = entries("Jobs that failed")
OF_EVALUATIONS = entries("Evaluations that failed")
OF_ERRORS = entries("Commands and workers that end with an error")
ALL = OF_ROWS | OF_JOBS | OF_EVALUATIONS | OF_ERRORS


def test_every_code_of_a_row_is_there_and_no_other() -> None:
    assert len(row_codes()) > 40
    assert OF_ROWS.keys() == row_codes()


def test_every_code_of_a_job_is_there_and_no_other() -> None:
    assert {"model_unavailable", "worker_failed"} < job_codes()
    assert OF_JOBS.keys() == job_codes()


def test_every_code_of_an_evaluation_is_there_and_no_other() -> None:
    of_both = evaluation_codes() & job_codes()
    assert of_both == {"internal_error", "output_incomplete"}
    assert all("evaluation" in OF_JOBS[code] for code in of_both)
    assert OF_EVALUATIONS.keys() == evaluation_codes() - of_both


def test_every_error_is_there_with_its_exit_code_and_no_other() -> None:
    said = {
        name: int(re.findall(r"\AExit code (\d+)\.", text.strip())[0])
        for name, text in OF_ERRORS.items()
    }
    assert said == exit_codes()


@pytest.mark.parametrize("code", ALL)
def test_an_entry_says_more_than_the_code(code: str) -> None:
    text = ALL[code]
    assert len(re.sub(r"```.*?```", "", text, flags=re.DOTALL).split()) >= 12


@pytest.mark.parametrize("block", REFUSED, ids=lambda block: block.words[0])
def test_the_rows_that_are_shown_have_that_code(block: Block, tmp_path: Path) -> None:
    (code,) = block.words
    assert f"{block.code}```" in OF_ROWS[code]
    for line in block.code.encode().splitlines():
        good = b'{"prompt": "Name a river."}'  # a file without one is refused as a whole
        done = prepare_lines(tmp_path, line, good, model="smollm2-135m")
        assert [found for _, found, _ in done.errors()] == [code], line
