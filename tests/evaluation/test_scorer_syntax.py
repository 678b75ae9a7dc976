"""`--scorer` on a command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.errors import UsageError
from jobs.evaluation.scorer_syntax import MAX_FILE_BYTES, parse_scorers, with_files
from jobs.evaluation.spec import ScorerSpec

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("exact", "exact", {}),
        ("exact:", "exact", {}),
        ("exact:ignore_case=true", "exact", {"ignore_case": True}),
        ("exact: ignore_case = true , as = 5", "5", {"ignore_case": True}),
        ('exact:as="x.y",strip=false', "x.y", {"strip": False}),
        ('{"scorer": "exact", "strip": false, "as": "x"}', "x", {"strip": False}),
        ('{"scorer": "exact", "name": "x", "options": {"strip": false}}', "x", {"strip": False}),
    ],
)
def test_forms(text: str, name: str, options: dict[str, Any]) -> None:
    assert parse_scorers([text]) == (ScorerSpec(name, "exact", options),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is '', which is no scorer; there are exact"),
        ("exakt", "did you mean exact"),
        ("exact:strip", "--scorer 'exact:strip': 'strip' is no option; write key=value"),
        ("exact:strip=true,strip=true", "gives strip twice"),
        ("exact:strip=1", "--scorer.options.strip is 1; it must be true or false"),
        ("exact:strip=yes", "options.strip is 'yes'"),
        ("exact:as=a b", "the scorer name 'a b' must be"),
        ("{", "--scorer is not JSON"),
        ('{"strip": true}', "scorer is None, which is no scorer"),
        ('{"scorer": "exact", "options": 1}', "has no field 'options'"),
        ("@/nowhere/x.json", "/nowhere/x.json cannot be read: No such file"),
    ],
)
def test_what_is_none_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_scorers([text])


def test_a_file_has_one_or_more(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text('{"scorer": "exact"}')
    assert parse_scorers([f"@{path}", "exact:as=b"]) == (
        ScorerSpec("exact", "exact"), ScorerSpec("b", "exact"),
    )  # fmt: skip
    path.write_text(json.dumps([{"scorer": "exact"}, {"scorer": "exact", "as": "b"}]))
    assert [s.name for s in parse_scorers([f"@{path}"])] == ["exact", "b"]
    path.write_text("[1]")
    with pytest.raises(UsageError, match=r"s\.json is 1; it must be an object"):
        parse_scorers([f"@{path}"])
    path.write_bytes(b"\xff")
    with pytest.raises(UsageError, match="it is not UTF-8"):
        parse_scorers([f"@{path}"])
    path.write_bytes(b" " * (MAX_FILE_BYTES + 1))
    with pytest.raises(UsageError, match="is over 4 MiB"):
        parse_scorers([f"@{path}"])


def test_an_option_may_be_what_a_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "v.json"
    path.write_text("false")
    (scorer,) = parse_scorers([f"exact:strip=@{path}"])
    assert scorer.options == {"strip": False}
    written = {"scorer": "exact", "options": {"strip": f"@{path}"}}
    assert with_files(written) == {"scorer": "exact", "options": {"strip": False}}
    assert with_files({"scorer": "exact"}) == {"scorer": "exact"}
