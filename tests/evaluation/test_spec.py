"""Specifications of evaluations."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.errors import JobsError, UsageError
from jobs.evaluation.rules import Bound, Change, GateSpec
from jobs.evaluation.spec import Dataset, EvaluationSpec, ScorerSpec
from jobs.kinds import JobKind
from jobs.records.evaluations import Role

pytestmark = pytest.mark.quick

LEAST: dict[str, Any] = {"inputs": ["a.jsonl"], "model": "m", "scorers": [{"scorer": "exact"}]}
WHOLE: dict[str, Any] = {
    "version": 1,
    "inputs": ["/evals/*.parquet", "s3://bucket/more.jsonl"],
    "model": "m",
    "target": "label",
    "scorers": [
        {"name": "exact", "scorer": "exact", "options": {}},
        {"name": "loose", "scorer": "exact", "options": {"ignore_case": True}},
    ],
    "submit": {"max_tokens": 8, "template": "{{ q }}"},
    "slices": ["topic", "lang"],
    "gate": {
        "against": "previous",
        "rules": ["exact>=0.8", "loose[topic=math]>50%", "exact:drop<=0.02,p<0.01"],
        "alpha": 0.1,
        "missing": 0.01,
    },
    "dataset": "follow",
    "notify": ["https://example.com/hook?x=1"],
    "seed": 7,
}


def test_what_is_not_said_has_a_default() -> None:
    spec = EvaluationSpec.from_json(LEAST)
    assert spec == EvaluationSpec(("a.jsonl",), "m", (ScorerSpec("exact", "exact"),))
    assert (spec.target, spec.dataset, spec.gate) == ("target", Dataset.FROZEN, None)
    assert (spec.seed, spec.job_kind) == (0, JobKind.GENERATE)
    gated = EvaluationSpec.from_json(LEAST | {"gate": {}})
    assert gated.gate == GateSpec((), Role.BASELINE, 0.05, 0)


@pytest.mark.parametrize("value", [LEAST, WHOLE])
def test_it_is_the_same_after_a_way_through_json(value: dict[str, Any]) -> None:
    spec = EvaluationSpec.from_json(value)
    written = json.loads(json.dumps(spec.to_json()))
    assert EvaluationSpec.from_json(written) == spec
    assert written.items() >= WHOLE.items() if value is WHOLE else True


def test_one_input_may_be_a_text() -> None:
    assert EvaluationSpec.from_json(LEAST | {"inputs": "a"}).inputs == ("a",)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"inputs": []}, "inputs is a list; it must be a list of one or more"),
        ({"inputs": ["a", "a"]}, r"inputs\[1\] is 'a' a second time"),
        ({"inputs": ["a", 1]}, r"inputs\[1\] is 1; it must be a text"),
        ({"model": ""}, "model is ''; it must be a text"),
        ({"modle": "m"}, "no field 'modle'; did you mean model?"),
        ({"version": 2}, "version is 2; it must be one of 1"),
        ({"version": True}, "version is true"),
        ({"target": 1}, "target is 1"),
        ({"target": None}, "target is null, but exact needs one"),
        ({"scorers": {}}, "scorers is an object; it must be a list"),
        ({"scorers": [1]}, r"scorers\[0\] is 1; it must be an object"),
        ({"scorers": [{}]}, r"scorers\[0\].scorer is None, which is no scorer"),
        ({"scorers": [{"scorer": "exat"}]}, r"scorers\[0\].scorer is 'exat'.*did you mean exact"),
        ({"scorers": [{"scorer": "exact", "as": 1}]}, r"scorers\[0\] has no field 'as'"),
        ({"scorers": [{"scorer": "exact", "name": "a b"}]}, "the scorer name 'a b' must be"),
        ({"scorers": [{"scorer": "exact"}] * 2}, "two scorers have the name 'exact'"),
        ({"scorers": [{"scorer": "exact"}] * 33}, "scorers has 33 scorers"),
        (
            {"scorers": [{"scorer": "exact", "options": {"ignorecase": True}}]},
            r"scorers\[0\].options has no field 'ignorecase'; did you mean ignore_case",
        ),
        (
            {"scorers": [{"scorer": "exact", "options": {"strip": 1}}]},
            r"scorers\[0\].options.strip is 1; it must be true or false",
        ),
        ({"submit": {"max_token": 1}}, "submit: there is no option 'max_token'; did you mean max_"),
        ({"submit": {"seed": 1}}, "submit.seed cannot be given: the evaluation's own seed is used"),
        ({"submit": {"idempotency_key": "x"}}, "submit.idempotency_key cannot be given"),
        ({"submit": {"kind": "embed"}}, "submit.kind is 'embed'.*kind \"generate\""),
        ({"slices": "topic"}, "slices is 'topic'; it must be a list of texts"),
        ({"slices": ["a", "a"]}, r"slices\[1\] is 'a' a second time"),
        ({"dataset": "thawed"}, "dataset is 'thawed'; it must be one of 'frozen', 'follow'"),
        ({"notify": ["ftp://x"]}, r"notify\[0\] must be a URL"),
        ({"notify": ["https://["]}, r"notify\[0\] must be a URL"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 1.0}, "seed is 1.0; it must be a whole number"),
        ({"gate": []}, "gate is a list; it must be an object"),
        ({"gate": {"rule": []}}, "gate has no field 'rule'; did you mean rules?"),
        ({"gate": {"against": "best"}}, "gate.against is 'best'"),
        ({"gate": {"alpha": 1}}, "gate.alpha is 1.0; it must be over 0 and under 1"),
        ({"gate": {"alpha": "x"}}, "gate.alpha is 'x'; it must be a number"),
        ({"gate": {"missing": -1}}, "gate.missing is -1"),
        ({"gate": {"missing": 1.5}}, "gate.missing is 1.5; it must be from 0 to 1"),
        ({"gate": {"missing": True}}, "gate.missing is true"),
        ({"gate": {"rules": ["exact is 1"]}}, r"gate.rules\[0\] is 'exact is 1', which is no rule"),
        ({"gate": {"rules": ["f1>0"]}}, "is about 'f1', which is no scorer of this evaluation"),
        ({"gate": {"rules": ["exact[topic=x]>0"]}}, "the slice 'topic', which is none of slices"),
        ({"gate": {"rules": ["exact:p"], "against": None}}, "gate.against is null, but 'exact:p'"),
    ],
)
def test_what_cannot_be_is_refused_with_its_field(change: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        EvaluationSpec.from_json(LEAST | change)


@pytest.mark.parametrize("name", ["inputs", "model", "scorers"])
def test_what_must_be_there(name: str) -> None:
    with pytest.raises(UsageError, match=f"schedule.spec has no {name}"):
        EvaluationSpec.from_json({k: v for k, v in LEAST.items() if k != name}, "schedule.spec")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(st.sampled_from([*WHOLE, "other"]), JSON)
def test_no_json_ends_otherwise_than_in_a_specification_or_a_sentence(name: str, new: Any) -> None:
    try:
        spec = EvaluationSpec.from_json(WHOLE | {name: new})
    except JobsError:
        return
    assert EvaluationSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("f1 >= .5", Bound("f1 >= .5", "f1", ">=", 0.5)),
        ("f1<2e-1", Bound("f1<2e-1", "f1", "<", 0.2)),
        ("a.b-c_1 > 12.5 %", Bound("a.b-c_1 > 12.5 %", "a.b-c_1", ">", 0.125)),
        ("x[a=b]=c]<=-1", Bound("x[a=b]=c]<=-1", "x", "<=", -1.0, ("a", "b]=c"))),
        ("x[a=]>0", Bound("x[a=]>0", "x", ">", 0.0, ("a", ""))),
        ("x:drop<=2%", Change("x:drop<=2%", "x", -1, 0.02, None)),
        ("x:rise<=0.1", Change("x:rise<=0.1", "x", 1, 0.1, None)),
        ("x:p<0.01", Change("x:p<0.01", "x", -1, 0.0, 0.01)),
        ("x:p", Change("x:p", "x", -1, 0.0, 0.2)),
        ("x: p < 0.01 , drop <= 1", Change("x: p < 0.01 , drop <= 1", "x", -1, 1.0, 0.01)),
    ],
)
def test_rules(text: str, rule: Bound | Change) -> None:
    assert GateSpec.from_json({"rules": [text], "alpha": 0.2}).rules == (rule,)


@pytest.mark.parametrize(
    "text",
    ["", "x", "x>=", "x=>1", "x==1", "x>=1,y>=1", "x:drop", "x:drop<0.1", "x:drop>=0.1", "x:p<=0.1",
     "x:p<0", "x:p<1", "x:p,p", "x:drop<=1,rise<=1", "x:drop<=-1", "x:q<1", "x[a]>1", "x[=b]>1",
     "x>=nan", "x>=1e", "x:", "-x>1", "x:drop<=0.1,"],
)  # fmt: skip
def test_what_is_no_rule(text: str) -> None:
    with pytest.raises(UsageError, match=r"gate.rules\[0\]"):
        GateSpec.from_json({"rules": [text]})


@pytest.mark.parametrize(("missing", "rows", "allowed"), [(0, 9, 0), (3, 9, 3), (0.5, 9, 4)])
def test_missing_rows_are_a_number_or_a_share(missing: float, rows: int, allowed: int) -> None:
    assert GateSpec.from_json({"missing": missing}).allowed_missing(rows) == allowed


def test_a_share_of_missing_rows_is_what_it_says() -> None:
    for rows in (10, 100, 1000):
        for k in range(rows):
            gate = GateSpec.from_json({"missing": k / rows})
            assert gate.allowed_missing(rows) == k


def test_a_bound_that_is_reached_holds_however_it_is_written() -> None:
    for rows in (10, 100, 1000, 2000):
        for k in range(rows + 1):
            for limit in (f"{k / rows}", f"{k * 100 / rows:.10g}%"):
                bounds = [f"x{sign}{limit}" for sign in (">=", "<=", ">", "<")]
                rules = GateSpec.from_json({"rules": bounds}).rules
                assert [rule.holds(k / rows) for rule in rules] == [True, True, False, False]


def test_a_bound_that_a_mean_reaches_but_for_rounding_holds() -> None:
    mean = float(np.array([0.1] * 3).mean())
    assert mean > 0.1
    (rule,) = GateSpec.from_json({"rules": ["x<=0.1"]}).rules
    assert isinstance(rule, Bound)
    assert rule.holds(mean)


def test_a_column_whose_name_sql_cannot_keep_is_no_slice() -> None:
    value = {"inputs": ["a"], "model": "m", "scorers": [{"scorer": "exact"}]}
    EvaluationSpec.from_json({**value, "slices": ["x" * 255]})
    for name in ("x" * 256, "\0" * 100):
        with pytest.raises(UsageError, match=r"slices\[0\] has"):
            EvaluationSpec.from_json({**value, "slices": [name]})
