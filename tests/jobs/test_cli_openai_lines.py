"""`submit` of files that were made for OpenAI's Batch API or for `vllm run-batch`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import CommandLine

pytestmark = pytest.mark.quick


def line(model: str, **body: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "hi"}]
    body = {"model": model, "messages": messages} | body
    return {"method": "POST", "url": "/v1/chat/completions", "body": body}


def test_the_options_reach_the_job(cli: CommandLine) -> None:
    job_id = cli.submit(
        line("gpt-4o"), line("gpt-4o-mini"), line("the-model"),
        options=(
            "--n", "3", "--logprobs", "0", "--chat-template-kwargs", '{"enable_thinking": false}',
            "--served-model-name", "gpt-4o", "--served-model-name", "gpt-4o-mini",
        ),
    )  # fmt: skip

    with cli.store() as store:
        job = store.job(job_id)
    assert (job.total_rows, job.counts.failed) == (3, 0)
    assert job.options["sampling"] == {"n": 3, "logprobs": 0}
    assert job.options["chat_template_kwargs"] == {"enable_thinking": False}
    assert job.options["served_model_names"] == ["gpt-4o", "gpt-4o-mini"]


@pytest.mark.parametrize("given", ["model", "./model", "{absolute}"])
def test_rows_may_name_a_folder_as_the_command_did(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").touch()
    monkeypatch.chdir(tmp_path)
    given = given.format(absolute=folder)
    rows = "".join(json.dumps(line(name)) + "\n" for name in (given, str(folder), "another"))

    out, err = cli("submit", "-", "--model", given, stdin=rows)

    assert cli.json("status", out.strip())["rows"]["failed"] == 1
    assert "line 3: the row asks for the model 'another'" in err


def test_a_file_for_another_model_is_refused_with_the_remedy(cli: CommandLine) -> None:
    rows = json.dumps(line("gpt-4o-mini")) + "\n"

    _, err = cli("submit", "-", "--model", "the-model", stdin=rows, expect=65)

    assert "no row of stdin can be answered" in err
    assert "--served-model-name gpt-4o-mini answers it all the same" in err
    cli("submit", "-", "--model", "m", "--served-model-name", "gpt-4o-mini", stdin=rows)


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--chat-template-kwargs", "{"], 64, "--chat-template-kwargs is not JSON"),
        (["--chat-template-kwargs", "[1]"], 64, "it must be an object"),
        (["--chat-template-kwargs", '{"a": NaN}'], 64, "is not JSON"),
        (
            ["--chat-template-kwargs", '{"messages": []}'],
            64,
            "has 'messages', which is no variable",
        ),
        (["--n", "0"], 64, "n is 0; it must be from 1 to 128"),
        (["--logprobs", "21"], 64, "logprobs is 21; it must be from 0 to 20"),
        (["--limit", str(10**30)], 64, "it must be from 1 to 2**63 - 1"),
    ],
)
def test_options_that_cannot_work(
    cli: CommandLine, options: list[str], code: int, said: str
) -> None:
    rows = json.dumps(line("m")) + "\n"

    _, err = cli("submit", "-", "--model", "m", *options, stdin=rows, expect=code)

    assert said in err.replace("\n", " ")


def test_a_great_limit_is_no_limit(cli: CommandLine) -> None:
    job_id = cli.submit(line("the-model"), options=("--limit", str(2**63 - 1)))

    assert cli.json("status", job_id)["rows"]["total"] == 1
