"""`judge`: what another model is asked, and what its reply is worth."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.errors import RowError, UsageError
from jobs.evaluation.rows import Score
from jobs.evaluation.scorer_syntax import parse_scorers
from jobs.evaluation.scorers.judge import Judge
from jobs.evaluation.spec import ScorerSpec
from tests.support.scored_rows import row

pytestmark = pytest.mark.quick


def judge(**options: Any) -> Judge:
    made = ScorerSpec("j", "judge", options).make()
    assert isinstance(made, Judge)
    return made


def test_the_default_prompt() -> None:
    asked = judge().job_row(row("Paris, I think.", "Paris", prompt="Where is it?", row_index=7))
    assert asked.keys() == {"custom_id", "messages"}
    assert asked["custom_id"] == "7"
    (message,) = asked["messages"]
    assert message["role"] == "user"
    text = message["content"]
    fence = re.search(r"=== \w{16} ===", text)
    assert fence is not None
    for part in ("Where is it?", "Paris", "Paris, I think."):
        assert f"{fence[0]}\n{part}\n{fence[0]}" in text
    assert text.startswith("You grade the answer that somebody gave to a task. Decide whether it")
    assert text.rstrip().endswith('Then end with a line "Verdict: …", one of: yes, no.')


def test_a_target_is_in_it_where_there_is_one() -> None:
    assert "A right answer" not in judge().prompt(row("x"))
    assert "Rome\nor: Roma" in judge().prompt(row("x", ["Rome", "Roma"]))


def test_thoughts_are_judged_by_nobody_and_are_no_verdict() -> None:
    text = judge().prompt(row("<think>hm</think>Paris"))
    assert "hm" not in text
    assert "\nParis\n" in text
    assert judge().read("<think>Verdict: yes?</think>\nVerdict: no").value == 0
    assert judge().read("<think>Verdict: yes").value is None
    assert judge(reply="json").read('<think>{}</think>\n{"verdict": "yes"}').value == 1


def test_a_chat_is_told_as_one() -> None:
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"}]
    assert "system: Be short.\n\nuser: Hi" in judge().prompt(row("x", prompt=json.dumps(messages)))
    for prompt in ("[1] is a number", "[1]", '[{"role": 1}]'):
        assert f"\n{prompt}\n" in judge().prompt(row("x", prompt=prompt))


@settings(max_examples=15)
@given(st.text())
def test_an_answer_cannot_end_its_part_of_the_prompt(answer: str) -> None:
    text = judge().prompt(row(answer, prompt="Q"))
    fence = re.findall(r"=== [0-9a-f]{16} ===", text)[0]
    assert fence not in answer
    # Even where it was made of the prompt that an answer was asked with before.
    again = judge().prompt(row(text, prompt="Q"))
    assert re.findall(r"=== [0-9a-f]{16} ===", again)[0] not in text


def test_a_template_of_ones_own() -> None:
    source = "{{ topic }}|{{ prompt }}|{{ answer }}|{{ targets|join(',') }}|{{ rubric }}"
    made = judge(template=source, rubric="R")
    given = row("a {{ x }}", ["t", 2], prompt="p", columns={"topic": "c", "answer": "not this"})
    assert made.prompt(given) == "c|p|a {{ x }}|t,2|R"
    with pytest.raises(RowError, match="'nope' is undefined"):
        judge(template="{{ nope }}").job_row(row("x"))
    with pytest.raises(UsageError, match="template: line 1 of the template"):
        judge(template="{{ x")


@pytest.mark.parametrize(
    ("reply", "worth"),
    [
        ("It is right.\nVerdict: yes", 1),
        ("**Verdict:** No.", 0),
        ("Verdict: yes\nOn second thought, verdict: no", 0),
        ("yes", 1),
        ("So:\nNO!", 0),
        ("verdict = 'Yes'", 1),
        ("Verdict: maybe", None),
        ("Verdict: yes and no", None),
        ("There is no reason to say yes to that.", None),
        ("", None),
        ("Verdict:", None),
    ],
)
def test_what_a_reply_is_worth(reply: str, worth: float | None) -> None:
    score = judge().read(reply)
    assert score.value == worth
    assert str(score.note).startswith("verdict: " if worth is not None else "no verdict in the rep")


@pytest.mark.parametrize(
    ("reply", "worth"),
    [("Verdict: 1", 0), ("Verdict: 5", 1), ("Verdict: 3/5", 0.5), ("4 out of 5", 0.75),
     ("Verdict: 0", None), ("Verdict: 6", None), ("Verdict: 3.5", None), ("**2**", 0.25)],
)  # fmt: skip
def test_a_scale(reply: str, worth: float | None) -> None:
    made = judge(scale=5)
    assert made.read(reply).value == worth
    assert "from 1 (the worst) to 5 (the best)" in made.prompt(row("x"))


def test_choices_of_ones_own() -> None:
    made = judge(choices={"Good": 1, "so-so": 0.4, "bad": -1})
    assert [made.read(f"Verdict: {v}").value for v in ("good", "So-so.", "BAD")] == [1, 0.4, -1]
    assert "one of: Good, so-so, bad." in made.prompt(row("x"))


def test_a_pattern_finds_the_verdict() -> None:
    made = judge(pattern=r"\[\[(.*?)\]\]")
    assert made.read("[[no]] or rather [[Yes]]") == Score(1.0, "verdict: Yes")
    assert made.read("yes").value is None


@pytest.mark.parametrize(
    ("options", "reply", "worth"),
    [
        ({}, {"reason": "r", "verdict": "yes"}, 1),
        ({}, {"verdict": "maybe"}, None),
        ({}, {"reason": "yes"}, None),
        ({}, ["yes"], None),
        ({"scale": 3}, {"reason": "r", "verdict": 2}, 0.5),
        ({"scale": 3}, {"reason": "r", "verdict": 9}, None),
    ],
)
def test_a_reply_in_json(options: dict[str, Any], reply: Any, worth: float | None) -> None:
    made = judge(reply="json", **options)
    assert made.read(json.dumps(reply)).value == worth
    assert made.read("yes").value is None
    form = made.job_row(row("x"))["response_format"]
    assert form["type"] == "json_schema"
    verdict = form["json_schema"]["schema"]["properties"]["verdict"]
    expected = (
        {"type": "integer", "minimum": 1, "maximum": 3} if options else {"enum": ["yes", "no"]}
    )
    assert verdict == expected


def test_a_judge_that_did_not_answer() -> None:
    assert judge().read(None, "row_timeout") == Score(None, "the judge gave no reply: row_timeout")
    assert judge().read(None).value is None


def test_its_job_has_options_of_its_own() -> None:
    assert judge().job_options == {"max_tokens": 512, "temperature": 0}
    assert judge(submit={"max_tokens": 9, "top_p": 0.5}).job_options == {
        "max_tokens": 9, "temperature": 0, "top_p": 0.5,
    }  # fmt: skip
    (spec,) = parse_scorers(['judge:model=big,choices={"a":1,"b":0},scale=null'])
    assert spec.options == {"model": "big", "choices": {"a": 1, "b": 0}, "scale": None}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"scale": 1}, "scale is 1; it must be from 2 to 100"),
        ({"scale": 3, "choices": {"a": 1, "b": 0}}, "scale cannot be given together with choices"),
        ({"choices": {"a": 1}}, "choices must be two or more"),
        ({"choices": {"a": 1, "A": 0}}, "choices must be two or more"),
        ({"choices": {"a": "x", "b": 0}}, "choices.a is 'x'; it must be a number"),
        ({"choices": {"...": 1, "b": 0}}, "choices has '...', which no reply can name"),
        ({"choices": ["a", "b"]}, "choices is a list; it must be an object or null"),
        ({"pattern": "x"}, "pattern has no group"),
        ({"pattern": "("}, "pattern is no regular expression"),
        ({"pattern": "(x)", "reply": "json"}, "pattern finds nothing in a reply that is json"),
        ({"submit": {"temprature": 1}}, "submit: there is no option 'temprature'"),
        ({"submit": {"seed": 1}}, "submit.seed cannot be given"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=f"options.{re.escape(said)}"):
        judge(**options)
