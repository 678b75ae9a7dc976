"""`errors` of a job, by code and row by row."""

from __future__ import annotations

import pytest

from tests.support.command_line import GOOD, CommandLine, answer_all

pytestmark = pytest.mark.quick


def test_errors_are_grouped_by_code(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD, "bad", {"prompt": "x", "top_p": 2}, *["worse"] * 25)

    out, _ = cli("errors", job_id)

    assert "invalid_json: 26 rows\n  line 4, row 3: " in out
    assert "… and 6 more" in out
    assert "invalid_parameter: 1 row\n  line 5, row 4 (top_p): top_p " in out
    assert out.index("invalid_json") < out.index("invalid_parameter")


def test_errors_as_json_list_every_row(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD, "bad", {"prompt": "x", "top_p": 2, "custom_id": "five"})
    answer_all(cli, job_id, failing={1})

    found = cli.json("errors", job_id)

    assert [(row["row_index"], row["line"], row["code"]) for row in found] == [
        (1, 2, "nan_logits"),
        (3, 4, "invalid_json"),
        (4, 5, "invalid_parameter"),
    ]
    assert found[2]["custom_id"] == "five"
    assert found[2]["field"] == "top_p"
    assert set(found[0]) == {"row_index", "custom_id", "code", "message", "line", "field"}


def test_errors_of_some_codes_and_so_many_of_each(cli: CommandLine) -> None:
    bad = {"prompt": "x", "top_p": 2, "custom_id": "five"}
    job_id = cli.submit(*GOOD, *["bad"] * 3, bad, {"prompt": 1})

    out, _ = cli("errors", job_id, "--code", "invalid_json", "--limit", "1")
    assert len(out.splitlines()) == 3
    assert out.startswith("invalid_json: 3 rows\n  line 4, row 3: ")
    assert out.splitlines()[-1].startswith("  … and 2 more")

    counts, _ = cli("errors", job_id, "--limit", "0")
    assert counts == "invalid_json: 3 rows\ninvalid_parameter: 1 row\nwrong_type: 1 row\n"

    options = ("--code", "invalid_parameter", "--code", "wrong_type")
    both, _ = cli("errors", job_id, *options)
    assert "line 7, row 6, custom_id five (top_p): " in both
    assert "invalid_json" not in both
    assert [row["line"] for row in cli.json("errors", job_id, *options)] == [7, 8]
    assert [row["line"] for row in cli.json("errors", job_id, "--limit", "1")] == [4, 7, 8]

    out, err = cli("errors", job_id, "--code", "nan_logits")
    assert out == ""
    assert f"job {job_id} (queued) has no rows with errors of code nan_logits" in err


def test_errors_as_json_by_code(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD, *["bad"] * 25)

    (group,) = cli.json("errors", job_id, "--by-code")

    assert (group["code"], group["rows"], len(group["examples"])) == ("invalid_json", 25, 20)
    assert group["examples"] == cli.json("errors", job_id)[:20]
    (group,) = cli.json("errors", job_id, "--by-code", "--limit", "0")
    assert group == {"code": "invalid_json", "rows": 25, "examples": []}
    _, err = cli("errors", job_id, "--by-code", expect=64)
    assert "--by-code is for --json" in err


def test_a_job_without_errors_lists_none(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD)

    assert cli.json("errors", job_id) == []
    out, err = cli("errors", job_id)
    assert out == ""
    assert "no rows with errors" in err


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_errors_of_a_job_that_failed_as_a_whole_say_why(
    cli: CommandLine, options: list[str]
) -> None:
    job_id = cli.submit(*GOOD, "bad")
    with cli.store() as store:
        store.fail_job(job_id, "model_unavailable", "there is no such model")

    out, err = cli("errors", job_id, *options)

    assert f"job {job_id} failed as a whole: there is no such model [model_unavailable]" in err
    assert "invalid_json" in out
